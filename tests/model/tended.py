"""The model of what operators set and see: rates, alarms, full queues, messages that move to another topic when they
are dead, and what happened to each message."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from chalicelib.core.base.limits import SECOND_MS
from tests.model.cursor import Cursor
from tests.model.model import Group, Json, Topic

ALARMS = "decant.alarms"
BELIEVED_MS = 5_000
"""How long an instance may cache what it read about a topic."""

LOOK_MS = SECOND_MS
"""For so long an instance goes by what it read of the depth of queues."""
REASON = "decant.reason"

Place = tuple[int, int]
"""A queue and an offset."""

Counted = tuple[str, str, str]
"""What, in which topic, and in which group."""


@dataclass
class Window:
    """What a group with a rate has taken since `began_ms`. A window follows the one before it without a gap, or begins
    with the first message after a pause."""

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
class TendedGroup(Group):
    """`events`: of each message what was noted, in order."""

    window: Window = field(default_factory=Window)
    alarm: Alarm = field(default_factory=Alarm)
    events: dict[Place, list[Json]] = field(default_factory=dict)

    def set(self, given: Json) -> None:
        """What is null was not given, but for two settings that have such a value."""
        kept = {name: value for name, value in given.items() if value is not None or name in NULLABLE}
        if kept.get("alarm") is not None:
            kept["alarm"] = {name: most for name, most in kept["alarm"].items() if most is not None} or None
        self.settings |= kept
        self.show_alarm()

    def show_alarm(self) -> None:
        self.settings["alarm_state"] = self.alarm.state if self.settings["alarm"] else None

    def check(self, topic: str, name: str, ready: int, age_ms: int, now: int) -> Json | None:
        """What a check of this backlog tells, if anything."""
        thresholds, backlog = self.settings["alarm"], {"ready": ready, "age_ms": age_ms}
        is_crossed = any(backlog[each] >= most for each, most in (thresholds or {}).items())
        if is_crossed == (self.alarm.state == "raised"):
            return None
        self.alarm = Alarm("raised" if is_crossed else "cleared", max(now, self.alarm.at_ms + 1))
        self.show_alarm()
        told = {"state": self.alarm.state, "thresholds": thresholds, "at_ms": self.alarm.at_ms}
        return {"topic": topic, "group": name, **told, **backlog}

    def wait_ms(self, attempt: int) -> int:
        """Before the retry after this attempt."""
        backoff = self.settings["backoff_ms"]
        if isinstance(backoff, list):
            return int(backoff[min(attempt, len(backoff)) - 1])
        return int(min(backoff["initial_ms"] * backoff["multiplier"] ** (attempt - 1), backoff["max_ms"]))


NULLABLE = ("dead_letters", "max_attempts")


class Slow(NamedTuple):
    committed: int
    groups: frozenset[str]


@dataclass
class Look:
    """What an instance knows of the depths of queues."""

    at_ms: int
    slow: list[Slow]
    ends: list[int]

    def waiting(self, queue: int) -> int:
        return self.ends[queue] - self.slow[queue].committed


@dataclass(frozen=True)
class Coming:
    """A message on its way into a log. `lane`: where it comes from, if it has no key. `order`: among those of one call
    and one queue. `due_ms`: not before. `is_late`: it was not due when it was sent, and waits."""

    shown: Json
    lane: tuple[str, int] | None
    order: tuple[int, int, int]
    due_ms: int = 0
    is_late: bool = False


@dataclass
class TendedTopic(Topic):
    """`settings`: as an answer shows them."""

    settings: Json = field(default_factory=dict)
    looks: dict[int, Look] = field(default_factory=dict)
    """By instance."""
    coming: list[Coming] = field(default_factory=list)
    first_delay: tuple[int, int] | None = None
    """Which instance let a message wait here for the first time, and when."""
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)

    def full(self, instance: int, now: int) -> dict[int, Look]:
        """The queues that an instance takes no messages for, after it has looked if its last look is too old."""
        depth_max = self.settings["max_depth"]
        if depth_max is None:
            return {}
        look = self.looks.get(instance)
        if look is None or now - look.at_ms >= LOOK_MS:
            look = self.looks[instance] = Look(now, self._slowest(), [len(log) for log in self.logs])
        return {queue: look for queue in range(len(look.slow)) if look.waiting(queue) >= depth_max}

    def _slowest(self) -> list[Slow]:
        if not self.groups:
            return []
        slowest: list[Slow] = []
        for queue in range(len(self.logs)):
            committed = {name: group.cursors[queue].committed() for name, group in self.groups.items()}
            least = min(committed.values())
            slowest.append(Slow(least, frozenset(name for name, own in committed.items() if own == least)))
        return slowest

    def note(self, instance: int, queue: int) -> None:
        """The instance has stored something here, and knows the end."""
        if self.settings["max_depth"] is not None:
            self.looks[instance].ends[queue] = len(self.logs[queue])

    def delays(self, instance: int, now: int) -> None:
        self.first_delay = self.first_delay or (instance, now)

    def is_known_to_delay(self, instance: int, now: int) -> bool:
        """Other instances learn it within five seconds."""
        by, at_ms = self.first_delay or (instance, now)
        return instance == by or now > at_ms + BELIEVED_MS

    def late(self, now: int | None) -> list[Coming]:
        """What may wait; of it, what is due by now."""
        return [each for each in self.coming if each.is_late and (now is None or each.due_ms <= now)]

    def meet_coming(self, message: Json, now: int) -> None:
        """A message that nobody sent has come into the log: one that was on its way."""
        queue = message["queue"]
        new = {"message_id", "queue", "offset", "stored_at_ms", "sent_at_ms"}
        shown = _with_told({name: value for name, value in message.items() if name not in new})
        [coming] = [each for each in self.coming if each.shown == shown]
        before = [each for each in self.coming if each.order[:2] == coming.order[:2] and each.order < coming.order]
        assert not [each for each in before if each.shown["key"] == coming.shown["key"]], "out of order"
        assert coming.due_ms <= message["stored_at_ms"] <= now
        assert message["sent_at_ms"] <= now
        assert message["offset"] == len(self.logs[queue])
        if coming.lane is None:
            assert self.queue_of_key.setdefault(message["key"], queue) == queue
        else:
            assert self.lanes.setdefault(coming.lane, queue) == queue
        self.coming.remove(coming)
        self.logs[queue].append(message)


def _with_told(shown: Json) -> Json:
    """The body of an alarm is compared as what it says."""
    return {**shown, "body": json.loads(shown["body"])} if shown["topic"] == ALARMS else shown


def alarm_coming(told: Json, now: int) -> Coming:
    place = {"topic": told["topic"], "group": told["group"]}
    about = {"key": "{topic}/{group}".format(**place), "tag": told["state"], "properties": place}
    at_ms = told["at_ms"]
    return Coming({"topic": ALARMS, "body": told, **about}, None, (0, 0, at_ms), at_ms, is_late=at_ms > now)


def moved_coming(message: Json, name: str, group: TendedGroup, attempt: int, reason: str, call: int) -> Coming:
    """A dead message as it comes into the topic for such."""
    target, own = group.settings["dead_letters"], dict[str, str](message["properties"])
    own.pop(REASON, None)
    first = {"sqs:id": message["message_id"], "sqs:sent": str(message.get("sent_at_ms", message["stored_at_ms"]))}
    last = {
        "sqs:source": target.get("source", name),
        "sqs:origin": f"{message['queue']}:{message['offset']}",
        "sqs:count": str(attempt + int(own.get("sqs:count", 0))),
    }
    why = {REASON: reason} if reason else {}
    kept: Json = {field: message[field] for field in ("key", "tag", "body", "body_base64") if field in message}
    properties: Json = {**first, **own, **last, **why}
    shown: Json = {**kept, "topic": target["topic"], "properties": properties}
    lane = (message["topic"], message["queue"]) if message["key"] is None else None
    return Coming(shown, lane, (call, message["queue"], message["offset"]))


def standing(group: TendedGroup, name: str, place: Place, now: int) -> Json:
    """Where a message stands in a group, as its trace says."""
    cursor = group.cursors[place[0]]
    state, attempts, until_ms = _state(cursor, place[1], now)
    events = [*group.events.get(place, [])]
    if state == "dead":
        letter = cursor.letters[place[1]]
        reason = {"reason": letter.reason} if letter.reason else {}
        events.append({"event": "dead", "at_ms": letter.to_ms, "attempt": letter.attempts, **reason})
    whose = {"group": name, "consumer_id": None}
    return {**whose, "state": state, "attempts": attempts, "until_ms": until_ms, "events": events}


def _state(cursor: Cursor, offset: int, now: int) -> tuple[str, int | None, int | None]:
    hold = cursor.holds.get(offset)
    if hold is None and offset >= cursor.next:
        return "ready", None, None
    if hold is None:
        letter = cursor.letters.get(offset)
        return ("dead", letter.attempts, None) if letter else ("settled", None, None)
    if hold.until_ms <= now:
        return "ready", hold.attempt, None
    return "in_flight" if hold.receipt else "retrying", hold.attempt, hold.until_ms


@dataclass
class Counts:
    """What an instance has counted, by what, topic and group, and when it read the backlogs last."""

    messages: Counter[Counted] = field(default_factory=Counter)
    read_at_ms: int | None = None
    backlogs: dict[Counted, float] = field(default_factory=dict)
