"""The model of the service: topics, receipts, the effects of calls on messages, and the answers of the service about
them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model import letters
from tests.model.cursor import EXPIRED, INVALID, LOST, Cursor, Ticket
from tests.model.group import Group, Place
from tests.model.letters import ALARMS
from tests.model.topic import Topic
from tests.model.values import Json


@dataclass
class Model:
    topics: dict[str, Topic] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    """All receipts that the service returned, in order."""
    ids: itertools.count[int] = field(default_factory=itertools.count)
    is_small: bool = False
    """Whether segments and retry pages are."""
    caller: int = 0
    calls: int = 0
    """The instance of the current step, and the number of calls so far."""

    def begin(self, instance: int) -> None:
        self.caller, self.calls = instance, self.calls + 1

    def missing(self, topic: str, group: str | None = None) -> tuple[int, str] | None:
        """The error when the topic or the group does not exist; None: both do."""
        if topic not in self.topics:
            return 404, "TopicNotFound"
        if group is not None and group not in self.topics[topic].groups:
            return 404, "GroupNotFound"
        return None

    def groups(self) -> Iterator[tuple[Topic, Group]]:
        for topic in self.topics.values():
            for group in topic.groups.values():
                yield topic, group

    # -- receipts -----------------------------------------------------------------------------------------------------

    def place(self, group: Group, receipt: str) -> tuple[Ticket, Cursor] | None:
        """The message that a receipt names; None: none of this group."""
        ticket = self.tickets.get(receipt)
        if ticket is None or ticket.group_id != group.id:
            return None
        return ticket, group.cursors[ticket.queue]

    def ack(self, group: Group, receipts: list[str], now: int) -> list[str]:
        """Acks them, and returns the worth of each."""
        for receipt in receipts:
            if place := self.place(group, receipt):
                place[1].ack(place[0], receipt, now)
        return [self.worth(group, receipt, now) for receipt in receipts]

    def worth(self, group: Group, receipt: str, now: int) -> str:
        """After all receipts of its call are acked."""
        place = self.place(group, receipt)
        return place[1].worth(place[0], receipt, now) if place else INVALID

    def held(self, group: Group, receipts: list[str], now: int) -> dict[str, tuple[Ticket, Cursor]]:
        """Those of the receipts that are good for their message."""
        places = {receipt: self.place(group, receipt) for receipt in receipts}
        return {
            receipt: place for receipt, place in places.items() if place and place[1].is_held(place[0], receipt, now)
        }

    def lost(self, group: Group, receipt: str) -> str:
        return LOST if self.place(group, receipt) else INVALID

    def newest(self, group: Group) -> list[str]:
        """The receipts of all messages that are leased, or were and have not been taken since."""
        return [hold.receipt for cursor in group.cursors for _, hold in sorted(cursor.holds.items()) if hold.receipt]

    # -- what dies ----------------------------------------------------------------------------------------------------

    def doomed(self, group: Group, queue: int, now: int) -> list[int]:
        """The messages that a look into the queue buries."""
        return group.cursors[queue].doomed(now, group.max_attempts) if self.can_bury(group) else []

    def can_bury(self, group: Group) -> bool:
        target = group.settings["dead_letters"]
        return target is None or target["topic"] in self.topics

    def bury(
        self, topic: Topic, group: Group, place: Place, now: int, reason: str = EXPIRED, from_ms: int | None = None
    ) -> None:
        """Into the dead letters of the group, or into the topic for dead messages."""
        (queue, offset), target = place, group.settings["dead_letters"]
        cursor = group.cursors[queue]
        if target is None:
            cursor.bury(offset, now if from_ms is None else from_ms, now, reason)
            return
        coming = letters.of_dead(topic.logs[queue][offset], group, cursor.leave(offset), reason, self.calls)
        self.topics[target["topic"]].coming.append(coming)
        self.topics[target["topic"]].delays(self.caller, now)

    def give_up(
        self, topic: Topic, group: Group, place: Place, now: int, delay_ms: int | None, reason: str, is_last: bool
    ) -> None:
        """Nacks a message, or buries it after the last attempt. While it cannot be buried, it waits for its retry."""
        cursor = group.cursors[place[0]]
        attempt, most = cursor.attempts_of(place[1]), group.max_attempts
        if (is_last or (most is not None and attempt >= most)) and self.can_bury(group):
            self.bury(topic, group, place, now, reason)
        else:
            cursor.nack(place[1], now + (group.wait_ms(attempt) if delay_ms is None else delay_ms))

    # -- traces -------------------------------------------------------------------------------------------------------

    def note(self, topic: Topic, group: Group, place: Place, event: Json) -> None:
        if topic.options["trace"]:
            group.events.setdefault(place, []).append(event)

    def check_alarms(self, now: int) -> int:
        """How many alarms have changed. Their messages are on their way."""
        changes = 0
        for topic, group in sorted(self.groups(), key=lambda each: each[0].name):
            seen = details(topic, group, now)
            if told := group.check(topic.name, seen["ready"], now - oldest_ready(seen, now), now):
                changes += 1
                if (topic.name, told["state"]) != (ALARMS, "cleared"):
                    alarms = self.topics.get(ALARMS) or Topic(
                        next(self.ids), ALARMS, [[], [], [], []], created_at_ms=now
                    )
                    self.topics[ALARMS] = alarms
                    alarms.delays(self.caller, now)
                    alarms.coming.append(letters.of_alarm(told, now))
        return changes


# -- what the service says --------------------------------------------------------------------------------------------


def details(topic: Topic, group: Group, now: int) -> Json:
    """The answer of `GET` about a group, except when it was created."""
    queues = [progress(topic, group.cursors[queue], queue, now) for queue in range(topic.readers)]
    ready, in_flight = (sum(queue[field] for queue in queues) for field in ("ready", "in_flight"))
    return {
        "topic": topic.name,
        "group": group.name,
        **group.settings,
        "purged_at_ms": group.purged_at_ms,
        "ready": ready,
        "in_flight": in_flight,
        "retrying": sum(cursor.retrying(now) for cursor in group.cursors[: topic.readers]),
        "delayed": 0,
        "dead": sum(len(cursor.letters) for cursor in group.cursors),
        "lag": ready + in_flight,
        "queues": queues,
    }


def progress(topic: Topic, cursor: Cursor, queue: int, now: int) -> Json:
    """The progress in a queue. A message that was never delivered and has expired is not ready; one whose time to live
    is over is, until a pop passes it."""
    log, first = topic.logs[queue], topic.first(queue, now)
    ready = [offset for offset in cursor.ready(now, len(log)) if offset >= first or offset in cursor.holds]
    return {
        "queue": queue,
        "committed_offset": cursor.committed(),
        "next_offset": cursor.next,
        "end_offset": len(log),
        "ready": len(ready),
        "in_flight": cursor.in_flight(now),
        "oldest_ready_at_ms": log[ready[0]]["stored_at_ms"] if ready else None,
        "last_pop_at_ms": cursor.last_pop_at_ms,
        "last_consumer_id": cursor.last_consumer_id,
    }


def oldest_ready(seen: Json, now: int) -> int:
    oldest: list[int] = [each["oldest_ready_at_ms"] for each in seen["queues"] if each["ready"]]
    return min(oldest, default=now)


def forgiven(topic: Topic, group: Group, seen: Json, now: int) -> Json:
    """The same answer. Where the first ready message may be removed, the time of any behind it will do."""
    queues = []
    for each, cursor in zip(seen["queues"], group.cursors, strict=False):
        queue, log = each["queue"], topic.logs[each["queue"]]
        ready = cursor.ready(now, len(log))
        known = progress(topic, cursor, queue, now)
        if known["ready"] and topic.may_be_gone(queue, ready[0], now):
            assert each["oldest_ready_at_ms"] in (None, *(message["stored_at_ms"] for message in log[ready[0] :]))
            each = {**each, "oldest_ready_at_ms": known["oldest_ready_at_ms"]}
        queues.append(each)
    return {**seen, "queues": queues}


def demand_group(topic: Topic, group: Group, seen: Json, now: int) -> None:
    """The answer about a group is as the model has it."""
    seen, known = forgiven(topic, group, seen, now), details(topic, group, now)
    wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
    assert not wrong, f"answered and expected: {wrong}"
    assert seen.keys() == {*known, "created_at_ms"}


def altered(text: str, place: int) -> str:
    """Another character at this place, or one more behind the last."""
    if place >= len(text):
        return text + "="
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
