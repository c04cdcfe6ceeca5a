"""Dead letters: what a group has given up, to be looked at, taken back, or thrown away."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.api import views
from chalicelib.api.operations import Json, Operations, operation, page_of, parameters
from chalicelib.base.errors import InvalidField
from chalicelib.base.fields import Fields, decoded_token, encoded_token, shown
from chalicelib.base.limits import BATCH_MESSAGES_MAX, ID_CHARS_MAX
from chalicelib.dead_letters.queue import BEGINNING, Place
from chalicelib.table import keys


class DeadLetters(Operations):
    @operation
    def list_dead(self, name: str, group_name: str, query: Mapping[str, str]) -> Json:
        found = self._current_topic(name)
        limit, token = page_of(parameters(query))
        since = _since(token, found.queues)
        page = self._service.dead_letters.queue.page(found, group_name, limit, since)
        rest = None if page.rest is None else _token(page.rest)
        return {"messages": [views.dead_message(name, each) for each in page.messages], "next": rest}

    @operation
    def redrive(self, name: str, group_name: str, body: Json) -> Json:
        message_ids = Fields(body, {"message_ids"}).strings(
            "message_ids", BATCH_MESSAGES_MAX, ID_CHARS_MAX, chars_min=1
        )
        found = self._current_topic(name)
        redrive = self._service.dead_letters.redrive
        done = redrive.all(found, group_name) if message_ids is None else redrive.some(found, group_name, message_ids)
        return {"redriven": done.redriven, "remaining": done.remaining}

    @operation
    def purge_dead(self, name: str, group_name: str) -> Json:
        return {"purged": self._service.dead_letters.queue.purge(self._current_topic(name), group_name)}


def _token(place: Place) -> str:
    queue, offset, consumer = place
    token = encoded_token({queue: offset})
    return f"{token}.{consumer}" if consumer else token


def _since(token: str | None, queues: int) -> Place:
    if token is None:
        return BEGINNING
    first, dot, consumer = token.partition(".")
    positions = decoded_token(first, queues)
    if len(positions) > 1 or (dot and not keys.is_consumer(consumer)):
        raise InvalidField(f"parameter 'next' is of another list; it is {shown(token)}")
    return *next(iter(positions.items())), consumer
