"""The deployment's rules: the topic that each source's records go to, and what its messages take from them.

The first rule for the source counts. Without expressions a message has what its source gives it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from chalicelib.core.base.errors import InvalidField, InvalidJson
from chalicelib.core.base.fields import (
    Label,
    check,
    checked,
    mapping,
    optional,
    quoted,
    request,
    required,
    shown,
    string,
)
from chalicelib.core.base.limits import EXPRESSION_CHARS_MAX, ID_CHARS_MAX, KEY_BYTES_MAX, NAME_PATTERN
from chalicelib.doors.ingest.sources import Arrival, Json, as_json

SETTING = "DECANT_INGEST"
REJECTS_SETTING = "DECANT_INGEST_REJECTS"

_PROPERTY_CHARS_MAX = 2_048
"""ARNs are shorter, and so are ids: the keys of S3 objects have at most 1,024 bytes."""

_EXPRESSION = string(EXPRESSION_CHARS_MAX)


def _topic(value: Any, label: Label) -> str:
    name: str = check(string(), value, label)
    if not re.fullmatch(NAME_PATTERN, name):
        raise label.wrong(f"a topic's name, which matches {NAME_PATTERN}", name)
    return name


def _expression(value: Any, label: Label) -> str:
    expression: str = check(_EXPRESSION, value, label)
    from chalicelib.core.catalogue import filter_expressions  # JMESPath, which only a rule with expressions needs

    filter_expressions.demand_known(expression, label)
    return expression


def _expressions(value: Any, label: Label) -> dict[str, str]:
    if not isinstance(value, dict):
        raise label.wrong("an object of expressions", value)
    return {name: _expression(expression, label.inside(name)) for name, expression in value.items()}


@request
class Rule:
    """All but `topic` and `source` are JMESPath over the record as Lambda gives it, which has one more field: `json`,
    the body of the message as JSON, null if it is none. Values that are neither text nor null become JSON.

    topic: Where the messages go.
    source: `sqs`, `sns`, `events`, `s3`, `kinesis` or `dynamodb`, or where records come from, with `*` for any text:
        the ARN of the queue, stream, SNS topic or bucket, or the `source` of an event. Missing: any.
    key: The message's key. Null: none.
    tag: Its tag. Null: none.
    properties: Its properties, an expression for each. Null: it does not have this one.
    body: Its body.
    dedup_id: The id that repeats of the record have in common. Null: repeats are not looked for, which costs less."""

    topic: str = required(string(), _topic)
    source: str | None = optional(string())
    key: str | None = optional(_EXPRESSION, _expression)
    tag: str | None = optional(_EXPRESSION, _expression)
    properties: dict[str, str] | None = optional(mapping(), _expressions)
    body: str | None = optional(_EXPRESSION, _expression)
    dedup_id: str | None = optional(_EXPRESSION, _expression)

    def takes(self, arrival: Arrival) -> bool:
        if self.source in (None, arrival.source.name):
            return True
        parts = map(re.escape, (self.source or "").split("*"))
        return re.fullmatch(".*".join(parts), arrival.origin, re.DOTALL) is not None

    def message(self, arrival: Arrival) -> Json:
        """The message that the record is. Raises InvalidField if the record or an expression gives none."""
        message: Json = {"dedup_id": arrival.dedup_id, **arrival.source.message(arrival.record)}
        message |= self._mapped(arrival, message.get("body"))
        message["properties"] = {**message.get("properties", {}), **about(arrival)}
        if self.body is not None:
            message.pop("body_base64", None)
        message["key"] = fitting(message.get("key"), KEY_BYTES_MAX)
        message["dedup_id"] = fitting(message["dedup_id"], ID_CHARS_MAX)
        return message

    def _mapped(self, arrival: Arrival, body: str | None) -> Json:
        """The fields for which the rule has expressions."""
        expressions = {name: getattr(self, name) for name in ("key", "tag", "body", "dedup_id") if getattr(self, name)}
        if not expressions and self.properties is None:
            return {}
        from chalicelib.core.catalogue.filter_expressions import value_of  # JMESPath, as above

        document = {**arrival.record, "json": _parsed(body)}
        chars = len(as_json(arrival.record))
        fields: Json = {name: _as_text(value_of(text, document, chars)) for name, text in expressions.items()}
        if self.properties is not None:
            values = {name: _as_text(value_of(text, document, chars)) for name, text in self.properties.items()}
            fields["properties"] = {name: value for name, value in values.items() if value is not None}
        return fields


def about(arrival: Arrival) -> dict[str, str]:
    """Properties that say which record it was."""
    return {"aws_origin": arrival.origin[:_PROPERTY_CHARS_MAX], "aws_id": arrival.id[:_PROPERTY_CHARS_MAX]}


def fitting(text: str | None, bytes_max: int) -> str | None:
    """The text; its SHA-256 where it is longer, so that equal ones stay equal."""
    if text is None or len(text.encode(errors="surrogatepass")) <= bytes_max:
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _parsed(body: str | None) -> object:
    """The body as JSON, null if it is none."""
    try:
        return json.loads(body or "")
    except (ValueError, RecursionError):
        return None


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else as_json(value)


# -- the setting ------------------------------------------------------------------------------------------------------


@lru_cache(1)
def parse(text: str | None) -> tuple[Rule, ...]:
    """The rules that the setting holds. Raises InvalidField, UnknownField, InvalidFilter; InvalidJson if it is none."""
    if not text:
        raise InvalidJson(f"{SETTING} is not set: it says which topic each source's records go to")
    try:
        rules = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(f"{SETTING} must be JSON: {error}") from None
    if not isinstance(rules, list) or not rules:
        raise InvalidField(f"{SETTING} must be a list of rules; it is {shown(rules)}")
    return tuple(checked(Rule, rule, Label(f"{SETTING}[{number}]", "setting")) for number, rule in enumerate(rules))


def parse_rejects(text: str | None) -> str | None:
    """The topic of rejects, if there is one. Raises InvalidField."""
    return _topic(text, Label(REJECTS_SETTING, "setting")) if text else None


def rule_for(rules: Sequence[Rule], arrival: Arrival) -> Rule:
    """The first that takes it. Raises InvalidField if none does."""
    for rule in rules:
        if rule.takes(arrival):
            return rule
    raise InvalidField(f"no rule of {SETTING} takes records of {arrival.source.name} from {quoted(arrival.origin)}")
