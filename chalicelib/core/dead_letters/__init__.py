"""Dead letters: messages that a group gave up. Buries, lists, redrives and purges them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors import Cursors
from chalicelib.core.dead_letters.bury import Burial
from chalicelib.core.dead_letters.move import Mover
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log

if TYPE_CHECKING:
    from chalicelib.core.dead_letters.queue import DeadLetterQueue, Redrive


class DeadLetters:
    """Any pop may bury. The first call that needs the rest imports it, so that other calls do not wait for it."""

    def __init__(self, env: Env, log: Log, cursors: Cursors, delays: Delays, stored: Callable[[Topic], None]) -> None:
        """`stored`: called when messages have moved into a topic."""
        self.mover = Mover(env, log, delays, stored)
        self.burial = Burial(env, self.mover)
        self._env, self._log, self._cursors, self._delays = env, log, cursors, delays

    @cached_property
    def queue(self) -> DeadLetterQueue:
        from chalicelib.core.dead_letters.queue import DeadLetterQueue

        return DeadLetterQueue(self._env, self._log.reader, self._delays.messages)

    @cached_property
    def redrive(self) -> Redrive:
        from chalicelib.core.dead_letters.queue import Redrive

        return Redrive(self._env, self.queue, self._cursors)
