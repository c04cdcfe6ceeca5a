"""A pick takes ready messages, in order, and never more than the pop asks for, the log has, or may be in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, TAKEOVERS_MAX
from chalicelib.core.catalogue.group import Group
from chalicelib.core.consuming import claim_plan
from chalicelib.core.consuming.claim_plan import HeldBack, LeaseTokens, Pick, pick, stretches, take
from chalicelib.core.consuming.receipt_batch import Plan
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import write
from chalicelib.core.cursors.lease import ACKED, MOVED, Lease, mark, runs
from chalicelib.core.table.writes import Equals, Key, Path, Remove, Set
from local.memory.evaluate import after, holds

NOW = 1_000_000
KEY = Key("group", "cursor")


@st.composite
def cursors(draw: st.DrawFn, leases_max: int = 8) -> Cursor:
    """Leases side by side, with gaps, in any state, before `next`."""
    offset = draw(st.integers(0, 5))
    leases: dict[str, Lease] = {}
    for number in range(draw(st.integers(0, leases_max))):
        size = draw(st.integers(1, 6))
        marks = draw(
            st.lists(
                st.builds(mark, st.sampled_from([ACKED, MOVED]), st.sets(st.integers(0, size - 1), min_size=1)),
                max_size=2,
            )
        )
        is_parked = draw(st.booleans())
        deadline = NOW + draw(st.integers(-3, 3))
        token = f"{'~' if is_parked else ''}{number}"
        leases[token] = Lease(token, offset, size, deadline, draw(st.integers(1, 3)), tuple(marks))
        offset += size + draw(st.integers(0, 3))
    return Cursor(KEY, 0, offset, leases)


def group(max_in_flight: int) -> Group:
    return Group("t", "g", "gid", [], 0, max_in_flight=max_in_flight)


def item_of(cursor: Cursor) -> dict[str, object]:
    return {
        **KEY._asdict(),
        "epoch": cursor.epoch,
        "next": [cursor.next],
        "leases": {token: lease.listed() for token, lease in cursor.leases.items()},
        "dead": 0,
        "claims": cursor.claims,
    }


def taken(cursor: Cursor, picked: Pick, is_exact: bool = False) -> tuple[Cursor, list[str]] | None:
    """The cursor after the claim, and the new tokens; None: refused."""
    numbers = count()
    change = take(picked, cursor, [], LeaseTokens("new", lambda: f"new-{next(numbers)}"), NOW + 30_000, is_exact)
    if not change:
        return cursor, []
    item, claim = item_of(cursor), write(cursor, change)
    if not all(holds(guard, item) for guard in claim.guards):
        return None
    return Cursor.of(after(item, claim) or {}), list(change.tokens)


@given(cursors(), st.integers(0, 40), st.integers(1, 20), st.integers(1, 40))
def test_a_pick_is_within_what_is_asked_there_and_allowed(cursor: Cursor, ahead: int, want: int, cap: int) -> None:
    end = cursor.next + ahead
    picked = pick(cursor, group(cap), end, want, NOW)
    assert picked.count <= want
    assert 0 <= picked.fresh <= ahead
    assert cursor.next + picked.fresh <= end
    assert not picked.fresh or picked.next_at_most + picked.fresh <= end
    assert picked.count == 0 or cursor.live(NOW) + picked.count <= cap
    assert len(picked.takeovers) <= TAKEOVERS_MAX


@given(cursors(), st.integers(0, 40), st.integers(1, 20), st.integers(1, 40))
def test_a_pick_is_in_offset_order_from_the_first_that_is_ready(
    cursor: Cursor, ahead: int, want: int, cap: int
) -> None:
    due = sorted(offset for lease in cursor.due(NOW) for offset in lease.owed_offsets)
    ready = [*due, *range(cursor.next, cursor.next + ahead)]
    offsets = pick(cursor, group(cap), cursor.next + ahead, want, NOW).offsets(cursor)
    assert offsets == ready[: len(offsets)]


@given(cursors(), st.integers(0, 40), st.integers(1, 20))
def test_a_pick_without_a_cap_takes_all_it_can(cursor: Cursor, ahead: int, want: int) -> None:
    ready = sum(len(lease.owed) for lease in cursor.due(NOW)) + ahead
    picked = pick(cursor, group(10_000), cursor.next + ahead, want, NOW)
    assert picked.count == min(want, ready)
    assert HeldBack.CAP not in picked.held_back


@given(cursors(), st.integers(0, 40), st.integers(1, 20), st.integers(1, 40))
def test_a_pick_is_limited_when_the_cap_alone_held_something_back(
    cursor: Cursor, ahead: int, want: int, cap: int
) -> None:
    end = cursor.next + ahead
    picked, free = pick(cursor, group(cap), end, want, NOW), pick(cursor, group(10_000), end, want, NOW)
    assert (HeldBack.CAP in picked.held_back) == (picked.count < free.count)


@given(cursors(), st.integers(0, 40), st.integers(1, 20), st.data())
def test_leases_that_are_just_acked_are_not_taken_over(
    cursor: Cursor, ahead: int, want: int, data: st.DataObject
) -> None:
    skip = data.draw(st.sets(st.sampled_from(sorted(cursor.leases)))) if cursor.leases else set()
    picked = pick(cursor, group(10_000), cursor.next + ahead, want, NOW, Plan(tokens=skip))
    assert {lease.token for lease, _ in picked.takeovers} & skip == set()


@given(cursors(), st.integers(0, 40), st.integers(1, 20), st.integers(1, 40), st.booleans())
def test_picked_messages_are_leased_and_nothing_else_changes(
    cursor: Cursor, ahead: int, want: int, cap: int, is_exact: bool
) -> None:
    picked = pick(cursor, group(cap), cursor.next + ahead, want, NOW)
    result = taken(cursor, picked, is_exact)
    assert result is not None
    then, tokens = result
    new = [offset for token in tokens for offset in then.leases[token].owed_offsets]
    assert sorted(new) == picked.offsets(cursor)
    assert then.next == cursor.next + picked.fresh
    assert then.live(NOW) == cursor.live(NOW) + picked.count
    others = {offset for lease in cursor.owing for offset in lease.owed_offsets} - set(new)
    assert {offset for lease in then.owing if lease.token not in tokens for offset in lease.owed_offsets} == others


@given(cursors(), st.integers(1, 40), st.integers(1, 20))
def test_a_message_that_is_taken_over_counts_one_more_attempt(cursor: Cursor, ahead: int, want: int) -> None:
    attempts = {offset: lease.attempt for lease in cursor.due(NOW) for offset in lease.owed_offsets}
    result = taken(cursor, pick(cursor, group(10_000), cursor.next + ahead, want, NOW))
    assert result is not None
    then, tokens = result
    for token in tokens:
        lease = then.leases[token]
        assert lease.deadline == NOW + 30_000
        assert {attempts.get(offset, 0) + 1 for offset in lease.owed_offsets} == {lease.attempt}


@given(cursors())
def test_a_cursor_full_of_leases_takes_nothing_new(cursor: Cursor) -> None:
    with patch.object(claim_plan, "LEASES_MAX", len(cursor.leases)):
        picked = pick(cursor, group(10_000), cursor.next + 5, 10, NOW)
    assert picked.fresh == 0
    due = sum(len(lease.owed) for lease in cursor.due(NOW))
    assert (HeldBack.CAP in picked.held_back) == (picked.count < min(10, due + 5))
    assert all(len(run) in map(len, runs(lease.owed)) for lease, run in picked.takeovers)


HELD, WAITS = Lease("held", 0, 2, NOW + 1, 1), Lease("~waits", 2, 3, NOW + 1, 1)
DUE = Lease("due", 5, 2, NOW, 1)


def test_a_cursor_with_room_for_one_lease_takes_something_new() -> None:
    with patch.object(claim_plan, "LEASES_MAX", 2):
        assert pick(Cursor(KEY, 0, 2, {"held": HELD}), group(10_000), 7, 10, NOW).fresh == 5


@pytest.mark.parametrize(("want", "count"), [(1, 0), (2, 2), (3, 2)])
def test_a_full_cursor_takes_over_whole_leases_alone(want: int, count: int) -> None:
    with patch.object(claim_plan, "LEASES_MAX", 1):
        assert pick(Cursor(KEY, 0, 2, {"due": Lease("due", 0, 2, NOW, 1)}), group(100), 7, want, NOW).count == count


@pytest.mark.parametrize(("acked", "fresh"), [(HELD, 3), (WAITS, 1), (Lease("due", 5, 2, NOW, 1), 1)])
def test_acks_of_what_is_in_flight_alone_make_room(acked: Lease, fresh: int) -> None:
    cursor = Cursor(KEY, 0, 7, {lease.token: lease for lease in (HELD, acked)})
    riding = Plan(tokens={acked.token}, acked=[(acked, [*acked.owed])])
    assert pick(cursor, group(3), 17, 10, NOW, riding).fresh == fresh


@pytest.mark.parametrize(
    ("acked", "delivered", "cap", "taken_over", "fresh", "further", "limits"),
    [
        ({}, (), 50, 2, 8, 31, ""),
        ({HELD: [0, 1]}, (), 50, 2, 8, 31, ""),
        ({HELD: [0]}, (), 50, 2, 8, 31, ""),
        ({WAITS: [0]}, (), 50, 2, 8, 31, ""),
        ({DUE: [0]}, (), 50, 0, 10, 30, ""),
        ({}, (6,), 50, 0, 10, 29, ""),
        ({}, (7,), 50, 2, 8, 31, ""),
        ({HELD: [0, 1], DUE: [0]}, (), 5, 0, 4, 0, "limited close dead"),
        ({}, (), 18, 2, 8, 3, "dead"),
        ({}, (), 17, 2, 8, 2, "dead"),
        ({}, (), 15, 2, 8, 0, "dead"),
        ({}, (), 14, 2, 8, 0, "close dead"),
        ({}, (), 11, 2, 7, 0, "limited close dead"),
        ({}, (), 4, 2, 0, 0, "limited close dead"),
        ({}, (), 3, 1, 0, 0, "limited close dead"),
        ({}, (), 1, 0, 0, 0, "limited close dead"),
        ({HELD: [0, 1]}, (), 1, 1, 0, 0, "limited close dead"),
    ],
)
def test_a_pick_counts_all_that_is_owed_against_the_cap(
    acked: dict[Lease, list[int]],
    delivered: Sequence[int],
    cap: int,
    taken_over: int,
    fresh: int,
    further: int,
    limits: str,
) -> None:
    """2 messages are in flight, 3 wait, 2 are due, 4 are dead. `further`: how many messages others may take."""
    cursor = Cursor(KEY, 0, 10, {lease.token: lease for lease in (HELD, WAITS, DUE)}, dead=4)
    riding = Plan(tokens={lease.token for lease in acked}, acked=[*acked.items()])
    assert pick(cursor, group(cap), 110, 10, NOW, riding, delivered) == Pick(
        ((DUE, range(taken_over)),) if taken_over else (),
        fresh,
        10 + further,
        held_back=HeldBack.CAP if "limited" in limits else HeldBack.NOTHING,
        is_capped_closely="close" in limits,
        demands_no_redrive="dead" in limits,
    )


@pytest.mark.parametrize(
    ("leases", "is_ordered", "count"), [([HELD], True, 0), ([WAITS], True, 0), ([HELD], False, 5), ([DUE], True, 5)]
)
def test_an_ordered_queue_waits_for_what_is_out(leases: list[Lease], is_ordered: bool, count: int) -> None:
    cursor = Cursor(KEY, 0, 10, {lease.token: lease for lease in leases})
    picked = pick(cursor, replace(group(9), ordered=is_ordered), 20, 5, NOW)
    assert picked.count == count
    if not count:
        assert picked == Pick((), 0, 10)


@pytest.mark.parametrize(("settle_by", "has_witnesses"), [("receipt", True), ("delivery", False), ("message", False)])
def test_only_receipts_that_name_a_lease_need_witnesses(settle_by: str, has_witnesses: bool) -> None:
    picked = pick(Cursor(KEY, 0, 10, {"due": DUE}), replace(group(9), settle_by=settle_by), 10, 9, NOW)
    assert picked.has_witnesses is has_witnesses
    change = take(picked, Cursor(KEY, 0, 10, {"due": DUE}), [], LeaseTokens("new", lambda: "split"), NOW, False)
    assert any(isinstance(effect, Remove) for effect in change.effects) is not has_witnesses


def test_a_queue_with_more_in_flight_than_may_be_waits() -> None:
    picked = pick(Cursor(KEY, 0, 10, {"held": HELD}), group(1), 20, 5, NOW)
    assert picked == Pick((), 0, 10, held_back=HeldBack.CAP)


def test_leases_between_each_other_are_taken_over_by_offset() -> None:
    outer, inner = Lease("outer", 0, 6, NOW, 1, (mark(ACKED, range(1, 5)),)), Lease("inner", 2, 2, NOW, 1)
    cursor = Cursor(KEY, 0, 10, {"outer": outer, "inner": inner})
    taken = ((outer, range(1)), (inner, range(2)), (outer, range(5, 6)))
    assert [pick(cursor, group(9), 10, want, NOW).takeovers for want in (3, 4)] == [taken[:2], taken]


def test_nothing_new_is_taken_before_all_that_is_due() -> None:
    leases = {str(number): Lease(str(number), 2 * number, 1, NOW, 1) for number in range(TAKEOVERS_MAX + 1)}
    picked = pick(Cursor(KEY, 0, 100, leases), group(1_000), 105, 50, NOW)
    assert (picked.count, picked.fresh, picked.held_back) == (TAKEOVERS_MAX, 0, HeldBack.ONE_WRITE)
    assert HeldBack.CAP not in picked.held_back


@pytest.mark.parametrize(("acked", "is_held"), [([0], True), ([0, 1], False)])
def test_what_an_ack_leaves_of_a_lease_holds_an_ordered_queue(acked: list[int], is_held: bool) -> None:
    due = Lease("due", 0, 2, NOW, 1)
    riding = Plan(tokens={"due"}, acked=[(due, acked)])
    assert claim_plan.is_held(Cursor(KEY, 0, 2, {"due": due}), NOW, riding) is is_held


@pytest.mark.parametrize(
    ("leases", "dead", "ahead", "cap", "further", "is_close", "demands_no_redrive"),
    [
        ((), 0, 100, 50, 40, False, False),
        ((), 0, 20, 50, 10, False, False),
        ((HELD, WAITS), 0, 100, 50, 35, False, False),
        ((Lease("due", 0, 10, NOW, 1),), 0, 20, 50, 40, False, False),
        ((), 40, 100, 50, 0, False, False),
        ((), 41, 100, 50, 40, False, True),
        ((WAITS,), 0, 100, 13, 0, False, False),
        ((WAITS,), 0, 100, 12, 0, True, True),
    ],
)
def test_what_others_may_do_meanwhile_leaves_the_end_and_the_cap(
    leases: Sequence[Lease], dead: int, ahead: int, cap: int, further: int, is_close: bool, demands_no_redrive: bool
) -> None:
    """`further`: how many messages others may take. `is_close`: no other claim may come in between."""
    cursor = Cursor(KEY, 0, 10, {lease.token: lease for lease in leases}, dead=dead)
    picked = pick(cursor, group(cap), 10 + ahead, 10, NOW)
    assert picked.count == 10
    assert (picked.next_at_most, picked.is_capped_closely, picked.demands_no_redrive) == (
        10 + further,
        is_close,
        demands_no_redrive,
    )


@pytest.mark.parametrize(
    ("attempt", "fresh", "max_attempts", "is_last"),
    [(0, 2, 1, True), (0, 1, 1, False), (0, 2, 2, False), (1, 0, 2, True), (2, 0, 2, True), (1, 0, 3, False)],
)
def test_a_delivery_is_the_last_if_no_attempt_is_left(
    attempt: int, fresh: int, max_attempts: int, is_last: bool
) -> None:
    """One of the fresh messages is passed."""
    takeovers = ((Lease("due", 0, 1, NOW, attempt), range(1)),) if attempt else ()
    picked = Pick(takeovers, fresh, 1, passed=range(1))
    assert picked.is_last(replace(group(100), max_attempts=max_attempts)) is is_last


def test_what_lies_near_is_read_together() -> None:
    far = BATCH_MESSAGES_MAX + 1
    assert stretches([0, 1, far + 1, 3 * far, 3 * far + 2]) == [range(far + 2), range(3 * far, 3 * far + 3)]


def test_what_is_passed_is_not_among_the_offsets() -> None:
    takeovers = ((Lease("due", 4, 3, NOW, 1), range(1, 3)),)
    picked = Pick(takeovers, 3, 0, passed=[1])
    assert picked.offsets(Cursor(KEY, 0, 9, {})) == [5, 6, 9, 11]
    assert (picked.count, picked.expired) == (4, 0)


@pytest.mark.parametrize(
    ("bases", "is_sealed", "offset", "hint"),
    [
        ([0, 10, 20, 25], False, 9, 0),
        ([0, 10, 20, 25], False, 10, 10),
        ([0, 10, 20, 25], True, 19, 10),
        ([0, 10, 20, 25], True, 20, 20),
        ([0, 10, 20, 25], False, 25, 20),
        ([0, 10, 20, 25], True, 25, 25),
        ([0, 10, 20, 25], True, 30, 25),
        ([10, 20], True, 9, None),
        ([], True, 9, None),
    ],
)
def test_a_claim_notes_the_segment_in_which_the_next_begins(
    bases: list[int], is_sealed: bool, offset: int, hint: int | None
) -> None:
    """`is_sealed`: the last one. A note of a later segment would skip messages."""
    chain: list[Any] = [
        SimpleNamespace(base=base, end=end, is_sealed=is_sealed or end != bases[-1]) for base, end in pairwise(bases)
    ]
    picked = Pick((), offset, 0)
    change = take(picked, Cursor(KEY, 0, 0, {}), chain, LeaseTokens("new", lambda: "split"), NOW, False)
    noted = [effect.value for effect in change.effects if isinstance(effect, Set) and effect.path == ("segment",)]
    assert noted == ([] if hint is None else [hint])


@pytest.mark.parametrize(
    ("counts_on", "demanded"),
    [
        ("", set()),
        ("cap", {("claims",)}),
        ("order", {("claims",)}),
        ("redrives", {("returns",)}),
        ("messages", {("next", 0)}),
    ],
)
def test_a_claim_demands_just_what_it_counts_on(counts_on: str, demanded: set[Path]) -> None:
    is_close, demands_no_redrive = counts_on == "cap", counts_on == "redrives"
    picked = Pick((), 2, 9, is_capped_closely=is_close, demands_no_redrive=demands_no_redrive)
    tokens, cursor = LeaseTokens("new", lambda: "split"), Cursor(KEY, 0, 0, {}, returns=1)
    change = take(picked, cursor, [], tokens, NOW, counts_on == "messages", counts_on == "order")
    assert {guard.path for guard in change.guards if isinstance(guard, Equals)} == demanded


@pytest.mark.parametrize(("first_at_ms", "noted_ms", "told_ms"), [(None, None, None), (None, 9, 9), (5, 9, 5)])
def test_a_claim_is_one_change_of_all_it_takes(
    first_at_ms: int | None, noted_ms: int | None, told_ms: int | None
) -> None:
    one, other = Lease("one", 0, 4, NOW, 3, (), first_at_ms), Lease("other", 4, 2, NOW - 1, 1, (), first_at_ms)
    takeovers = ((one, range(1)), (one, range(2, 4)), (other, range(2)))
    picked = Pick(takeovers, 3, 17, passed=[1])
    names, until_ms = iter("abc"), NOW + 30_000
    cursor = Cursor(KEY, 0, 6, {lease.token: lease for lease in (one, other)})
    change = take(picked, cursor, [], LeaseTokens("new", lambda: next(names)), until_ms, False, noted_ms=noted_ms)
    first = Lease("a", 0, 1, until_ms, 4, (), told_ms), Lease("b", 2, 2, until_ms, 4, (), told_ms)
    assert change == (
        cursor_writes.move(one, [0, 2, 3], first)
        + cursor_writes.lasts_as_seen(one)
        + cursor_writes.move(other, [0, 1], [Lease("c", 4, 2, until_ms, 2, (), told_ms)])
        + cursor_writes.lasts_as_seen(other)
        + cursor_writes.not_beyond(17)
        + cursor_writes.claim("new", 3, None, until_ms, [1], noted_ms)
    )


@pytest.mark.parametrize("fresh", [0, 2])
def test_a_claim_of_what_is_all_passed_makes_no_lease(fresh: int) -> None:
    picked = Pick((), fresh, 9, passed=range(fresh))
    change = take(picked, Cursor(KEY, 0, 0, {}), [], LeaseTokens("new", lambda: "split"), NOW, False)
    passed = cursor_writes.pass_by(fresh, None) if fresh else cursor_writes.CursorChange()
    assert change == cursor_writes.not_beyond(9) + passed
