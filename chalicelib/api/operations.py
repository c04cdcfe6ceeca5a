"""What the operations share: one deadline a call, topics as believed or as they are, and pages."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from chalicelib.base.deadline import one_call
from chalicelib.base.errors import GroupNotFound
from chalicelib.base.fields import Fields
from chalicelib.base.limits import PAGE_DEFAULT, PAGE_MAX
from chalicelib.catalogue.topic import Topic
from chalicelib.service import Service

Json = dict[str, Any]
T = TypeVar("T")
P = ParamSpec("P")

_INTEGERS = frozenset({"queue", "offset", "at_ms", "limit"})


class Operations:
    def __init__(self, service: Service) -> None:
        self._service = service

    def _topic(self, name: str) -> Topic:
        """As an instance believes it for a few seconds: for what is done often."""
        return self._service.env.catalogue.topic(name)

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
        return self._service.env.catalogue.current_topic(name)


A = TypeVar("A", bound=Operations)


def operation(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[A, P], T]:
    """One deadline for all that the operation asks of the store, and the truth about what it leaves behind."""

    @functools.wraps(method)
    def called(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with one_call(self._service.env.runtime.uptime()):
            return method(self, *args, **kwargs)

    return called


def parameters(query: Mapping[str, str]) -> Fields:
    """Query parameters as fields: what looks like an integer is one, the rest is left for the checks to name."""
    converted: Json = {
        name: int(value) if name in _INTEGERS and re.fullmatch(r"-?[0-9]{1,18}", value) else value
        for name, value in query.items()
    }
    return Fields(converted, _INTEGERS | {"next", "key"}, noun="parameter")


def page_of(fields: Fields) -> tuple[int, str | None]:
    return fields.integer("limit", 1, PAGE_MAX) or PAGE_DEFAULT, fields.text("next")
