"""Whether a group's alarm is raised, and the write that changes it. Attributes:

    n      counts changes; each demands the one that it has seen
    state  `raised` or `cleared`
    at     when it changed, ms; later than the change before, whatever the clocks say
    by     8 bytes that make it this change

A change and the message that tells of it are one transaction: there is no change without its message, no message
without its change, and of two that see one crossing only one gets through. The message is stored as one that waits and
is due at `at`, so it is delivered once, by whoever comes first, after those of the changes before it (see
`delays.decision`).
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from chalicelib.base.message import Message
from chalicelib.catalogue.alarm import TOPIC
from chalicelib.catalogue.group import Group
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Equals, Guard, Item, Key, Set, Write

RAISED, CLEARED = "raised", "cleared"


@dataclass(frozen=True, slots=True)
class AlarmState:
    number: int = 0
    state: str = CLEARED
    at_ms: int = 0

    @classmethod
    def of(cls, item: Item | None) -> AlarmState:
        return cls(item["n"], item["state"], item["at"]) if item else cls()

    @property
    def is_raised(self) -> bool:
        return self.state == RAISED

    def next(self, state: str, now: int) -> AlarmState:
        return AlarmState(self.number + 1, state, max(now, self.at_ms + 1))


def change(key: Key, state: AlarmState, by: bytes) -> Write:
    """Makes this the group's state, right after the one before it. `by`: what it knows itself by."""
    same: Guard = Equals(("n",), state.number - 1) if state.number > 1 else Absent(("n",))
    made = {"n": state.number, "state": state.state, "at": state.at_ms, "by": by}
    return Write(
        key,
        (same,),
        tuple(Set((name,), value) for name, value in made.items()),
        landed=lambda before: before is not None and before["by"] == by,
    )


def is_told(topic: str, state: AlarmState) -> bool:
    """Whether the change is worth a message. That a backlog of alarms is gone is not told: the message would be the
    next backlog, and so on for as long as somebody reads it."""
    return topic != TOPIC or state.is_raised


def message(topic: str, group: Group, state: AlarmState, ready: int, age_ms: int) -> Message:
    """What tells of a change. `ready` and `age_ms`: what was measured."""
    told = {
        "topic": topic,
        "group": group.name,
        "state": state.state,
        "ready": ready,
        "age_ms": age_ms,
        "thresholds": group.alarm.given if group.alarm else None,
        "at_ms": state.at_ms,
    }
    place = {"topic": topic, "group": group.name}
    return Message(orjson.dumps(told), True, f"{topic}/{group.name}", state.state, place, deliver_at_ms=state.at_ms)


def alarm_key(group: Group) -> Key:
    return keys.alarm(group.topic_id, group.name, group.id)
