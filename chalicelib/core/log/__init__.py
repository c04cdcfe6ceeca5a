"""The log of a queue: segments of entries, their payloads, reading and appending."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.reader import LogReader, Offsets
from chalicelib.core.log.writer import LogWriter


class Log:
    """The logs of all queues."""

    def __init__(self, env: Env) -> None:
        self.payloads = Payloads(env.store, env.caches)
        self.reader = LogReader(env, self.payloads)
        self.writer = LogWriter(env, self.payloads)
        self.offsets = Offsets(env.store, self.reader)
