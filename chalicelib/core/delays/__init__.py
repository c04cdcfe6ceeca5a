"""Delayed messages, and the chain of decisions that delivers or cancels them."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.delays.delayed_messages import DelayedMessages, DelayWriter
from chalicelib.core.delays.promoter import DecisionChain, Promoter
from chalicelib.core.log import Log


class Delays:
    def __init__(self, env: Env, log: Log) -> None:
        self.decisions = decisions = DecisionChain(env.store, log)
        self.writer = DelayWriter(env, log.payloads)
        self.promoter = Promoter(env, log, decisions)
        self.messages = DelayedMessages(env, log, decisions)
