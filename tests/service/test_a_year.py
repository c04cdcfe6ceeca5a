"""A year in the life of a topic. Time jumps, DynamoDB removes what has expired, and instances sleep for days and weeks
between two calls, with all that they have cached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from chalicelib.api import Api
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, MINUTE_MS
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

WEEKS = 54
QUEUES = 2
BIG = Random(1).randbytes(1_500).hex()
"""Too big for a segment, however it is packed."""
READERS = {"weekly": 1, "monthly": 4, "seldom": 9}
"""Each group pops when so many weeks have passed."""
RETENTION_DAYS = {0: 30, 10: 45, 25: 70}
"""From which week on the topic keeps messages for so long: it is raised twice."""


@dataclass
class Year:
    """`due_ms`: when each message is to be stored. `ends_ms`: when those that are stored are over. `got`: by group, the
    messages in the order in which they came."""

    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    due_ms: dict[str, int] = field(default_factory=dict)
    retention_ms: int = 0
    ends_ms: dict[str, int] = field(default_factory=dict)
    got: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in READERS})

    def __post_init__(self) -> None:
        self.random = Random(1)
        self.sleepers = [instance(self.store, self.clock, number) for number in range(3)]
        self.keep_for(RETENTION_DAYS[0])
        for name in READERS:
            self.sleepers[0].put_group("t", name, {"invisible_ms": MINUTE_MS})

    def keep_for(self, days: int) -> None:
        self.retention_ms = days * DAY_MS
        self.random.choice(self.sleepers).put_topic("t", {"queues": QUEUES, "retention_ms": self.retention_ms})

    def anybody(self) -> Api:
        """One that has slept, or a new one."""
        return self.random.choice([*self.sleepers, instance(self.store, self.clock, self.random.randrange(1 << 30))])

    def produce(self, week: int) -> None:
        for number in range(12):
            body = f"{week}.{number}"
            delay_ms = self.random.choice((0, 0, 0, DAY_MS, 40 * DAY_MS, 200 * DAY_MS, 365 * DAY_MS))
            padding = self.random.choice(("", "", BIG))
            message: dict[str, Any] = {"body": f"{body}|{padding}", "delay_ms": delay_ms}
            if self.random.random() < 0.3:
                message |= {"dedup_id": body}
            self.anybody().produce("t", {"messages": [message]})
            self.due_ms[body] = self.clock.ms + delay_ms

    def pass_week(self) -> None:
        """Sweeps find, day by day, what is due."""
        for _ in range(7):
            self.clock.sleep(DAY_MS)
            self.sweep()

    def sweep(self) -> None:
        sweeps = self.anybody().service.sweeps
        for sweep in (sweeps.forward, sweeps.revive, sweeps.expire):
            sweep()
        self.note_stored()
        self.store.drop_expired(self.clock.ms)

    def note_stored(self) -> None:
        for body, due_ms in self.due_ms.items():
            if due_ms <= self.clock.ms and body not in self.ends_ms:
                self.ends_ms[body] = self.clock.ms + self.retention_ms

    def pop(self, group: str) -> set[str]:
        came = [*self._popped(group)]
        self.got[group] += came
        return {*came}

    def _popped(self, group: str) -> Iterator[str]:
        while messages := self.anybody().pop("t", group, {"max_messages": 256, "fill": True})["messages"]:
            yield from (each["body"].split("|")[0] for each in messages)
            assert not self.anybody().ack("t", group, {"receipts": [each["receipt"] for each in messages]})["failed"]

    def readable(self, group: str) -> set[str]:
        """Messages that have not expired, and that the group has not got."""
        self.note_stored()
        return {body for body, end_ms in self.ends_ms.items() if end_ms > self.clock.ms} - {*self.got[group]}


def test_for_a_year_every_group_gets_what_is_not_over_once() -> None:
    year = Year()
    for week in range(WEEKS):
        if days := RETENTION_DAYS.get(week):
            year.keep_for(days)
        year.produce(week)
        year.pass_week()
        for group, every in READERS.items():
            if (week + 1) % every == 0:
                wanted = year.readable(group)
                assert year.pop(group) == wanted, f"{group} in week {week}"
    assert all(len(came) == len({*came}) for came in year.got.values())
    assert year.ends_ms.keys() - year.got["weekly"] == set()
    assert year.ends_ms.keys() - year.got["seldom"], "some were over before"


def test_a_group_is_reset_to_any_offset_and_instant_of_many_segments() -> None:
    """By an instance that has slept, for one that has, and for a new one."""
    store, clock = MemoryStore(), Clock()
    slept, other = instance(store, clock), instance(store, clock, 1)
    slept.put_topic("t", {"queues": 1, "retention_ms": 30 * DAY_MS})
    slept.put_group("t", "g", {})
    stored_ms = []
    for _ in range(150):
        clock.sleep(HOUR_MS // 2)
        stored_ms.append(clock.ms)
        slept.produce("t", {"messages": [{"body": "x"}]})
    other.pop("t", "g", {"max_messages": 100})
    for offset in range(0, 150, 7):
        clock.sleep(MINUTE_MS)
        for to in ({"queue": 0, "offset": offset}, {"at_ms": stored_ms[offset]}, {"at_ms": stored_ms[offset] - 1}):
            for api in (other, instance(store, clock, offset)):
                slept.reset_group("t", "g", {"to": to})
                assert [each["offset"] for each in api.pop("t", "g", {"max_messages": 1})["messages"]] == [offset], to
