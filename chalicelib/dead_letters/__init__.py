"""Dead letters: messages that a group gave up. Buries, lists, redrives and purges them."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.cursors import Cursors
from chalicelib.dead_letters.bury import Burial
from chalicelib.dead_letters.queue import DeadLetterQueue
from chalicelib.dead_letters.redrive import Redrive
from chalicelib.delays import Delays
from chalicelib.log import Log


class DeadLetters:
    def __init__(self, env: Env, log: Log, cursors: Cursors, delays: Delays) -> None:
        self.burial = Burial(env)
        self.queue = DeadLetterQueue(env, log.reader, delays.messages)
        self.redrive = Redrive(env, self.queue, cursors)
