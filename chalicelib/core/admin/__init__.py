"""Administration: creates, changes, resets and deletes topics and groups."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from chalicelib.core.admin.groups import Backlogs, Groups
from chalicelib.core.admin.topics import Deletion, Topics
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.cursors import Cursors
from chalicelib.core.log import Log
from chalicelib.core.transactions import Transactions

if TYPE_CHECKING:
    from chalicelib.core.admin.draining import Draining


class Admin:
    def __init__(self, env: Env, log: Log, cursors: Cursors, transactions: Transactions) -> None:
        self._parts = env, log, transactions
        self.deletion = Deletion(env, log.payloads)
        self.topics = Topics(env, log.offsets, self.deletion, partial(_draining, *self._parts))
        self.groups = Groups(env, log, cursors, self.deletion)

    @cached_property
    def backlogs(self) -> Backlogs:
        return Backlogs(self._parts[0].runtime, self.topics, self.groups)

    @cached_property
    def draining(self) -> Draining:
        return _draining(*self._parts)


def _draining(env: Env, log: Log, transactions: Transactions) -> Draining:
    """Imported when a topic first gets fewer queues, so that other calls do not wait for it."""
    from chalicelib.core.admin.draining import Draining

    return Draining(env, log, transactions)
