"""Transactions: half messages, stored and invisible until their sender commits or rolls back."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.producing import Producing
from chalicelib.transactions.checks import Checks
from chalicelib.transactions.decisions import Decisions


class Transactions:
    def __init__(self, env: Env, log: Log, delays: Delays, producing: Producing) -> None:
        self._runtime = env.runtime
        self.delays = delays
        self.decisions = Decisions(env, log, delays, producing)
        self.checks = Checks(env, log)

    def drop_overdue(self, topic: Topic, until_ms: int) -> int:
        """Rolls back what nobody decided about in time, while there is time, and returns how many. Nothing depends on
        it: others answer as if it were done."""
        count = 0
        for transaction in self.checks.overdue(topic):
            if self._runtime.uptime() > until_ms:
                break
            count += self.decisions.drop(topic, transaction) is not None
        return count
