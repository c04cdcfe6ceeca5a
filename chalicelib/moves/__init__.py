"""Move tasks: bring the messages of a dead-letter queue back to where they are from, or to another queue."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.admin import Admin
from chalicelib.admin.sqs_queues import SqsQueues
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.consuming import Consuming
from chalicelib.dead_letters import DeadLetters
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.moves.carrier import Carrier
from chalicelib.moves.tasks import MoveTasks
from chalicelib.moves.worker import Worker


class Moves:
    def __init__(
        self,
        env: Env,
        log: Log,
        delays: Delays,
        dead_letters: DeadLetters,
        consuming: Consuming,
        admin: Admin,
        queues: SqsQueues,
        stored: Callable[[Topic], None],
    ) -> None:
        """`stored`: is called when messages are ready again."""
        carrier = Carrier(env, log.reader, dead_letters, stored)
        self.worker = Worker(env, consuming, admin.groups, queues, carrier)
        self.tasks = MoveTasks(env, delays.promoter, queues, self.worker)
