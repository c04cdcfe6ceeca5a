"""Move tasks: bring the messages of a dead-letter queue back to their source, or to another subscription."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.core.admin import Admin
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming import Consuming
from chalicelib.core.dead_letters import DeadLetters
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log
from chalicelib.core.moves.carrier import MessageCarrier
from chalicelib.core.moves.task import Subscriptions
from chalicelib.core.moves.worker import MoveTasks, TaskWorker


class Moves:
    def __init__(
        self,
        env: Env,
        log: Log,
        delays: Delays,
        dead_letters: DeadLetters,
        consuming: Consuming,
        admin: Admin,
        subscriptions: Subscriptions,
        stored: Callable[[Topic], None],
    ) -> None:
        """`stored`: called when messages are ready again."""
        carrier = MessageCarrier(env, log.reader, dead_letters, stored)
        self.worker = TaskWorker(env, consuming, admin.groups, subscriptions, carrier)
        self.tasks = MoveTasks(env, delays.promoter, subscriptions, self.worker)
