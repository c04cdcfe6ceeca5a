"""Receipts and the cursor that they meet: which lease owes a message, what may have become of it, what a move names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.core.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.catalogue.group import BY_DELIVERY, BY_MESSAGE, BY_RECEIPT
from chalicelib.core.consuming.receipt_batch import CursorFull, CursorState, Plan, ReceiptBatch
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor, ReceiptState, RetryPage
from chalicelib.core.cursors.cursor_writes import LEASES_ROOM, CursorChange, prolong, write
from chalicelib.core.cursors.lease import ACKED, MOVED, UNKNOWN_MS, Lease, Receipt, mark
from chalicelib.core.table import keys
from local.memory.evaluate import after, holds
from tests.core.test_cursor import paths

NOW = 1_000_000
KEY = keys.cursor("t", "g", "gid", 0)
POP, EXTENSION, OTHER = "popped.0", "popped.0extend", "others.0"


def lease(token: str = POP, *marks: bytes, ends_in: int = 1, start: int = 10, attempt: int = 1) -> Lease:
    return Lease(token, start, 2, NOW + ends_in, attempt, marks)


def receipt(index: int = 0, token: str = POP, start: int = 10) -> Receipt:
    return Receipt("t", "gid", "", 0, 0, token, index, start + index, 2, 1, 0)


def cursor_of(*leases: Lease, dead: int = 0) -> Cursor:
    return Cursor(KEY, 0, 100_000, {each.token: each for each in leases}, dead=dead)


def batch_of(cursor: Cursor, *receipts: Receipt, rule: str | None = BY_RECEIPT) -> ReceiptBatch:
    texts = [(str(number), each) for number, each in enumerate(receipts or (receipt(),))]
    return ReceiptBatch(cursor, texts, cursor_state=CursorState.FOUND, settle_by=rule, now=NOW)


def waiting(old: Lease, offsets: range) -> Lease:
    return Lease(f"~{old.token}-{offsets.start}", offsets.start, len(offsets), NOW + 5, old.attempt)


LOST_FIRST = lease(POP, mark(MOVED, [0]))


@pytest.mark.parametrize(
    ("rule", "leases", "standing", "owing"),
    [
        (BY_DELIVERY, [lease()], ReceiptState.OWED, [POP]),
        (BY_DELIVERY, [lease(ends_in=0)], ReceiptState.LOST, []),
        (BY_MESSAGE, [lease(ends_in=0)], ReceiptState.OWED, [POP]),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION)], ReceiptState.OWED, [EXTENSION]),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION, ends_in=0)], ReceiptState.LOST, []),
        (BY_DELIVERY, [LOST_FIRST, lease(EXTENSION, attempt=2)], ReceiptState.LOST, []),
        (BY_DELIVERY, [LOST_FIRST], ReceiptState.ACKED, []),
        (BY_DELIVERY, [lease(OTHER)], ReceiptState.LOST, []),
        (BY_MESSAGE, [lease(OTHER, attempt=2)], ReceiptState.OWED, [OTHER]),
        (BY_MESSAGE, [LOST_FIRST, lease(OTHER, attempt=2)], ReceiptState.OWED, [OTHER]),
    ],
)
def test_what_a_receipt_names_decides_whether_its_message_is_owed(
    rule: str, leases: list[Lease], standing: ReceiptState, owing: list[str]
) -> None:
    batch = batch_of(cursor_of(*leases), rule=rule)
    assert (batch.state_of(receipt()), [each.token for each, _ in batch.owed()]) == (standing, owing)


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
    touched = {path[1] for path in paths(plan.change)}
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


HELD = Lease("held", 10, 4, NOW + 1, 2)


def of_lease(each: Lease, index: int, epoch: int = 0) -> Receipt:
    place = (epoch, each.token, index, each.start + index)
    return Receipt("t", "gid", "", 0, *place, each.count, each.attempt, 0)


def naming(each: Lease, *indexes: int, seen: Cursor, rule: str | None = BY_RECEIPT) -> ReceiptBatch:
    return batch_of(seen, *(of_lease(each, index) for index in indexes), rule=rule)


def test_the_cursor_is_taken_to_be_as_the_newest_receipts_say() -> None:
    old, new = Lease("old", 50, 2, UNKNOWN_MS, 3), Lease("new", 10, 4, UNKNOWN_MS, 1)
    receipts = [("new", of_lease(new, 3, epoch=2)), ("old", of_lease(old, 1, epoch=1))]
    for known in (None, replace(cursor_of(HELD), epoch=1)):
        assert ReceiptBatch.of(KEY, receipts, known).cursor == Cursor(KEY, 2, 52, {"new": new})
    known = replace(cursor_of(HELD), epoch=2)
    assert ReceiptBatch.of(KEY, receipts, known).cursor == replace(known, leases={"new": new, "held": HELD})
    assert ReceiptBatch.of(KEY, [("held", of_lease(HELD, 0))], cursor_of(HELD)).cursor == cursor_of(HELD)


def test_a_move_splits_a_lease_into_runs() -> None:
    plan = naming(HELD, 3, 0, 1, seen=cursor_of(HELD)).moves(waiting)
    first, second = waiting(HELD, range(10, 12)), waiting(HELD, range(13, 14))
    assert plan.change == cursor_writes.move(HELD, [0, 1, 3], [first, second]) + cursor_writes.has_room()
    assert plan.moved == {("held", 10): first, ("held", 11): first, ("held", 13): second}


@pytest.mark.parametrize(
    ("rule", "demanded"), [(BY_RECEIPT, ""), (BY_MESSAGE, "seen"), (BY_DELIVERY, "live seen"), (None, "live")]
)
def test_a_move_demands_the_end_where_a_receipt_names_more_than_a_lease(rule: str | None, demanded: str) -> None:
    change = cursor_writes.move(HELD, [0], [waiting(HELD, range(10, 11))])
    change += cursor_writes.lasts_beyond(HELD, NOW) if "live" in demanded else CursorChange()
    change += cursor_writes.lasts_as_seen(HELD) if "seen" in demanded else CursorChange()
    plan = naming(HELD, 0, seen=cursor_of(HELD), rule=rule).moves(waiting)
    assert plan.change == change + cursor_writes.has_room()


@pytest.mark.parametrize(
    ("rule", "demands_live"), [(BY_RECEIPT, False), (BY_MESSAGE, False), (BY_DELIVERY, True), (None, True)]
)
def test_an_ack_demands_that_the_delivery_lasts_unless_it_names_more(rule: str | None, demands_live: bool) -> None:
    plan = naming(HELD, 1, 2, seen=cursor_of(HELD), rule=rule).acks()
    demanded = cursor_writes.lasts_beyond(HELD, NOW) if demands_live else CursorChange()
    assert (plan.change, plan.acked) == (cursor_writes.ack(HELD, [1, 2]) + demanded, [(HELD, [1, 2])])


@pytest.mark.parametrize(
    ("indexes", "is_known", "leaves_one"),
    [([0, 1, 2, 3], False, False), ([0, 1, 2], False, True), ([0], False, True), ([0], True, False)],
)
def test_a_part_of_an_unknown_lease_leaves_a_rest(indexes: list[int], is_known: bool, leaves_one: bool) -> None:
    seen = cursor_of(HELD) if is_known else cursor_of()
    assert naming(HELD, *indexes, seen=seen).leaves_a_rest(seen) is leaves_one


@pytest.mark.parametrize(("ends", "is_late"), [(NOW, True), (NOW + 1, False)])
def test_receipts_of_a_lease_that_is_over_are_late(ends: int, is_late: bool) -> None:
    seen = cursor_of(replace(HELD, deadline=ends), lease(ends_in=0))
    assert naming(HELD, 0, seen=seen).is_late(seen, NOW) is is_late


@pytest.mark.parametrize(
    ("rule", "ends", "is_late"),
    [(BY_MESSAGE, NOW, True), (BY_MESSAGE, NOW + 1, False), (BY_DELIVERY, NOW, False), (BY_RECEIPT, NOW, False)],
)
@pytest.mark.parametrize("is_in_page", [True, False])
def test_receipts_are_late_if_another_lease_that_may_hold_them_is_over(
    rule: str, ends: int, is_late: bool, is_in_page: bool
) -> None:
    another = replace(HELD, token="another", deadline=ends)
    page = RetryPage.holding("page", [another])
    seen = replace(cursor_of(), pages={"page": page}) if is_in_page else cursor_of(another)
    assert naming(HELD, 0, seen=seen, rule=rule).is_late(seen, NOW) is is_late
    aside = cursor_of(replace(another, start=HELD.start + 1))
    assert not naming(HELD, 0, seen=aside, rule=rule).is_late(aside, NOW)
