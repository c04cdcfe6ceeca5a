"""The log of a queue: segments of entries, their payloads, reading and appending."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.log.offsets import Offsets
from chalicelib.log.payloads import Payloads
from chalicelib.log.reader import LogReader
from chalicelib.log.writer import LogWriter


class Log:
    """The logs of all queues."""

    def __init__(self, env: Env) -> None:
        self.payloads = Payloads(env.store, env.caches)
        self.reader = LogReader(env, self.payloads)
        self.writer = LogWriter(env, self.payloads)
        self.offsets = Offsets(env.store, self.reader)
