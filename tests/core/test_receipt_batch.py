"""Receipts and the cursor that they meet: which lease owes a message, what may have become of it, what a move names."""

from __future__ import annotations

import pytest

from chalicelib.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.catalogue.group import BY_DELIVERY, BY_MESSAGE, BY_RECEIPT
from chalicelib.consuming.receipt_batch import CursorFull, Plan, ReceiptBatch, Seen
from chalicelib.cursors.cursor import Cursor, Standing
from chalicelib.cursors.cursor_writes import LEASES_ROOM, prolong, write
from chalicelib.cursors.lease import ACKED, MOVED, Lease, mark
from chalicelib.cursors.receipt import Receipt
from chalicelib.table import keys
from local.memory.evaluate import after, holds

NOW = 1_000_000
KEY = keys.cursor("t", "g", "gid", 0)
POP, EXTENSION, OTHER = "popped.0", "popped.0extend", "others.0"


def lease(token: str = POP, *marks: bytes, ends_in: int = 1, start: int = 10, attempt: int = 1) -> Lease:
    return Lease(token, start, 2, NOW + ends_in, attempt, marks)


def receipt(index: int = 0, token: str = POP, start: int = 10) -> Receipt:
    return Receipt("t", "gid", "", 0, 0, token, index, start + index, 2, 1)


def cursor_of(*leases: Lease, dead: int = 0) -> Cursor:
    return Cursor(KEY, 0, 100_000, {each.token: each for each in leases}, dead=dead)


def batch_of(cursor: Cursor, *receipts: Receipt, rule: str = BY_RECEIPT) -> ReceiptBatch:
    texts = [(str(number), each) for number, each in enumerate(receipts or (receipt(),))]
    return ReceiptBatch(cursor, texts, seen=Seen.FOUND, settle_by=rule, now=NOW)


def waiting(old: Lease, offsets: range) -> Lease:
    return Lease(f"~{old.token}-{offsets.start}", offsets.start, len(offsets), NOW + 5, old.attempt)


LOST_FIRST = lease(POP, mark(MOVED, [0]))


@pytest.mark.parametrize(
    ("rule", "leases", "standing", "owing"),
    [
        (BY_DELIVERY, [lease()], Standing.OWED, [POP]),
        (BY_DELIVERY, [lease(ends_in=0)], Standing.LOST, []),
        (BY_MESSAGE, [lease(ends_in=0)], Standing.OWED, [POP]),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION)], Standing.OWED, [EXTENSION]),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION, ends_in=0)], Standing.LOST, []),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION, attempt=2)], Standing.LOST, []),
        (BY_DELIVERY, [LOST_FIRST], Standing.ACKED, []),
        (BY_DELIVERY, [lease(OTHER)], Standing.LOST, []),
        (BY_MESSAGE, [lease(OTHER, attempt=2)], Standing.OWED, [OTHER]),
        (BY_MESSAGE, [LOST_FIRST, lease(OTHER, attempt=2)], Standing.OWED, [OTHER]),
    ],
)
def test_what_a_receipt_names_decides_whether_its_message_is_owed(
    rule: str, leases: list[Lease], standing: Standing, owing: list[str]
) -> None:
    batch = batch_of(cursor_of(*leases), rule=rule)
    assert (batch.standing(receipt()), [each.token for each, _ in batch.owed()]) == (standing, owing)


@pytest.mark.parametrize(
    ("leases", "may_be"),
    [
        ([], True),
        ([lease()], False),
        ([lease(POP, mark(ACKED, [0]))], False),
        ([lease(start=20)], True),  # a late claim of the attempt, further on
    ],
)
def test_a_message_may_be_dead_if_its_lease_does_not_tell_its_end(leases: list[Lease], may_be: bool) -> None:
    assert bool(batch_of(cursor_of(*leases, dead=1)).perhaps_lost()) is may_be


def test_what_the_call_has_acked_itself_is_not_dead() -> None:
    batch = batch_of(cursor_of(lease(), dead=1), receipt(0), receipt(1))
    batch.learn(cursor_of(dead=1), Plan(acked=batch.owed()))
    assert batch.perhaps_lost() == []


def test_nothing_is_owed_where_the_cursor_is_gone() -> None:
    batch = batch_of(cursor_of(lease()))
    batch.learn(None)
    assert batch.owed() == []


def test_messages_move_as_long_as_the_cursor_has_room() -> None:
    others = [lease(f"t{number}", start=20 + 2 * number) for number in range(LEASES_MAX + LEASES_ROOM - 2)]
    assert batch_of(cursor_of(lease(), *others)).moves(waiting).moved
    with pytest.raises(CursorFull, match="queue 0"):
        batch_of(cursor_of(lease(), lease("last", start=12), *others)).moves(waiting)


def test_a_move_touches_no_more_leases_than_one_write_can_name() -> None:
    leases = [lease(f"t{number}", start=2 * number) for number in range(TAKEOVERS_MAX + 1)]
    plan = batch_of(cursor_of(*leases), *(receipt(0, each.token, each.start) for each in leases)).moves(waiting)
    touched = {effect.path[1] for effect in plan.change.effects}
    assert [each.token for each in leases if each.token not in touched] == [leases[-1].token]
    assert len(plan.moved) == TAKEOVERS_MAX


@pytest.mark.parametrize("rule", [BY_DELIVERY, BY_MESSAGE])
def test_a_late_move_leaves_what_was_extended_in_place_since(rule: str) -> None:
    cursor = cursor_of(lease())
    late = write(cursor, batch_of(cursor, rule=rule).moves(waiting).change)
    item = {"epoch": 0, "leases": {POP: lease().listed()}}
    assert all(holds(guard, item) for guard in late.guards)
    extended = after(item, write(cursor, prolong(lease(), NOW + 60_000)))
    assert not all(holds(guard, extended) for guard in late.guards)
