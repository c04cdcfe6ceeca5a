"""The tags of queues. Those that begin with `decant:` say what SQS has no attribute for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.limits import NAME_PATTERN, QUEUES_DEFAULT, QUEUES_MAX
from chalicelib.core.catalogue.group import EARLIEST, LATEST
from chalicelib.core.catalogue.group_forms import parse_filter
from chalicelib.doors.sqs.errors import SqsError, missing

TOPIC, GROUP, START, QUEUES, FILTER = (f"decant:{name}" for name in ("topic", "group", "start", "queues", "filter"))
_FIXED = (TOPIC, GROUP, START, QUEUES)
"""They count at creation only."""
_OURS, _AWS = "decant:", "aws:"

_TAGS_MAX = 50
_KEY_CHARS_MAX = 128
_VALUE_CHARS_MAX = 256
_TAG_LIST = re.compile(r"[\w.:/@+-]+(\|[\w.:/@+-]+)*")
"""Values of `decant:filter` that are tags of messages; any other is an expression."""

_EVERYTHING = "'all'"
"""An expression that is true for each message: a filter can be changed but not removed."""

Tags = Mapping[str, str]


def invalid(key: str, value: str, reason: str) -> SqsError:
    return SqsError("InvalidParameterValue", f"Value {value} for tag {key} is invalid. Reason: {reason}")


def demand_keys(keys: list[str]) -> None:
    """Raises SqsError unless tags can have these keys."""
    if not keys or not all(1 <= len(key) <= _KEY_CHARS_MAX for key in keys):
        reason = f"Tag keys must be between 1 and {_KEY_CHARS_MAX} characters in length."
        raise SqsError("InvalidParameterValue", reason)


def demand_new(given: Tags, queue_name: str) -> None:
    """Raises SqsError unless a new queue can have these tags."""
    demand_tags(given)
    _demand_few(given, queue_name)
    unfit = (QUEUES,) if TOPIC in given else (GROUP, START)
    for key in unfit:
        if key in given:
            relation = "without" if key == QUEUES else "with"
            raise invalid(key, given[key], f"It goes {relation} tag {TOPIC} only.")
    for key in (TOPIC, GROUP):
        if key in given and not re.fullmatch(NAME_PATTERN, given[key]):
            raise invalid(key, given[key], f"Must match {NAME_PATTERN}")
    if given.get(START, LATEST) not in (LATEST, EARLIEST):
        raise invalid(START, given[START], f"Must be {LATEST} or {EARLIEST}.")
    queues = given.get(QUEUES, "1")
    if not re.fullmatch("[0-9]{1,3}", queues) or not 1 <= int(queues) <= QUEUES_MAX:
        raise invalid(QUEUES, queues, f"Must be between 1 and {QUEUES_MAX}.")


def demand_tags(given: Tags) -> None:
    """Raises SqsError for what no tag can be."""
    if given:
        demand_keys([*given])
    for key, value in given.items():
        if key.lower().startswith(_AWS):
            raise invalid(key, value, f"Keys that begin with {_AWS} are reserved.")
        if len(value) > _VALUE_CHARS_MAX:
            raise invalid(key, value, f"Must be between 0 and {_VALUE_CHARS_MAX} characters in length.")
        if key.startswith(_OURS) and key not in (*_FIXED, FILTER):
            raise invalid(key, value, f"Those with a meaning are {', '.join((*_FIXED, FILTER))}.")


def demand_same(given: Tags, existing: Tags) -> None:
    """Raises SqsError where the given tags make another queue than the existing one."""
    for key in _FIXED:
        if key in given and given[key] != existing.get(key):
            text = f"A queue already exists with the same name and a different value for tag {key}"
            raise SqsError("QueueNameExists", text)


def added(existing: Tags, given: Tags, queue_name: str) -> dict[str, str]:
    """Raises SqsError."""
    if not given:
        raise missing("Tags")
    demand_tags(given)
    _demand_changeable({key: value for key, value in given.items() if value != existing.get(key)})
    tags = {**existing, **given}
    _demand_few(tags, queue_name)
    return tags


def _demand_few(tags: Tags, queue_name: str) -> None:
    if len(tags) > _TAGS_MAX:
        raise SqsError("InvalidParameterValue", f"Too many tags added for queue {queue_name}.")


def without(existing: Tags, keys: list[str]) -> dict[str, str]:
    """Raises SqsError."""
    demand_keys(keys)
    _demand_changeable({key: existing[key] for key in keys if key in existing})
    return {key: value for key, value in existing.items() if key not in keys}


def _demand_changeable(changed: Tags) -> None:
    for key in _FIXED:
        if key in changed:
            raise invalid(key, changed[key], "It cannot be changed once the queue exists.")


def number_of_queues(tags: Tags, default: int = QUEUES_DEFAULT) -> int:
    return int(tags.get(QUEUES, default))


def group_settings(tags: Tags, before: Tags | None = None) -> dict[str, Any]:
    """The setting of the group that a tag makes. `before`: the tags that the queue had. Raises SqsError."""
    value, old = tags.get(FILTER), (before or {}).get(FILTER)
    if value == old:
        return {}
    if value is None:
        return {"filter": parse_filter({"expression": _EVERYTHING})}
    form = {"tags": value.split("|")} if _TAG_LIST.fullmatch(value) else {"expression": value}
    try:
        return {"filter": parse_filter(form)}
    except DecantError as unfit:
        raise invalid(FILTER, value, unfit.detail) from None
