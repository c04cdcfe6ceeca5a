"""Builds all rooms of the service over one store."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from chalicelib.access import Access
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.signing_key import Configured, SigningKey
from chalicelib.consuming import Consuming
from chalicelib.cursors import Cursors
from chalicelib.dead_letters import DeadLetters
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.producing import Producing
from chalicelib.producing.hooks import SendHooks
from chalicelib.push.outside import NOWHERE, Outside
from chalicelib.push.wakes import Wakes
from chalicelib.store import Store
from chalicelib.telemetry.telemetry import Telemetry
from chalicelib.transactions import Transactions

if TYPE_CHECKING:
    from chalicelib.admin import Admin
    from chalicelib.admin.sqs_queues import SqsQueues
    from chalicelib.moves import Moves
    from chalicelib.push.pushing import Pushing
    from chalicelib.reading import Reading
    from chalicelib.requests import Requests
    from chalicelib.upkeep.sweeps import Sweeps


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

    @cached_property
    def admin(self) -> Admin:
        """Imported by the first call that needs it, so that no other waits for it."""
        from chalicelib.admin import Admin

        return Admin(self.env, self.log, self.cursors, self.transactions)

    @cached_property
    def reading(self) -> Reading:
        """Imported by the first call that needs it, for the same reason."""
        from chalicelib.reading import Reading

        return Reading(self.env, self.log, self.cursors, self.delays)

    @cached_property
    def sqs_queues(self) -> SqsQueues:
        """Imported by the first call of an SQS client."""
        from chalicelib.admin.sqs_queues import SqsQueues

        return SqsQueues(self.env, self.log.offsets, self.admin.deletion)

    @cached_property
    def moves(self) -> Moves:
        """Imported by the first call about a move task."""
        from chalicelib.moves import Moves

        parts = (self.delays, self.dead_letters, self.consuming, self.admin, self.sqs_queues)
        return Moves(self.env, self.log, *parts, self.stored)

    @cached_property
    def requests(self) -> Requests:
        """Imported by the first of them, for the same reason."""
        from chalicelib.requests import Requests

        return Requests(self.env, self.signing_key, self.log, self.producing, self.consuming)

    @cached_property
    def pushing(self) -> Pushing:
        """Imported by the first call that needs it: few groups are pushed."""
        from chalicelib.push.pushing import Pushing

        return Pushing(self.env, self.signing_key, self.consuming, self.outside)

    @cached_property
    def sweeps(self) -> Sweeps:
        """Imported by the first scheduled call, so that no request waits for it."""
        from chalicelib.upkeep.sweeps import Sweeps

        return Sweeps(self.env, self.cursors, self.transactions, self.dead_letters, self.admin)
