"""The rights of a token. An operation needs a right that allows it, and a right that denies it wins.

A right applies to operations whose topic and group match its patterns. Sends and replies name no group, so `groups`
does not limit them. Any other operation without a group concerns all groups of its topic, and one without a topic
concerns the whole service: it needs the right on all of them, with none denied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import (
    Label,
    array,
    check,
    checked,
    declarations,
    flag,
    optional,
    quoted,
    request,
    required,
    shown,
    string,
)
from chalicelib.core.base.limits import NAME_PATTERN_CHARS_MAX, RIGHTS_MAX

Verb = Literal["produce", "consume", "read", "admin"]

VERBS: tuple[Verb, ...] = ("produce", "consume", "read", "admin")
ALL = "*"

_PATTERN = r"^[A-Za-z0-9._*-]+$"
_GLOB = string(NAME_PATTERN_CHARS_MAX, pattern=_PATTERN, examples=["orders*"])


def _glob(value: object, label: Label) -> str:
    pattern: str = check(_GLOB, value, label)
    if not re.fullmatch(_PATTERN, pattern):
        raise label.wrong("a name, in which '*' stands for any characters", pattern)
    return ALL if set(pattern) == {ALL} else pattern


@request
class Right:
    """Operations that the token allows or denies.

    operations: `produce`: send messages, requests and transactions, and cancel. `consume`: pop, settle and reply.
        `read`: look up, list, see progress and metrics. `admin`: create, change, delete, reset, redrive, and manage
        tokens.
    topics: The name of the topics. `*` stands for any characters.
    groups: The name of the groups. `*` stands for any characters. It does not limit sends and replies, which name no
        group.
    deny: These operations are denied, whatever other rights allow."""

    operations: list[Verb] = required(
        array(string(enum=[*VERBS], examples=["produce"]), minItems=1, maxItems=len(VERBS))
    )
    topics: str = required(_GLOB, _glob)
    groups: str = optional({**_GLOB, "default": ALL}, _glob)
    deny: bool = optional(flag(default=False))

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in declarations(Right)}


RIGHTS = array(Right, minItems=1, maxItems=RIGHTS_MAX)


def parse(value: object, label: Label) -> list[Right]:
    """Raises InvalidField, UnknownField."""
    if not isinstance(value, list) or not 1 <= len(value) <= RIGHTS_MAX:
        count = f"{len(value)} of them" if isinstance(value, list) else shown(value)
        raise InvalidField(f"{label} must be a list of 1 to {RIGHTS_MAX} rights; it is {count}")
    return [checked(Right, right, Label(f"{label.path}[{index}]", label.noun)) for index, right in enumerate(value)]


class Need(NamedTuple):
    """The right that a call needs. Without a group: for all groups of the topic. Without a topic: for the whole
    service."""

    verb: Verb
    topic: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        group = "" if self.group is None else f" and group {quoted(self.group)}"
        place = "all topics" if self.topic is None else f"topic {quoted(self.topic)}{group}"
        return f"'{self.verb}' for {place}"


def allow(rights: Sequence[Right], need: Need) -> bool:
    allowing = any(_allows(right, need) for right in rights if not right.deny)
    return allowing and not any(_denies(right, need) for right in rights if right.deny)


def allow_somewhere(rights: Sequence[Right], verb: Verb) -> bool:
    """Whether any right allows the verb. For lists, which show only what the caller may see."""
    named = [right for right in rights if verb in right.operations]
    is_barred = any(right.deny and right.topics == right.groups == ALL for right in named)
    return not is_barred and any(not right.deny for right in named)


def _allows(right: Right, need: Need) -> bool:
    if need.verb not in right.operations:
        return False
    if need.topic is None:
        return right.topics == right.groups == ALL
    if need.group is not None:
        return _matches(right.topics, need.topic) and _matches(right.groups, need.group)
    return _matches(right.topics, need.topic) and (right.groups == ALL or need.verb in ("produce", "consume"))


def _denies(right: Right, need: Need) -> bool:
    if need.topic is None and need.verb == "admin":
        return True  # it could make itself a token to which nothing is denied
    if need.verb not in right.operations:
        return False
    if need.topic is None:
        return True
    if need.group is not None:
        return _matches(right.topics, need.topic) and _matches(right.groups, need.group)
    return _matches(right.topics, need.topic) and (right.groups == ALL or need.verb != "consume")


def _matches(pattern: str, name: str) -> bool:
    """Whether the name matches the pattern. It matches each part at its first place, which is as good as any other, so
    the time grows only with the length of the name."""
    first, *parts = pattern.split(ALL)
    if not parts:
        return name == pattern
    *inner, last = parts
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    rest = name[len(first) : len(name) - len(last)]
    for part in inner:
        place = rest.find(part)
        if place < 0:
            return False
        rest = rest[place + len(part) :]
    return True
