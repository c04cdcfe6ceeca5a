"""Producing: from a request to entries in logs."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.delays import Delays
from chalicelib.core.log import Log
from chalicelib.core.producing.hooks import SendHooks
from chalicelib.core.producing.produce import Notice, Producer


class Producing:
    def __init__(self, env: Env, log: Log, delays: Delays, hooks: SendHooks, notice: Notice) -> None:
        producer = Producer(env, log, delays.writer, hooks, notice)
        self.produce, self.send_parsed, self.send = producer.produce, producer.send_parsed, producer.send
        self.outbox_item, self.choose_queues = producer.outbox_item, producer.choose_queues
        self.hooks = hooks
