"""Which messages die together, and how often they were delivered before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.core.base.limits import TAKEOVERS_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.group import Group
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.dead_letters import queue
from chalicelib.core.dead_letters.bury import DEAD_TOGETHER_MAX, DeadLetter, put, together
from chalicelib.core.dead_letters.move import COUNT, received_before
from chalicelib.core.dead_letters.queue import PURGED_TOGETHER_MAX, by_cursor, choose
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Set


def lease(start: int, count: int) -> Lease:
    return Lease(f"{start}+{count}", start, count, 1_000, 1)


def test_a_message_of_two_leases_dies_once() -> None:
    first, same, second = lease(7, 2), lease(8, 1), lease(8, 2)
    assert together([(first, [0, 1]), (same, [0]), (second, [0, 1])]) == [(first, [0, 1]), (second, [1])]


def test_as_many_die_together_as_a_transaction_takes() -> None:
    long, next_ = lease(0, DEAD_TOGETHER_MAX - 1), lease(100, 2)
    assert together([(long, long.owed), (next_, next_.owed), (lease(200, 1), [0])])[1:] == [(next_, [0])]
    brief = [(lease(start, 1), [0]) for start in range(TAKEOVERS_MAX + 1)]
    assert together(brief) == brief[:-1]


@pytest.mark.parametrize(
    ("text", "count"), [("12", 12), ("9" * 9, 999_999_999), ("9" * 10, 0), ("", 0), ("-1", 0), ("\u00b2", 0)]
)
def test_a_count_that_no_move_writes_counts_nothing(text: str, count: int) -> None:
    assert received_before(Message("a", None, None, None, {COUNT: text})) == count


@pytest.mark.parametrize("consumer", ["", "c0ffee"])
def test_only_a_letter_of_a_broadcast_group_names_a_consumer(consumer: str) -> None:
    letter = DeadLetter(keys.dead("t", "g", 0, 1, consumer), 0, 1, consumer, 0, 1, "r", 5)
    written = {
        effect.path[0]: effect.value for effect in put(letter, is_another=False).effects if isinstance(effect, Set)
    }
    assert written.get("consumer", "") == consumer
    assert ("consumer" in written) == bool(consumer)


KEY = keys.cursor("t", "g", "gid", 0)


def cursor(*starts: int) -> Cursor:
    """It owes two messages from each of these offsets on."""
    return replace(Cursor.fresh(KEY, 100), leases={str(start): lease(start, 2) for start in starts})


@pytest.mark.parametrize(
    ("owing", "offsets", "chosen", "back"),
    [
        ([50], [1, 2, 3, 5, 7, 9], 5, [range(1, 4), range(5, 6), range(7, 8)]),
        ([50], [1, 50, 51, 52], 4, [range(1, 2), range(52, 53)]),
        ([50], [99, 100, 101], 3, [range(99, 100)]),
        ([10, 20, 30, 40], [10, 11, 12], 2, []),
        ([10, 20, 30, 40, 60], [1], 0, []),
        ([], [*range(PURGED_TOGETHER_MAX + 5)], PURGED_TOGETHER_MAX, [range(PURGED_TOGETHER_MAX)]),
    ],
)
def test_a_redrive_takes_what_its_cursor_has_room_for(
    monkeypatch: pytest.MonkeyPatch, owing: list[int], offsets: list[int], chosen: int, back: list[range]
) -> None:
    monkeypatch.setattr(queue, "REDRIVEN_LEASES_MAX", 4)
    letters = [letter_at(offset) for offset in offsets]
    assert choose(cursor(*owing), letters) == (letters[:chosen], back)


def test_a_redrive_takes_as_many_runs_as_a_transaction() -> None:
    letters = [letter_at(2 * place) for place in range(TAKEOVERS_MAX + 3)]
    many = replace(cursor(), next=10_000)
    assert choose(many, letters) == (
        letters[:TAKEOVERS_MAX],
        [range(letter.offset, letter.offset + 1) for letter in letters[:TAKEOVERS_MAX]],
    )
    assert choose(many, letters[:3], paged={2}) == (letters[:3], [range(1), range(4, 5)])


def test_letters_are_counted_by_the_cursor_of_their_queue_and_consumer() -> None:
    group = Group("t", "g", "gid", [], 0)
    letters = [letter_at(offset, queue, consumer) for queue in (1, 0) for consumer in ("b", "a") for offset in (2, 1)]
    counted = by_cursor(group, letters)
    assert [*counted] == [group.cursor_key(queue, consumer) for queue in (0, 1) for consumer in ("a", "b")]
    assert [[letter.offset for letter in own] for own in counted.values()] == [[1, 2]] * 4


def letter_at(offset: int, queue: int = 0, consumer: str = "") -> DeadLetter:
    return DeadLetter(keys.dead("t", "gid", queue, offset, consumer), queue, offset, consumer, 0, 1, "r", 5)
