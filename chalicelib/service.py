"""Builds the parts of one instance of the service over one store."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from chalicelib.core.access import Access
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import Configured, SigningKey
from chalicelib.core.consuming import Consuming
from chalicelib.core.cursors import Cursors
from chalicelib.core.dead_letters import DeadLetters
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log
from chalicelib.core.producing import Producing
from chalicelib.core.producing.hooks import SendHooks
from chalicelib.core.store import Store
from chalicelib.core.telemetry.telemetry import Telemetry
from chalicelib.core.transactions import Transactions
from chalicelib.push.outside import NOWHERE, Outside, Wakes

if TYPE_CHECKING:
    from chalicelib.core.admin import Admin
    from chalicelib.core.reading import Reading
    from chalicelib.core.requests import Requests
    from chalicelib.core.upkeep.sweeps import Sweeps
    from chalicelib.push.dispatcher import Pushing

T = TypeVar("T")


class Service:
    """One instance of the service: it owns its caches, everything else is in the store."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        signing_key: Configured = None,
        hooks: SendHooks | None = None,
        outside: Outside = NOWHERE,
        has_access_keys: bool = True,
    ) -> None:
        self.telemetry = Telemetry(runtime)
        self._extensions: dict[Callable[[Service], object], object] = {}
        self.env = env = Env.over(store, runtime, self.telemetry)
        self.signing_key = key = SigningKey(env, signing_key)
        self.access = Access(env, key, has_access_keys)
        self.log = log = Log(env)
        self.cursors = Cursors(env, key)
        self.delays = Delays(env, log)
        self.outside, wakes = outside, Wakes(env, outside)
        self.stored = wakes.stored
        self.dead_letters = DeadLetters(env, log, self.cursors, self.delays, self.stored)
        self.producing = Producing(env, log, self.delays, hooks or SendHooks(), self.stored)
        self.transactions = Transactions(env, log, self.delays, self.producing)
        self.consuming = Consuming(env, log, self.cursors, self.delays, self.dead_letters, wakes.waiters)

    def extension(self, build: Callable[[Service], T]) -> T:
        """Returns what a door builds over this instance, always the same."""
        found = self._extensions.get(build)
        if found is None:
            found = self._extensions.setdefault(build, build(self))  # two calls may build it at once
        return cast(T, found)

    @cached_property
    def admin(self) -> Admin:
        """Imported by the first call that needs it, so that no other waits for it."""
        from chalicelib.core.admin import Admin

        return Admin(self.env, self.log, self.cursors, self.transactions)

    @cached_property
    def reading(self) -> Reading:
        """Imported by the first call that needs it, for the same reason."""
        from chalicelib.core.reading import Reading

        return Reading(self.env, self.log, self.cursors, self.delays)

    @cached_property
    def requests(self) -> Requests:
        """Imported by the first of them, for the same reason."""
        from chalicelib.core.requests import Requests

        return Requests(self.env, self.signing_key, self.log, self.producing, self.consuming)

    @cached_property
    def pushing(self) -> Pushing:
        """Imported by the first call that needs it: few groups are pushed."""
        from chalicelib.push.dispatcher import Pushing

        return Pushing(self.env, self.signing_key, self.consuming, self.outside)

    @cached_property
    def sweeps(self) -> Sweeps:
        """Imported by the first scheduled call, so that no request waits for it."""
        from chalicelib.core.upkeep.sweeps import Sweeps

        return Sweeps(self.env, self.cursors, self.transactions, self.dead_letters, self.admin)
