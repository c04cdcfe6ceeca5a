"""The model of tokens: what their rights allow, which of their secrets are valid, and what an instance may still
remember."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.values import Json

REMEMBERED_MS = 5_000
"""How long an instance may remember an earlier state of a token."""
SECRETS_MAX = 10
OLD_VALID_MS = 86_400_000
OLD_VALID_MS_MAX = 7 * OLD_VALID_MS
LISTED_MS = 86_400_000
"""How long an expired token is listed at least."""

GROUP, TOPIC, SEND, REPLY, SERVICE, ANYWHERE, PUBLIC = (
    "group",
    "topic",
    "send",
    "reply",
    "service",
    "anywhere",
    "public",
)
"""The scopes of operations: a group; a topic and all its groups; a topic alone, for a send or a reply; everything;
everything that the caller may see; or none, as they need no token."""


# -- what rights allow ------------------------------------------------------------------------------------------------


def allows(rights: list[Json], verb: str, place: str, topic: str = "", group: str = "") -> bool:
    """Whether these rights let their holder do this."""
    named = [right for right in rights if verb in right["operations"]]
    if place == SERVICE and verb == "admin" and any(right["deny"] for right in rights):
        return False
    return any(_grants(right, place, topic, group) for right in named if not right["deny"]) and not any(
        _refuses(right, place, topic, group) for right in named if right["deny"]
    )


def _grants(right: Json, place: str, topic: str, group: str) -> bool:
    has_topic, has_all_groups = _matches(right["topics"], topic), _matches_all(right["groups"])
    return {
        GROUP: has_topic and _matches(right["groups"], group),
        TOPIC: has_topic and has_all_groups,
        SEND: has_topic,
        REPLY: has_topic,
        SERVICE: _matches_all(right["topics"]) and has_all_groups,
        ANYWHERE: True,
    }[place]


def _refuses(right: Json, place: str, topic: str, group: str) -> bool:
    has_topic, has_all_groups = _matches(right["topics"], topic), _matches_all(right["groups"])
    return {
        GROUP: has_topic and _matches(right["groups"], group),
        TOPIC: has_topic,
        SEND: has_topic,
        REPLY: has_topic and has_all_groups,
        SERVICE: True,
        ANYWHERE: _matches_all(right["topics"]) and has_all_groups,
    }[place]


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _matches_all(pattern: str) -> bool:
    return pattern.strip("*") == ""


def as_granted(given: Json) -> Json:
    """A right as the service shows it."""
    right = {"groups": "*", "deny": False, **given}
    return {**right, **{name: "*" for name in ("topics", "groups") if _matches_all(right[name])}}


# -- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A token from this instant on, by a change through this instance. `secrets`: until when each text is valid; None:
    for as long as the token. None: it is deleted."""

    at_ms: int
    instance: int
    secrets: dict[str, int | None] | None


@dataclass
class Token:
    """`known`: by instance, the oldest version that it can still remember, as far as answers have told."""

    id: str
    name: str
    rights: list[Json]
    expires_at_ms: int | None
    created_at_ms: int
    versions: list[Version]
    known: dict[int, int] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, int | None] | None:
        return self.versions[-1].secrets

    def stands(self, now: int) -> bool:
        """Whether it is neither deleted nor expired."""
        return self.secrets is not None and (self.expires_at_ms is None or now < self.expires_at_ms)

    def as_json(self) -> Json:
        return {
            "token_id": self.id,
            "name": self.name,
            "rights": self.rights,
            "expires_at_ms": self.expires_at_ms,
            "created_at_ms": self.created_at_ms,
            "access_key_id": f"DCTK{self.id}",
        }

    def rotated(self, old_valid_ms: int, now: int) -> dict[str, int | None]:
        """Until when the older secrets are valid after a rotation."""
        until_ms = now + old_valid_ms
        older = {text: until_ms if end is None else min(end, until_ms) for text, end in (self.secrets or {}).items()}
        return {text: end for text, end in older.items() if now < end}

    def change(self, now: int, instance: int, secrets: dict[str, int | None] | None) -> None:
        self.versions.append(Version(now, instance, secrets))
        self.known[instance] = len(self.versions) - 1

    def believes(self, instance: int, text: str, now: int) -> dict[int, bool]:
        """By version that an instance may go by, whether the text is then a valid token."""
        return {number: self._is_valid(number, text, now) for number in self._remembered(instance, now)}

    def learn(self, instance: int, text: str, now: int, is_valid: bool) -> None:
        """An instance has said whether the text is a valid token, as it may."""
        fitting = [number for number, valid in self.believes(instance, text, now).items() if valid == is_valid]
        self.known[instance] = fitting[0]

    def _remembered(self, instance: int, now: int) -> Iterator[int]:
        last = len(self.versions) - 1
        for number in range(self.known.get(instance, 0), last + 1):
            if number == last or self.versions[number + 1].at_ms >= now - REMEMBERED_MS:
                yield number

    def _is_valid(self, number: int, text: str, now: int) -> bool:
        secrets = self.versions[number].secrets
        if secrets is None or text not in secrets or (self.expires_at_ms is not None and now >= self.expires_at_ms):
            return False
        end = secrets[text]
        return end is None or now < end
