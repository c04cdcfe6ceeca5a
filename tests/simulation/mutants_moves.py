"""Bugs planted into the moves of dead messages, into a topic and by tasks out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue import topic
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor_writes import bring_back
from chalicelib.core.dead_letters import bury, dead_letter, move
from chalicelib.core.dead_letters.dead_letter import DeadLetter
from chalicelib.core.dead_letters.move import Mover
from chalicelib.core.delays.writer import DelayWriter
from chalicelib.core.moves import carrier, tasks
from chalicelib.core.moves import task as move_task
from chalicelib.core.table.writes import Key, Refused, Write
from tests.simulation.mutants import planted, replaced


@planted
def moves_in_two_writes() -> Any:
    """A message is stored in the topic, and leaves its lease after: a caller that hears nothing stores it again."""
    true = Mover._write

    class Apart:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def write_together(self, writes: Sequence[Write]) -> None:
            self._inner.write_together(writes[1:])
            self._inner.write_together(writes[:1])

    def write(self: Any, *args: Any) -> None:
        mover = Mover.__new__(Mover)
        vars(mover).update(vars(self), _store=Apart(self._store))
        true(mover, *args)

    return patch.object(Mover, "_write", write)


@planted
def moves_that_leave_a_letter() -> Any:
    """What has moved gets a letter too."""
    true = Mover.move

    def moved(self: Any, group: Any, cursor: Any, chosen: Any, reason: str) -> Any:
        chosen = true(self, group, cursor, chosen, reason)
        for lease, indexes in chosen:
            for index in indexes:
                letter = DeadLetter.new(group, cursor, lease.start + index, lease.attempt, reason, 1)
                with suppress(Refused):
                    self._store.write(dead_letter.put(letter, is_another=False))
        return chosen

    return patch.object(Mover, "move", moved)


@planted
@contextmanager
def moves_into_what_is_gone() -> Iterator[None]:
    """A move does not look whether the topic is there still."""

    def begin(found: topic.Topic, feature: str) -> Write:
        return replace(topic.begin(found, feature), guards=(), key=Key("nowhere", found.id))

    with replaced(move, "topics", begin=begin), patch.object(DelayWriter, "demand", lambda *_: None):
        yield


@planted
@contextmanager
def messages_that_are_dropped_without_a_topic() -> Iterator[None]:
    """While the topic is gone, what is dead leaves its lease."""
    true = Mover.move

    def moved(self: Any, group: Any, cursor: Any, chosen: Any, reason: str) -> Any:
        if self.target(group) is not None:
            return true(self, group, cursor, chosen, reason)
        try:
            self._store.write(cursor_writes.write(cursor, cursor_writes.bury(chosen, 0)))
        except Refused:
            return []
        return chosen

    with patch.object(Mover, "move", moved), patch.object(bury.Burial, "can_bury", lambda *_: True):
        yield


@planted
def tasks_that_move_in_two_writes() -> Any:
    """A message is stored where it goes, and leaves the dead-letter queue after."""
    true = Mover.send

    def send(self: Any, cursor: Any, chosen: Any, topic: Any, messages: Any, also: Any = ()) -> None:
        if also:
            self._write(cursor, [], topic, [(0, message) for message in messages], ())
            self._store.write_together([cursor_writes.write(cursor, cursor_writes.bury(chosen, 0)), *also])
        else:
            true(self, cursor, chosen, topic, messages)

    return patch.object(Mover, "send", send)


@planted
def tasks_that_go_on_when_they_are_cancelled() -> Any:
    """A worker does not look whether its task has ended."""
    true = move_task.moved

    def moved(*args: Any) -> Write:
        return replace(true(*args), guards=())

    return patch.object(move_task, "moved", moved)


@planted
def returns_that_nobody_owes() -> Any:
    """A message leaves the dead-letter queue, and is not with its group again."""
    return patch.object(carrier, "bring_back", lambda cursor, _: bring_back(cursor, []))


@planted
def tasks_without_appointments() -> Any:
    """No sweep hears of a task that its first worker leaves."""
    return patch.object(tasks, "MOVE", "nothing")
