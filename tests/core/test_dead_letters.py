"""Which messages die together, and how often they were delivered before."""

from __future__ import annotations

import pytest

from chalicelib.base.limits import TAKEOVERS_MAX
from chalicelib.base.message import Message
from chalicelib.cursors.lease import Lease
from chalicelib.dead_letters.bury import DEAD_TOGETHER_MAX, together
from chalicelib.dead_letters.dead_letter import DeadLetter, put
from chalicelib.dead_letters.move import COUNT, received_before
from chalicelib.table import keys
from chalicelib.table.writes import Set


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
