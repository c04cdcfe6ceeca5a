"""Reads messages without leasing them."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.cursors import Cursors
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log
from chalicelib.core.reading.lookup import KeyLookup, Lookup
from chalicelib.core.reading.trace import Traces


class Reading:
    def __init__(self, env: Env, log: Log, cursors: Cursors, delays: Delays) -> None:
        self.lookup = Lookup(env.runtime, log, delays.messages)
        self.by_key = KeyLookup(env, log)
        self.traces = Traces(env, cursors, self.lookup)
