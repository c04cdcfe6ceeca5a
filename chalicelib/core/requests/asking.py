"""Sends requests: messages that carry a correlation id and end at its deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing import Producing
from chalicelib.core.producing.new_message import Sending
from chalicelib.core.requests.correlation import NONCE_BYTES, Correlation, Correlations
from chalicelib.core.requests.waiting import Reply, Waiter


class Asker:
    def __init__(self, env: Env, producing: Producing, correlations: Correlations, waiter: Waiter) -> None:
        self._runtime = env.runtime
        self._send, self._correlations, self._waiter = producing.send_parsed, correlations, waiter

    def ask(
        self, topic: Topic, parse: Callable[[Topic], Sending], timeout_ms: int, wait_ms: int
    ) -> tuple[str, Reply | None]:
        """Sends the message that `parse` makes for a topic as a request, and waits for the reply until `wait_ms` have
        passed. Returns the correlation id, and the reply (None: there is none yet).

        Raises the errors of a produce, and ReplyTimeout. A StoreUnavailable has the id if the message may be stored."""
        began_at_ms, asked_at_ms = self._runtime.uptime(), self._runtime.now()
        correlation = Correlation("", "", asked_at_ms, timeout_ms, self._runtime.entropy(NONCE_BYTES))
        correlation_id, is_sent = "", False

        def request(current: Topic) -> list[Sending]:
            nonlocal correlation, correlation_id
            correlation = replace(correlation, topic_id=current.id, topic_name=current.name)
            sending = parse(current)
            correlation_id, reply_by_ms = self._correlations.sign(correlation), correlation.reply_by_ms
            sending.message = replace(sending.message, correlation_id=correlation_id, reply_by_ms=reply_by_ms)
            return [sending]

        until_ms = None if wait_ms >= timeout_ms else began_at_ms + wait_ms
        try:
            with deadline.within(began_at_ms + timeout_ms):
                self._send(topic, request)
            is_sent = True
            return correlation_id, self._waiter.wait(correlation, until_ms)
        except StoreUnavailable as trouble:
            if not correlation_id or not (is_sent or trouble.outcome_unknown):
                raise
            raise StoreUnavailable(trouble.detail, outcome="unknown", correlation_id=correlation_id) from trouble
