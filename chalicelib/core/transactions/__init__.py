"""Transactions: half messages, stored and invisible until their sender commits or rolls back."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log
from chalicelib.core.producing import Producing

if TYPE_CHECKING:
    from chalicelib.core.transactions.decisions import Checks, Decisions


class Transactions:
    """Imports its parts with the first transaction, so that other calls do not wait for them."""

    def __init__(self, env: Env, log: Log, delays: Delays, producing: Producing) -> None:
        self._env, self._log, self._producing = env, log, producing
        self._runtime = env.runtime
        self.delays = delays

    @cached_property
    def decisions(self) -> Decisions:
        from chalicelib.core.transactions.decisions import Decisions

        return Decisions(self._env, self._log, self.delays, self._producing)

    @cached_property
    def checks(self) -> Checks:
        from chalicelib.core.transactions.decisions import Checks

        return Checks(self._env, self._log)

    def drop_overdue(self, topic: Topic, until_ms: int) -> int:
        """Rolls back overdue transactions while there is time, and returns how many. Nothing depends on it: other calls
        treat them as rolled back."""
        count = 0
        for transaction in self.checks.overdue(topic):
            if self._runtime.uptime() > until_ms:
                break
            count += self.decisions.drop(topic, transaction) is not None
        return count
