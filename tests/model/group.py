"""The model of a group: its settings, and their effects. A rate, an alarm and a filter are optional."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from chalicelib.core.base.limits import BACKOFF_MS, CLOCKS_APART_MS, SECOND_MS
from tests.model.cursor import Cursor
from tests.model.values import NEVER_MS, Json

DEFAULTS: Json = {
    "start": "earliest",
    "mode": "clustering",
    "invisible_ms": 30_000,
    "max_attempts": 16,
    "max_in_flight": 1_000,
    "backoff_ms": list(BACKOFF_MS),
    "paused": False,
    "ordered": False,
    "delay_ms": 0,
    "rate_limit": None,
    "filter": None,
    "alarm": None,
    "alarm_state": None,
    "push": None,
    "dead_letters": None,
    "settle_by": "receipt",
}
NULLABLE = ("dead_letters", "max_attempts")

Place = tuple[int, int]
"""A queue and an offset."""


@dataclass
class Window:
    """The count of messages that a group with a rate has taken since `began_ms`. A window follows the one before it
    without a gap, or begins with the first message after a pause."""

    began_ms: int | None = None
    taken: int = 0

    def left(self, rate: float, now: int) -> int:
        return _burst(rate) if self._is_over(rate, now) else max(0, _burst(rate) - self.taken)

    def take(self, count: int, rate: float, now: int) -> None:
        if not count:
            return
        if self._is_over(rate, now):
            follows = self.began_ms is not None and now < self.began_ms + 2 * _length_ms(rate)
            self.began_ms = self.end_ms(rate) if follows else now
            self.taken = 0
        self.taken += count

    def end_ms(self, rate: float) -> int:
        return (self.began_ms or 0) + _length_ms(rate)

    def _is_over(self, rate: float, now: int) -> bool:
        return self.began_ms is None or now >= self.end_ms(rate)


def _burst(rate: float) -> int:
    """The messages of a second, and at least one."""
    return max(1, math.floor(rate))


def _length_ms(rate: float) -> int:
    return round(_burst(rate) * SECOND_MS / rate)


@dataclass
class Alarm:
    state: str = "cleared"
    at_ms: int = 0


@dataclass
class Group:
    """`id` names one incarnation of the group, over all topics. `events`: of each message what was noted, in order."""

    id: int
    name: str
    settings: Json
    cursors: list[Cursor]
    purged_at_ms: int | None = None
    last_purged_at_ms: int = 0
    """The time of the newest purge, even if a reset lifted it since."""
    window: Window = field(default_factory=Window)
    alarm: Alarm = field(default_factory=Alarm)
    events: dict[Place, list[Json]] = field(default_factory=dict)

    def change(self, given: Json) -> None:
        """A setting that is null was not given, but for two that have such a value."""
        kept = {name: value for name, value in given.items() if value is not None or name in NULLABLE}
        if kept.get("alarm") is not None:
            kept["alarm"] = {name: most for name, most in kept["alarm"].items() if most is not None} or None
        self.settings |= kept
        self.show_alarm()

    @property
    def ordered(self) -> bool | str:
        ordered: bool | str = self.settings["ordered"]
        return ordered

    @property
    def rate(self) -> float | None:
        rate: float | None = self.settings["rate_limit"]
        return rate

    @property
    def max_attempts(self) -> int | None:
        most: int | None = self.settings["max_attempts"]
        return most

    def wait_ms(self, attempt: int) -> int:
        """Before the retry after this attempt. A message that was redriven waits as after the first."""
        backoff, attempt = self.settings["backoff_ms"], max(attempt, 1)
        if isinstance(backoff, list):
            return int(backoff[min(attempt, len(backoff)) - 1])
        return int(min(backoff["initial_ms"] * backoff["multiplier"] ** (attempt - 1), backoff["max_ms"]))

    # -- purges and filters -------------------------------------------------------------------------------------------

    def purged_by(self, now: int, has_delayed: bool) -> int:
        """The instant that a purge counts for: where messages may wait, what any clock calls earlier."""
        lead_ms = CLOCKS_APART_MS if has_delayed else -CLOCKS_APART_MS - 1
        self.last_purged_at_ms = max(now + lead_ms, self.last_purged_at_ms + 1)
        return self.last_purged_at_ms

    def unwanted(self, queue: int, log: list[Json]) -> set[int]:
        """The messages that pops pass without delivering them, if they were not taken before."""
        purged_at_ms, rule = self.cursors[queue].purged_at_ms, self.settings["filter"]
        return {
            message["offset"]
            for message in log
            if (rule and message["tag"] not in rule["tags"])
            or message.get("sent_at_ms", NEVER_MS) <= (purged_at_ms or 0)
        }

    # -- alarms -------------------------------------------------------------------------------------------------------

    def show_alarm(self) -> None:
        self.settings["alarm_state"] = self.alarm.state if self.settings["alarm"] else None

    def check(self, topic: str, ready: int, age_ms: int, now: int) -> Json | None:
        """The message of a check of this backlog, if there is one."""
        thresholds, backlog = self.settings["alarm"], {"ready": ready, "age_ms": age_ms}
        is_crossed = any(backlog[each] >= most for each, most in (thresholds or {}).items())
        if is_crossed == (self.alarm.state == "raised"):
            return None
        self.alarm = Alarm("raised" if is_crossed else "cleared", max(now, self.alarm.at_ms + 1))
        self.show_alarm()
        told = {"state": self.alarm.state, "thresholds": thresholds, "at_ms": self.alarm.at_ms}
        return {"topic": topic, "group": self.name, **told, **backlog}

    # -- traces -------------------------------------------------------------------------------------------------------

    def standing(self, place: Place, now: int) -> Json:
        """The state of a message, as its trace shows it."""
        cursor = self.cursors[place[0]]
        state, attempts, until_ms = cursor.state(place[1], now)
        events = [*self.events.get(place, [])]
        if state == "dead":
            letter = cursor.letters[place[1]]
            reason = {"reason": letter.reason} if letter.reason else {}
            events.append({"event": "dead", "at_ms": letter.to_ms, "attempt": letter.attempts, **reason})
        whose = {"group": self.name, "consumer_id": None}
        return {**whose, "state": state, "attempts": attempts, "until_ms": until_ms, "events": events}
