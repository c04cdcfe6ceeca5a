"""The operations as JSON in, JSON out: the contract without HTTP. Routes and functions call these.

Every operation checks its whole input before it stores anything, and raises a `DecantError` that names what is wrong.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from chalicelib import group, message, topic, views
from chalicelib.call import one_call
from chalicelib.errors import GroupNotFound, InvalidField, TopicNotFound
from chalicelib.fields import Fields, checked_name, decoded_token, encoded_token
from chalicelib.limits import (
    BATCH_MESSAGES_MAX,
    ID_CHARS_MAX,
    INSTANT_MS_MAX,
    INVISIBLE_MS_MAX,
    NACK_DELAY_MS_MAX,
    OFFSET_MAX,
    PAGE_DEFAULT,
    PAGE_MAX,
    POP_MESSAGES_DEFAULT,
    REASON_CHARS_MAX,
    RECEIPT_CHARS_MAX,
    WAIT_MS_MAX,
)
from chalicelib.service.claimer import Pop
from chalicelib.service.groups import OneQueue
from chalicelib.service.producer import Produced
from chalicelib.service.service import Service
from chalicelib.topic import Topic

Json = dict[str, Any]
T = TypeVar("T")
P = ParamSpec("P")

_POP_FIELDS = frozenset({"max_messages", "invisible_ms", "wait_ms", "consumer_id", "attempt_id", "ack"})

_INTEGERS = frozenset({"queue", "offset", "at_ms", "limit"})


def _one_call(operation: Callable[Concatenate[Api, P], T]) -> Callable[Concatenate[Api, P], T]:
    """One deadline for all that the operation asks of the store, and the truth about what it leaves behind."""

    @functools.wraps(operation)
    def called(self: Api, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with one_call(self._service.runtime.now()):
            return operation(self, *args, **kwargs)

    return called


class Api:
    def __init__(self, service: Service) -> None:
        self._service = service

    # -- topics -------------------------------------------------------------------------------------------------------

    @_one_call
    def put_topic(self, name: str, body: Json) -> tuple[Json, bool]:
        """The topic, and whether it is new."""
        made, is_new = self._service.topics.put(name, topic.parse_queues(body))
        return made.as_json(), is_new

    @_one_call
    def get_topic(self, name: str) -> Json:
        return views.topic_details(self._service.topics.details(name))

    @_one_call
    def list_topics(self, query: Mapping[str, str]) -> Json:
        limit, token = _page(_parameters(query))
        found, rest = self._service.topics.page(limit, token)
        return {"topics": [each.as_json() for each in found], "next": rest}

    @_one_call
    def delete_topic(self, name: str) -> None:
        self._service.topics.delete(name)

    # -- messages -----------------------------------------------------------------------------------------------------

    @_one_call
    def produce(self, name: str, body: Json) -> list[Produced]:
        """What became of each message; at least one is stored."""
        try:
            return self._produce(self._topic(name), body)
        except TopicNotFound:
            return self._produce(self._current_topic(name), body)  # perhaps it was made again a moment ago

    def _produce(self, found: Topic, body: Json) -> list[Produced]:
        batch = message.parse_batch(Fields(body, {"messages"}).raw("messages"), found.queues)
        return self._service.producer.produce(found, batch)

    @_one_call
    def get_message(self, name: str, message_id: str) -> Json:
        return self._service.lookup.by_id(self._current_topic(name), message_id).as_json(name)

    @_one_call
    def read_messages(self, name: str, query: Mapping[str, str]) -> Json:
        found = self._current_topic(name)
        fields = _parameters(query)
        limit, token = _page(fields)
        positions = self._positions(found, fields, token)
        page = self._service.lookup.read(found, positions, limit)
        rest = None if page.is_all else encoded_token(page.positions)
        return {"messages": [each.as_json(name) for each in page.messages], "next": rest}

    def _positions(self, found: Topic, fields: Fields, token: str | None) -> dict[int, int]:
        """Where to read from: where a page before ended, an offset of a queue, or an instant in one queue or all."""
        queue = fields.integer("queue", 0, found.queues - 1)
        offset = fields.integer("offset", 0, OFFSET_MAX)
        at_ms = fields.integer("at_ms", 0, INSTANT_MS_MAX)
        if token is not None:
            positions = decoded_token(token, found.queues)  # goes on from there, wherever the first page began
            if queue is not None and positions.keys() != {queue}:
                raise InvalidField(f"parameter 'next' is of another query: not of queue {queue} alone")
            return positions
        if offset is not None and (queue is None or at_ms is not None):
            raise InvalidField(f"parameter 'offset' goes with 'queue' and without 'at_ms'; it is {offset}")
        if offset is not None and queue is not None:
            return {queue: offset}
        positions = self._service.lookup.positions_at(found, at_ms or 0)
        return positions if queue is None else {queue: positions[queue]}

    # -- groups -------------------------------------------------------------------------------------------------------

    @_one_call
    def put_group(self, name: str, group_name: str, body: Json) -> tuple[Json, bool]:
        """The group with its progress, and whether it is new."""
        checked_name("group", group_name)
        settings = group.parse_settings(body)
        found = self._current_topic(name)
        _, is_new = self._service.groups.put(found, group_name, settings)
        return views.group_details(name, self._service.groups.details(found, group_name)), is_new

    @_one_call
    def get_group(self, name: str, group_name: str) -> Json:
        return views.group_details(name, self._service.groups.details(self._current_topic(name), group_name))

    @_one_call
    def list_groups(self, name: str, query: Mapping[str, str]) -> Json:
        limit, token = _page(_parameters(query))
        found, rest = self._service.groups.page(self._current_topic(name), limit, token)
        return {"groups": [views.group_totals(name, each) for each in found], "next": rest}

    @_one_call
    def delete_group(self, name: str, group_name: str) -> None:
        self._service.groups.delete(self._current_topic(name), group_name)

    @_one_call
    def reset(self, name: str, group_name: str, body: Json) -> Json:
        found = self._current_topic(name)
        to = _reset_target(Fields(body, {"to"}), found.queues)
        return views.group_details(name, self._service.groups.reset(found, group_name, to))

    # -- consuming ----------------------------------------------------------------------------------------------------

    @_one_call
    def pop(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        ask = _pop(Fields(body, _POP_FIELDS))
        popped = self._in_topic(name, lambda found: self._service.consumer.pop(found, group_name, ask))
        return views.popped(name, popped, len(ask.ack))

    @_one_call
    def ack(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        receipts = _receipts(Fields(body, {"receipts"}))
        failed = self._in_topic(name, lambda found: self._service.settler.ack(found, group_name, receipts))
        return {"acked": len(receipts) - len(failed), "failed": views.failures(failed)}

    @_one_call
    def nack(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "delay_ms", "reason"})
        receipts = _receipts(fields)
        delay_ms = fields.integer("delay_ms", 0, NACK_DELAY_MS_MAX)
        reason = _reason(fields)
        failed = self._in_topic(
            name, lambda found: self._service.settler.nack(found, group_name, receipts, delay_ms, reason)
        )
        return {"nacked": len(receipts) - len(failed), "failed": views.failures(failed)}

    @_one_call
    def bury(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "reason"})
        receipts = _receipts(fields)
        reason = _reason(fields)
        failed = self._in_topic(name, lambda found: self._service.settler.bury(found, group_name, receipts, reason))
        return {"buried": len(receipts) - len(failed), "failed": views.failures(failed)}

    @_one_call
    def extend(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "invisible_ms"})
        receipts = _receipts(fields)
        invisible_ms = fields.integer("invisible_ms", 1, INVISIBLE_MS_MAX)
        if invisible_ms is None:
            raise fields.wrong("invisible_ms", f"given: an integer from 1 to {INVISIBLE_MS_MAX}")
        extended, failed = self._in_topic(
            name, lambda found: self._service.settler.extend(found, group_name, receipts, invisible_ms)
        )
        return {"extended": views.extended(extended), "failed": views.failures(failed)}

    # -- operations ---------------------------------------------------------------------------------------------------

    @_one_call
    def health(self) -> Json:
        """Asks the store for a topic. Raises StoreUnavailable."""
        self._service.topics.page(1, None)
        return {"status": "ok"}

    def _topic(self, name: str) -> Topic:
        """As an instance believes it for a few seconds: for what is done often."""
        return self._service.catalogue.topic(name)

    def _in_topic(self, name: str, operation: Callable[[Topic], T]) -> T:
        """Runs an operation on the topic as believed, and, when that has no such group, on the topic as it is."""
        believed = self._topic(name)
        try:
            return operation(believed)
        except GroupNotFound:
            current = self._current_topic(name)
            if current.id == believed.id:
                raise
            return operation(current)

    def _current_topic(self, name: str) -> Topic:
        """As it is now: a group must not be made for a topic that was just replaced."""
        return self._service.catalogue.current_topic(name)


def _pop(fields: Fields) -> Pop:
    return Pop(
        fields.integer("max_messages", 1, BATCH_MESSAGES_MAX) or POP_MESSAGES_DEFAULT,
        fields.integer("invisible_ms", 1, INVISIBLE_MS_MAX),
        fields.integer("wait_ms", 0, WAIT_MS_MAX) or 0,
        fields.text("consumer_id", ID_CHARS_MAX),
        fields.text("attempt_id", ID_CHARS_MAX),
        tuple(fields.strings("ack", BATCH_MESSAGES_MAX, RECEIPT_CHARS_MAX, least=0) or ()),
    )


def _receipts(fields: Fields) -> list[str]:
    receipts = fields.strings("receipts", BATCH_MESSAGES_MAX, RECEIPT_CHARS_MAX)
    if receipts is None:
        raise fields.wrong("receipts", f"given: a list of 1 to {BATCH_MESSAGES_MAX} strings")
    return receipts


def _reason(fields: Fields) -> str:
    return fields.text("reason", REASON_CHARS_MAX, chars_min=0) or ""


def _reset_target(fields: Fields, queues: int) -> str | int | OneQueue:
    to = fields.raw("to")
    if to in ("earliest", "latest"):
        return str(to)
    wanted = '"earliest", "latest", {"at_ms": instant} or {"queue": queue, "offset": offset}'
    if not isinstance(to, dict):
        raise fields.wrong("to", wanted)
    inner = Fields(to, {"at_ms", "queue", "offset"}, "to.")
    at_ms = inner.integer("at_ms", 0, INSTANT_MS_MAX)
    queue, offset = inner.integer("queue", 0, queues - 1), inner.integer("offset", 0, OFFSET_MAX)
    if at_ms is not None and queue is None and offset is None:
        return at_ms
    if at_ms is None and queue is not None and offset is not None:
        return OneQueue(queue, offset)
    raise fields.wrong("to", wanted)


def _parameters(query: Mapping[str, str]) -> Fields:
    """Query parameters as fields: what looks like an integer is one, the rest is left for the checks to name."""
    converted: Json = {
        name: int(value) if name in _INTEGERS and re.fullmatch(r"-?[0-9]{1,18}", value) else value
        for name, value in query.items()
    }
    return Fields(converted, _INTEGERS | {"next"})


def _page(fields: Fields) -> tuple[int, str | None]:
    return fields.integer("limit", 1, PAGE_MAX) or PAGE_DEFAULT, fields.text("next")
