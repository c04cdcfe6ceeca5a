"""Producing: from a request to entries in logs."""

from __future__ import annotations

from chalicelib.catalogue.catalogue import Env
from chalicelib.delays import Delays
from chalicelib.log import Log
from chalicelib.producing.hooks import SendHooks
from chalicelib.producing.produce import Producer


class Producing:
    def __init__(self, env: Env, log: Log, delays: Delays, hooks: SendHooks) -> None:
        producer = Producer(env, log, delays.writer, hooks)
        self.produce, self.send, self.outbox_item = producer.produce, producer.send, producer.outbox_item
        self.choose_queues = producer.choose_queues
        self.hooks = hooks
