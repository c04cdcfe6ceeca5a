"""Pop, and the calls that settle messages: ack, nack, extend, bury."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.claim import Claimer
from chalicelib.consuming.delivery import Deliverer
from chalicelib.consuming.pop import Popper
from chalicelib.consuming.receipt_batch import Failure
from chalicelib.consuming.settle import Settler
from chalicelib.consuming.view_reader import ViewReader
from chalicelib.consuming.waiters import Waiters
from chalicelib.cursors import Cursors
from chalicelib.dead_letters import DeadLetters
from chalicelib.delays import Delays
from chalicelib.log import Log


class Consuming:
    def __init__(
        self, env: Env, log: Log, cursors: Cursors, delays: Delays, dead_letters: DeadLetters, waiters: Waiters
    ) -> None:
        settler = Settler(env, cursors, dead_letters.burial)
        views = ViewReader(env, log.reader, cursors, delays.promoter)
        claimer = Claimer(env, log, cursors, dead_letters.burial)
        deliverer = Deliverer(env, log.reader, cursors.receipts, claimer, settler)
        self.popper, self.settler = Popper(env, views, claimer, deliverer, settler, waiters), settler
        self.pop, self.waiters = self.popper.pop, waiters
        self.nack, self.extend = settler.nack, settler.extend

    def ack(self, topic: Topic, group_name: str, texts: Sequence[str]) -> list[Failure]:
        """As the settler does."""
        failed = self.settler.ack(topic, group_name, texts)
        self.popper.freed(topic, group_name)
        return failed

    def bury(self, topic: Topic, group_name: str, texts: Sequence[str], reason: str) -> list[Failure]:
        """As the settler does."""
        failed = self.settler.bury(topic, group_name, texts, reason)
        self.popper.freed(topic, group_name)
        return failed
