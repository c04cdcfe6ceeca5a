"""Groups: their settings, how far they are, and where they go on."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.admin.groups import OneQueue
from chalicelib.api import views
from chalicelib.api.operations import Json, Operations, operation, page_of, parameters
from chalicelib.base.fields import Fields, checked_name
from chalicelib.base.limits import INSTANT_MS_MAX, OFFSET_MAX
from chalicelib.catalogue import group


class Groups(Operations):
    @operation
    def put_group(self, name: str, group_name: str, body: Json) -> tuple[Json, bool]:
        """The group with its progress, and whether it is new."""
        checked_name("group", group_name)
        settings = group.parse_settings(body)
        found = self._current_topic(name)
        _, is_new = self._service.admin.groups.put(found, group_name, settings)
        return views.group_details(name, self._service.admin.groups.details(found, group_name)), is_new

    @operation
    def get_group(self, name: str, group_name: str) -> Json:
        return views.group_details(name, self._service.admin.groups.details(self._current_topic(name), group_name))

    @operation
    def list_groups(self, name: str, query: Mapping[str, str]) -> Json:
        limit, token = page_of(parameters(query))
        found, rest = self._service.admin.groups.page(self._current_topic(name), limit, token)
        return {"groups": [views.group_totals(name, each) for each in found], "next": rest}

    @operation
    def delete_group(self, name: str, group_name: str) -> None:
        self._service.admin.groups.delete(self._current_topic(name), group_name)

    @operation
    def reset(self, name: str, group_name: str, body: Json) -> Json:
        found = self._current_topic(name)
        to = _reset_target(Fields(body, {"to"}), found.queues)
        return views.group_details(name, self._service.admin.groups.reset(found, group_name, to))


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
