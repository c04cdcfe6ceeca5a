"""Alarms: sends a message when a group's backlog reaches a threshold, and when it is below all of them again.

| failure | result |
| --- | --- |
| a check crashes before its transaction | nothing has happened: the next check does the same |
| a check crashes after it | the message waits and is due: the next pop or sweep delivers it |
| two checks see one crossing | one transaction changes the state, the other is rejected |
| a check is slow, and the state has changed twice since | its transaction demands the state it started with |
| the topic of alarms is deleted | the message is deleted with it, or the next check creates the topic again |

A change and its message are one transaction, so neither exists without the other, and only one of two checks that see a
crossing succeeds. The message is stored as a delayed one that is due at once, so it is delivered once, after those of
earlier changes (see `delays.decision`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import orjson

from chalicelib.core.admin import Admin
from chalicelib.core.admin.groups import GroupDetails, StoredGroup
from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import ALARMS_TOPIC, CLEARED, RAISED, AlarmState
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.progress import of_group
from chalicelib.core.delays import Delays
from chalicelib.core.delays.decision import wait
from chalicelib.core.producing.produce import queue_of_key
from chalicelib.core.table.writes import Absent, Equals, Guard, Key, Refused, Write, sets
from chalicelib.core.telemetry.record import Backlog, measured
from chalicelib.core.upkeep.rounds import Troubles


class Alarms:
    def __init__(self, env: Env, delays: Delays, admin: Admin) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._telemetry = env.catalogue, env.telemetry
        self._delays, self._promoter = delays.writer, delays.promoter
        self._topics, self._groups = admin.topics, admin.groups

    def check(self, groups: Sequence[StoredGroup], ends: Sequence[Sequence[int]], troubles: Troubles) -> int:
        """Sends messages for the groups that have crossed a threshold. The groups and the ends of their queues may be
        stale. Returns the number of changes. Log lines, if enabled, show the backlog of each group."""
        now, is_told = self._runtime.now(), self._telemetry.tells_backlogs
        changes = 0
        for stored, own in zip(groups, ends, strict=True):
            if not is_calm(stored, own, now, is_told):
                with troubles.kept():
                    changes += self._check(stored.topic, stored.group)
            else:
                dead = sum(cursor.dead for cursor in stored.stored_cursors)
                measured(Backlog(stored.topic.name, stored.group.name, 0, dead, age_ms=0, is_raised=False))
        return changes

    def _check(self, topic: Topic, group: Group) -> bool:
        """Reads the state before it measures, since the measurement must not be older than the state that it
        changes."""
        standing = self._catalogue.alarm_state(group)
        try:
            details = self._groups.details(topic, group.name)
        except GroupNotFound:
            return False
        if details.group.id != group.id:
            return False  # another group of this name, left to the next check
        now = self._runtime.now()
        ready, age_ms = _backlog(details, now)
        is_crossed = details.group.alarm is not None and details.group.alarm.is_crossed(ready, age_ms)
        dead = sum(queue.dead for queue in details.queues) + details.left_dead
        measured(Backlog(topic.name, group.name, ready, dead, age_ms, is_crossed))
        if is_crossed == standing.is_raised:
            return False
        state = standing.next(RAISED if is_crossed else CLEARED, now)
        return self.announce(details.group, state, message(topic.name, details.group, state, ready, age_ms))

    def announce(self, group: Group, state: AlarmState, told: Message) -> bool:
        """Changes the state and sends the message. False: another check did so, or the topic of alarms is being
        deleted."""
        changing = change(group.alarm_key, state, self._runtime.entropy(ENTRY_ID_BYTES))
        with suppress(Refused, TopicNotFound):
            # Clearing an alarm on the topic of alarms sends no message, which would be the next backlog, endlessly.
            if told.properties["topic"] == ALARMS_TOPIC and not state.is_raised:
                self._store.write(changing)
                return True
            alarms = self._topic()
            queue = queue_of_key(told.key or "", alarms.writers(self._runtime.now()))
            [entry] = self._delays.entries(alarms, self._delays.waiting([(queue, told)]))
            self._store.write_together([changing, wait(alarms.id, queue, state.at_ms, entry)])
            with suppress(StoreUnavailable, TopicNotFound):  # the next pop or sweep will deliver it
                self._promoter.promote(alarms, queue)
            return True
        return False

    def _topic(self) -> Topic:
        try:
            return self._catalogue.current_topic(ALARMS_TOPIC)
        except TopicNotFound:
            return self._topics.put(ALARMS_TOPIC, {})[0]


def is_concerned(stored: StoredGroup) -> bool:
    """Whether the group has an alarm, or had one that was raised when it was removed."""
    return stored.group.has_alarm or stored.alarm_state.is_raised


def is_calm(stored: StoredGroup, ends: Sequence[int], now: int, is_told: bool = False) -> bool:
    """Whether the group is certainly below its thresholds, by an upper estimate without further reads. `is_told`:
    requires that no message is ready, so that its backlog is known too."""
    has_pages = any(cursor.pages for cursor in stored.cursors)
    if stored.alarm_state.is_raised or has_pages or stored.group.alarm is None:
        return False
    queues = of_group(stored.group, stored.cursors, [0] * len(ends), ends, now)
    ready = sum(queue.ready for queue in queues)
    return ready == 0 if is_told else not stored.group.alarm.is_crossed(ready, now if ready else 0)


def _backlog(details: GroupDetails, now: int) -> tuple[int, int]:
    """The number of ready messages, and the age of the oldest in ms."""
    oldest = [queue.oldest_ready_at_ms for queue in details.queues if queue.oldest_ready_at_ms is not None]
    return sum(queue.ready for queue in details.queues), max(0, now - min(oldest, default=now))


def change(key: Key, state: AlarmState, by: bytes) -> Write:
    """Sets the group's state, if the current one is its direct predecessor. `by` identifies this write."""
    same: Guard = Equals(("n",), state.number - 1) if state.number > 1 else Absent(("n",))
    made = {"n": state.number, "state": state.state, "at": state.at_ms, "by": by}
    return Write(key, (same,), sets(made), landed=lambda before: before.get("by") == by)


def message(topic_name: str, group: Group, state: AlarmState, ready: int, age_ms: int) -> Message:
    """The message about a change. `ready` and `age_ms`: the measurement."""
    told = {
        "topic": topic_name,
        "group": group.name,
        "state": state.state,
        "ready": ready,
        "age_ms": age_ms,
        "thresholds": group.as_json()["alarm"],
        "at_ms": state.at_ms,
    }
    place = {"topic": topic_name, "group": group.name}
    return Message(
        orjson.dumps(told).decode(), None, f"{topic_name}/{group.name}", state.state, place, deliver_at_ms=state.at_ms
    )
