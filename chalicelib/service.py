"""Builds all rooms of the service over one store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chalicelib.admin import Admin
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.catalogue import Catalogue
from chalicelib.catalogue.env import Env
from chalicelib.consuming import Consuming
from chalicelib.cursors import Cursors
from chalicelib.dead_letters import DeadLetters
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.producing import Producing
from chalicelib.producing.hooks import SendHooks
from chalicelib.reading import Reading
from chalicelib.store import Store

if TYPE_CHECKING:
    from chalicelib.upkeep.sweeps import Sweeps


@dataclass(frozen=True)
class Service:
    env: Env
    cursors: Cursors
    delays: Delays
    producing: Producing
    dead_letters: DeadLetters
    consuming: Consuming
    reading: Reading
    admin: Admin

    @cached_property
    def sweeps(self) -> Sweeps:
        """Imported by the first scheduled call, so that no request waits for it."""
        from chalicelib.upkeep.sweeps import Sweeps

        return Sweeps(self.env, self.cursors, self.delays, self.dead_letters, self.admin)


def build(store: Store, runtime: Runtime, signing_key: bytes | None = None, hooks: SendHooks | None = None) -> Service:
    """One instance of the service: it owns its caches, everything else is in the store."""
    env = Env(store, runtime, Catalogue(store, runtime))
    log, cursors = Log(env), Cursors(env, signing_key)
    delays, admin = Delays(env, log), Admin(env, log, cursors)
    dead_letters = DeadLetters(env, log, cursors, delays)
    producing = Producing(env, log, delays, hooks or SendHooks())
    consuming = Consuming(env, log, cursors, delays, dead_letters)
    return Service(env, cursors, delays, producing, dead_letters, consuming, Reading(env, log, delays), admin)
