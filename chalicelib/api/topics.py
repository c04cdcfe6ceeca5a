"""Topics, and the service itself."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.api import views
from chalicelib.api.operations import Json, Operations, operation, page_of, parameters
from chalicelib.catalogue import topic


class Topics(Operations):
    @operation
    def put_topic(self, name: str, body: Json) -> tuple[Json, bool]:
        """The topic, and whether it is new."""
        made, is_new = self._service.admin.topics.put(name, topic.parse_settings(body))
        return made.as_json(), is_new

    @operation
    def get_topic(self, name: str) -> Json:
        return views.topic_details(self._service.admin.topics.details(name))

    @operation
    def list_topics(self, query: Mapping[str, str]) -> Json:
        limit, token = page_of(parameters(query))
        found, rest = self._service.admin.topics.page(limit, token)
        return {"topics": [each.as_json() for each in found], "next": rest}

    @operation
    def delete_topic(self, name: str) -> None:
        self._service.admin.topics.delete(name)

    @operation
    def health(self) -> Json:
        """Asks the store for a topic. Raises StoreUnavailable."""
        self._service.admin.topics.page(1, None)
        return {"status": "ok"}
