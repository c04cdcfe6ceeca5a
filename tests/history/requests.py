"""Requests and replies: the callers that ask and those that reply, and their judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from chalicelib.core.base.errors import (
    AlreadyReplied,
    QueueFull,
    ReplyTimeout,
    RequestExpired,
    RequestNotFound,
    StoreUnavailable,
)
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing.new_message import Sending
from chalicelib.service import Service
from tests.history.caller import Record
from tests.history.case import Case
from tests.history.facts import Delivered, Fact, Fetched, Replied, Sent, Settled

REPLY, WAITING = "reply", "waiting"
TIMEOUT, NOT_FOUND = ReplyTimeout.__name__, RequestNotFound.__name__
EXPIRED, ALREADY = RequestExpired.__name__, AlreadyReplied.__name__
NOT_ASKED = "not asked"
"""The outcome of the ack of a reply that was refused."""


class RequestCaller:
    def __init__(self, service: Service, topic: Topic, record: Record, now: Callable[[], int]) -> None:
        self._requests, self._catalogue = service.requests, service.env.catalogue
        self._known, self._record, self._now = topic, record, now

    def ask(self, body: str, key: str | None, timeout_ms: int, wait_ms: int) -> str | None:
        """Returns the correlation id, if the caller learned it."""
        sent = Sent(body, key, self._now(), is_unknown=True, ttl_ms=timeout_ms)
        self._record.begin([sent, fact := Fetched(None, body, self._now())])
        message = Message(body, None, key, None, {})
        try:
            topic = self._catalogue.topic(self._known.name)
            fact.id, reply = self._requests.ask(topic, lambda _: Sending(message), timeout_ms, wait_ms)
            fact.outcome, fact.reply = (REPLY, reply.message.body.decode()) if reply else (WAITING, None)
        except ReplyTimeout as timeout:
            fact.id, fact.outcome = str(timeout.members["correlation_id"]), TIMEOUT
        except (StoreUnavailable, QueueFull) as trouble:
            sent.is_unknown, sent.is_refused = trouble.outcome_unknown, isinstance(trouble, QueueFull)
            self._record.end([sent])
            return None
        fact.at_ms = self._now()
        self._record.end([fact])
        return fact.id

    def fetch(self, correlation_id: str, body: str, wait_ms: int = 0) -> Fetched:
        self._record.begin([fact := Fetched(correlation_id, body, self._now())])
        try:
            reply = self._requests.fetch(correlation_id, wait_ms)
            fact.outcome, fact.reply = (REPLY, reply.message.body.decode()) if reply else (WAITING, None)
        except (ReplyTimeout, RequestNotFound) as error:
            fact.outcome = error.code
        except StoreUnavailable:
            return fact
        fact.at_ms = self._now()
        self._record.end([fact])
        return fact

    def reply(self, request: Delivered, body: str, acks: bool) -> Replied:
        """`acks`: with the receipt of the request."""
        fact = Replied(request.correlation_id, body, self._now(), request.reply_by_ms)
        ack = Settled("ack", request.group, request.place, request.receipt, self._now(), self._now(), "unknown")
        facts: list[Fact] = [fact, ack] if acks else [fact]
        self._record.begin(facts)
        try:
            correlation = self._requests.correlation(request.correlation_id)
            failed = self._requests.reply(
                correlation, Message(body, None, None, None, {}), request.receipt if acks else None
            )
        except (AlreadyReplied, RequestExpired) as error:
            fact.outcome, ack.outcome = error.code, NOT_ASKED
        except StoreUnavailable:
            return fact
        else:
            fact.outcome, ack.outcome = "ok", failed[0].code if failed else "ok"
        fact.at_ms = ack.at_ms = self._now()
        self._record.end(facts)
        return fact


def a_request_has_one_reply_for_ever(case: Case) -> Iterator[str]:
    """All callers that ask get the same reply, which was sent to this request; no other one was accepted."""
    history = case.history
    sent = {(fact.id, fact.reply) for fact in history.replied if fact.outcome in ("ok", "unknown")}
    seen: dict[str, set[str]] = defaultdict(set)
    for fetched in history.fetched:
        if fetched.id and fetched.reply is not None:
            seen[fetched.id].add(fetched.reply)
            if (fetched.id, fetched.reply) not in sent:
                yield f"{fetched.body} got {fetched.reply}, which nobody replied to it"
    for replied in history.replied:
        if replied.outcome == "ok":
            seen[replied.id].add(replied.reply)
    for request, replies in seen.items():
        if len(replies) > 1:
            yield f"{request} has the replies {sorted(replies)}"


def a_time_out_is_final(case: Case) -> Iterator[str]:
    """After a time-out the caller gets no reply, and no time-out comes before the deadline."""
    history = case.history
    over = {fact.id: fact for fact in history.fetched if fact.outcome == TIMEOUT}
    for fetched in history.fetched:
        if fetched.id in over and fetched.outcome == REPLY:
            yield f"{fetched.body} timed out at {over[fetched.id].at_ms}, and got {fetched.reply} at {fetched.at_ms}"
    for replied in history.replied:
        if replied.id in over and replied.outcome == "ok":
            yield f"{over[replied.id].body} timed out, and {replied.reply} was accepted at {replied.at_ms}"


def a_reply_comes_in_time_or_never(case: Case) -> Iterator[str]:
    """A deadline ends replies, deliveries and waits, and nothing ends them earlier."""
    history = case.history
    deadlines = {fact.id: fact.reply_by_ms for fact in history.replied}
    deadlines |= {got.correlation_id: got.reply_by_ms for got in history.delivered if got.correlation_id}
    for replied in history.replied:
        is_first = not any(
            other.began_ms < replied.began_ms and (other.id, other.reply) == (replied.id, replied.reply)
            for other in history.replied
        )
        if replied.outcome == "ok" and is_first and replied.began_ms > replied.reply_by_ms + case.off_ms:
            yield f"{replied.reply} of {replied.began_ms} was accepted, after {replied.reply_by_ms}"
        if replied.outcome == EXPIRED and replied.at_ms + case.off_ms < replied.reply_by_ms:
            yield f"{replied.reply} of {replied.at_ms} was too late, before {replied.reply_by_ms}"
    for fetched in history.fetched:
        if fetched.outcome == TIMEOUT and fetched.at_ms + case.off_ms < deadlines.get(fetched.id or "", 0):
            yield f"{fetched.body} timed out at {fetched.at_ms}, before {deadlines[fetched.id or '']}"
    for got in history.delivered:
        if got.correlation_id and got.began_ms > got.reply_by_ms + case.off_ms:
            yield f"{got.group} got {got.body} at {got.began_ms}, to be answered by {got.reply_by_ms}"


def an_accepted_reply_is_there(case: Case) -> Iterator[str]:
    """Every later caller finds it. The service refuses a reply only if it has another one."""
    history = case.history
    accepted: dict[str, int] = {}
    for replied in history.replied:
        if replied.outcome == "ok":
            accepted[replied.id] = min(replied.at_ms, accepted.get(replied.id, replied.at_ms))
    for fetched in history.fetched:
        since_ms = accepted.get(fetched.id or "")
        is_stale = since_ms is not None and fetched.began_ms <= since_ms + (history.stale_ms or 0)
        if since_ms is not None and (fetched.outcome == NOT_FOUND or (fetched.outcome == WAITING and not is_stale)):
            yield f"{fetched.body} was answered at {since_ms}, and at {fetched.began_ms} it was {fetched.outcome}"
    for replied in history.replied:
        others = (other for other in history.replied if other.id == replied.id and other.reply != replied.reply)
        if replied.outcome == ALREADY and not any(
            other.began_ms <= replied.at_ms and other.outcome in ("ok", "unknown") for other in others
        ):
            yield f"{replied.reply} was refused for another reply, and there is none"
