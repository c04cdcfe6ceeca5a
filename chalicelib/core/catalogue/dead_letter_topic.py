"""A group's `dead_letters`: the topic that its dead messages move to."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.core.base.fields import Label, check, mapping, nullable, optional, request, required, string
from chalicelib.core.base.fields import given as given_fields
from chalicelib.core.base.limits import NAME_PATTERN
from chalicelib.core.catalogue.settings import AsGiven

_NAME = string(pattern=NAME_PATTERN, examples=["orders-dead"])
_SOURCE_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
"""Names of topics, of groups, and of subscriptions."""
_SOURCE = string(pattern=_SOURCE_PATTERN)


@request
class DeadLetterTarget:
    topic: str = required(_NAME)
    source: str | None = optional(_SOURCE)


DEAD_LETTERS = nullable(
    mapping(
        required=["topic"],
        properties={
            "topic": {**_NAME, "description": "The topic."},
            "source": {
                **nullable(_SOURCE),
                "description": "The property `sqs:source` of the moved messages. By default the group's name.",
            },
        },
        additionalProperties=False,
        default=None,
    )
)


class DeadLetterTopic(AsGiven):
    """`given`: the fields that are set, by name; empty: the group keeps dead letters."""

    @property
    def topic(self) -> str | None:
        return self._text("topic")

    @property
    def source(self) -> str | None:
        return self._text("source")

    def _text(self, name: str) -> str | None:
        text: str | None = self.given.get(name)
        return text


def parse(data: object, label: Label) -> DeadLetterTopic:
    """Raises InvalidField, UnknownField."""
    values: dict[str, Any] = {} if data is None else given_fields(DeadLetterTarget, data, label)
    for name, value in values.items():
        pattern = _SOURCE_PATTERN if name == "source" else NAME_PATTERN
        if not re.fullmatch(pattern, check(string(), value, label.inside(name))):
            raise label.inside(name).wrong(f"a name that matches {pattern}", value)
    return DeadLetterTopic(values)
