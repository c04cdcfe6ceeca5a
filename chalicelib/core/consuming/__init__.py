"""Pop, and the calls that settle messages: ack, nack, extend, bury."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.consuming.claim import Claimer
from chalicelib.core.consuming.delivery import Deliverer
from chalicelib.core.consuming.pop import Popper
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.consuming.view_reader import ViewReader
from chalicelib.core.consuming.waiters import Waiters
from chalicelib.core.cursors import Cursors
from chalicelib.core.dead_letters import DeadLetters
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log


class Consuming:
    def __init__(
        self, env: Env, log: Log, cursors: Cursors, delays: Delays, dead_letters: DeadLetters, waiters: Waiters
    ) -> None:
        settler = Settler(env, cursors, dead_letters.burial, waiters)
        views = ViewReader(env, log.reader, cursors, delays.promoter)
        claimer = Claimer(env, log, cursors, dead_letters.burial)
        deliverer = Deliverer(env, log.reader, cursors.receipts, claimer, settler)
        self.popper, self.settler = Popper(env, views, claimer, deliverer, settler, waiters), settler
        self.pop, self.waiters = self.popper.pop, waiters
        self.ack, self.nack, self.extend, self.bury = settler.ack, settler.nack, settler.extend, settler.bury
