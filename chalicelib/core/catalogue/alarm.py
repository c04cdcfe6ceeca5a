"""A group's alarm: thresholds on the number of ready messages and on the age of the oldest."""

from __future__ import annotations

from chalicelib.core.base.fields import Label, given, integer, optional, request
from chalicelib.core.base.limits import OFFSET_MAX, RETENTION_MS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.settings import AsGiven
from chalicelib.core.table.writes import Item

TOPIC = "decant.alarms"
"""The topic of alarms, created with the first one; otherwise like any other."""


@request
class Thresholds:
    """When the backlog is too long. If it reaches one of these thresholds, a message goes to the topic `decant.alarms`,
    and another once it is below all of them. Backlogs are checked every minute. The topic is created when first needed,
    and is like any other. The messages have the tag `raised` or `cleared`, the key `topic/group`, the properties
    `topic` and `group`, and as their body JSON with `topic`, `group`, `state`, `ready`, `age_ms`, `thresholds` and
    `at_ms`. New thresholds replace both old ones. An object without any removes the alarm, and clears it if it was
    raised.

    ready: Messages that are ready.
    age_ms: How long ago the oldest ready message was stored, in milliseconds."""

    ready: int | None = optional(integer(1, OFFSET_MAX, examples=[10000]))
    age_ms: int | None = optional(integer(1, RETENTION_MS_MAX, examples=[600000]))


class Alarm(AsGiven):
    """`given`: the thresholds that are set, by their names."""

    def is_crossed(self, ready: int, age_ms: int) -> bool:
        """Whether either threshold is reached."""
        backlog = {"ready": ready, "age_ms": age_ms}
        return any(backlog[name] >= threshold for name, threshold in self.given.items())


def parse(data: object, label: Label) -> Alarm:
    return Alarm(given(Thresholds, data, label))


RAISED, CLEARED = "raised", "cleared"


@record
class AlarmState:
    """Whether a group's alarm is raised. `number` counts changes. `at_ms`: the time of the change, later than that of
    the previous one whatever the clocks say."""

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
