"""Producing, and looking up."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.api import views
from chalicelib.api.operations import Json, Operations, operation, page_of, parameters
from chalicelib.base import message
from chalicelib.base.errors import InvalidField, TopicNotFound
from chalicelib.base.fields import Fields, decoded_token, encoded_token
from chalicelib.base.limits import INSTANT_MS_MAX, OFFSET_MAX
from chalicelib.base.message import Message
from chalicelib.catalogue.topic import Topic
from chalicelib.producing import trace
from chalicelib.producing.produce import Produced
from chalicelib.table.writes import Item


class Messages(Operations):
    @operation
    def produce(self, name: str, body: Json, traceparent: str | None = None) -> list[Produced]:
        """What became of each message; at least one is stored. `traceparent`: the trace that the request belongs to, if
        its form is that of W3C."""
        parent = trace.parse(traceparent)
        found = self._topic(name)
        batch = self._batch(found, body, parent)

        def send() -> list[Produced]:
            try:
                return self._service.producing.produce(found, batch)
            except TopicNotFound:
                current = self._current_topic(name)  # perhaps it was made again a moment ago
                return self._service.producing.produce(current, self._batch(current, body, parent))

        return self._service.producing.hooks.around(name, [each for each, _ in batch], send)

    def _batch(self, found: Topic, body: Json, parent: str | None) -> list[tuple[Message, int | None]]:
        given = Fields(body, {"messages"}).raw("messages")
        batch = message.parse_batch(given, found.queues, self._service.env.runtime.now())
        return [(trace.traced(each, parent), queue) for each, queue in batch]

    @operation
    def outbox_item(self, name: str, body: Json) -> Item:
        """An item that is the message, once somebody has stored it."""
        found = self._topic(name)
        given, queue = message.parse(body, found.queues, "message.", self._service.env.runtime.now())
        if given.dedup_id is not None:
            raise InvalidField("field 'message.dedup_id' is not for a message that is part of a transaction")
        return self._service.producing.outbox_item(found, given, queue)

    @operation
    def get_message(self, name: str, message_id: str) -> Json:
        return self._service.reading.lookup.by_id(self._current_topic(name), message_id).as_json(name)

    @operation
    def read_messages(self, name: str, query: Mapping[str, str]) -> Json:
        found = self._current_topic(name)
        fields = parameters(query)
        limit, token = page_of(fields)
        if fields.given("key"):
            return self._with_key(found, fields, limit, token)
        positions = self._positions(found, fields, token)
        page = self._service.reading.lookup.read(found, positions, limit)
        rest = None if page.is_all else encoded_token(page.positions)
        return {"messages": [each.as_json(name) for each in page.messages], "next": rest}

    @operation
    def list_delayed(self, name: str, query: Mapping[str, str]) -> Json:
        limit, token = page_of(parameters(query))
        found, rest = self._service.delays.messages.page(self._current_topic(name), limit, token)
        return {"messages": [views.waiting(name, each) for each in found], "next": rest}

    @operation
    def cancel_delayed(self, name: str, message_id: str) -> Json:
        self._service.delays.messages.cancel(self._current_topic(name), message_id)
        return {"cancelled": True}

    def _with_key(self, found: Topic, fields: Fields, limit: int, token: str | None) -> Json:
        key = message.parse_key(fields) or ""
        if other := next((name for name in ("queue", "offset", "at_ms") if fields.given(name)), None):
            raise InvalidField(f"parameter 'key' goes without 'queue', 'offset' and 'at_ms'; '{other}' is given too")
        if not found.index_keys:
            raise InvalidField(f"parameter 'key' is for topics with index_keys; topic {found.name!r} has none")
        messages, rest = self._service.reading.by_key.page(found, key, limit, token)
        return {"messages": [each.as_json(found.name) for each in messages], "next": rest}

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
        positions = self._service.reading.lookup.positions_at(found, at_ms or 0)
        return positions if queue is None else {queue: positions[queue]}
