"""Looking messages up without leasing them."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.cursors import Cursors
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.reading.browse import Lookup
from chalicelib.reading.by_key import KeyLookup
from chalicelib.reading.trace import Traces


class Reading:
    def __init__(self, env: Env, log: Log, cursors: Cursors, delays: Delays) -> None:
        self.lookup = Lookup(env.runtime, log, delays.messages)
        self.by_key = KeyLookup(env, log)
        self.traces = Traces(env, cursors, self.lookup)
