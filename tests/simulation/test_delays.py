"""Delayed messages under faults, seed by seed; and the same with planted bugs, each of which is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.delays import chain, decision, writer
from chalicelib.table.writes import RemoveItem, Write
from tests.simulation.delays import DelayedWorld
from tests.simulation.faulty_store import ALL

HAUNTED = replace(ALL, zombie=0.2, kill=0.02)
SEEDS = 40
SEEDS_OF_A_BUG = 400


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_delayed_message_is_delivered_once_or_cancelled(seed: int) -> None:
    assert DelayedWorld(seed).run() == []
    assert DelayedWorld(seed, HAUNTED).run() == []


def _no_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "LATE_WRITE_MS_MAX", 0)


def _no_mark(patch: pytest.MonkeyPatch) -> None:
    """A cancelled message is removed, and not remembered until it is due."""

    def removed(topic_id: str, queue: int, slot: decision.Slot) -> Write:
        marking = mark(topic_id, queue, slot)
        return Write(marking.key, marking.guards, (RemoveItem(),))

    mark = chain.mark_cancelled
    patch.setattr(chain, "mark_cancelled", removed)


def _no_help(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chain, "_undone", lambda *_: [])


def _from_the_end(patch: pytest.MonkeyPatch) -> None:
    """Who helps begins where it believes the log to end."""

    def append(self: chain.LogJoiner, topic, queue, entry, base) -> None:  # type: ignore[no-untyped-def]
        self.append(topic, queue, entry, self._writer.tail(topic, topic.log(queue)))

    patch.setattr(chain.LogJoiner, "append_from", append)


def _early(patch: pytest.MonkeyPatch) -> None:
    standing = chain.Decisions.standing
    patch.setattr(
        chain.Decisions,
        "standing",
        lambda self, topic, queue, until_ms: standing(self, topic, queue, until_ms + 600),
    )


@pytest.mark.parametrize("bug", [_no_transactions, _no_mark, _no_help, _from_the_end, _early])
def test_a_planted_bug_is_caught(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert any(DelayedWorld(seed, HAUNTED).run() for seed in range(SEEDS_OF_A_BUG))
