"""A claim of a group ordered by key takes nothing past a held message of its key, and leaves nothing that it passes."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.catalogue.group import BY_KEY, Group
from chalicelib.core.consuming import key_plan
from chalicelib.core.consuming.claim_plan import HeldBack, LeaseTokens, take
from chalicelib.core.consuming.key_plan import FreshWindow, KeyPick, Known, OwedMessages
from chalicelib.core.consuming.receipt_batch import NOTHING, Plan
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import LEASES_ROOM, write
from chalicelib.core.cursors.lease import SET_ASIDE_UNTIL_MS, Lease, set_aside
from local.memory.evaluate import after
from tests.core.test_picking import KEY, NOW, cursors, item_of
from tests.support.clock import Clock

GROUP = Group("t", "g", "gid", [], 0, max_in_flight=10_000, ordered=BY_KEY)
AHEAD = 12
FULL = LEASES_MAX + LEASES_ROOM - TAKEOVERS_MAX


@st.composite
def queues(draw: st.DrawFn) -> tuple[Cursor, dict[int, Known]]:
    """A cursor with leases held, due and set aside, and the keys of all messages, `AHEAD` fresh ones among them."""
    cursor = draw(cursors())
    aside = draw(st.sets(st.sampled_from([token for token in cursor.leases if token[0] == "~"] or [""])))
    leases = {
        token: Lease(token, lease.start, lease.count, SET_ASIDE_UNTIL_MS, 0, lease.marks) if token in aside else lease
        for token, lease in cursor.leases.items()
    }
    keys = st.sampled_from((None, "a", "b", "c"))
    known = {offset: Known(draw(keys), offset) for offset in range(cursor.next + AHEAD)}
    return Cursor(KEY, 0, cursor.next, leases), known


def planned(
    cursor: Cursor, known: dict[int, Known], want: int, delivered: tuple[int, ...] = (), wanted: list[int] | None = None
) -> tuple[KeyPick, OwedMessages]:
    owed = OwedMessages.by(cursor, known, NOW, NOTHING, delivered, lambda _: True)
    wanted = [*range(cursor.next, cursor.next + AHEAD)] if wanted is None else wanted
    count, is_enough = key_plan.look(known, owed.blocked(known), cursor.aside, wanted, want)
    looked_at = range(cursor.next, wanted[count - 1] + 1 if count else cursor.next)
    window = FreshWindow(looked_at, wanted[:count], is_cut=not is_enough)
    in_turn = owed.in_turn(known, window.wanted)
    return key_plan.arrange(cursor, window, key_plan.choose(cursor, GROUP, in_turn, want, NOW, 0)), owed


def carried_out(cursor: Cursor, picked: KeyPick) -> Cursor:
    names = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    change = take(picked, cursor, [], LeaseTokens("fresh", lambda: next(names)), NOW + 1_000, True, True)
    if picked.aside:
        change += cursor_writes.set_aside(set_aside(Clock().runtime(1), picked.aside))
    claim = write(cursor, change)
    then = after(item_of(cursor), claim) or {}
    assert claim.landed(then) is bool(picked.count or picked.aside)
    return Cursor.of(then)


@given(queues(), st.integers(1, 20))
def test_nothing_is_taken_past_a_held_message_of_its_key(made: tuple[Cursor, dict[int, Known]], want: int) -> None:
    cursor, known = made
    picked, owed = planned(cursor, known, want)
    taken = set(picked.in_turn)
    assert len(taken) <= want
    assert len(picked.takeovers) <= TAKEOVERS_MAX
    for offset in taken:
        earlier = [before for before in known if before < offset and known[before].key == known[offset].key is not None]
        still = {ready.offset for ready in owed.ready} | set(range(cursor.next, offset))
        assert not owed.held & set(earlier)
        assert taken >= still & set(earlier)


@given(queues(), st.integers(1, 20))
def test_every_message_is_either_taken_or_owed_or_fresh_afterwards(
    made: tuple[Cursor, dict[int, Known]], want: int
) -> None:
    cursor, known = made
    picked, _ = planned(cursor, known, want)
    if not picked.fresh and not picked.takeovers:
        return
    then = carried_out(cursor, picked)
    before = sorted(offset for lease in cursor.owing for offset in lease.owed_offsets)
    owing = sorted(offset for lease in then.owing for offset in lease.owed_offsets)
    assert owing == [*before, *range(cursor.next, then.next)]
    assert then.aside == cursor.aside - sum(len(run) for lease, run in picked.takeovers if lease.is_aside) + len(
        picked.aside
    )
    live = {
        offset for lease in then.owing if not lease.parked and lease.deadline > NOW for offset in lease.owed_offsets
    }
    assert live >= set(picked.in_turn)


@given(queues(), st.integers(1, 20), st.integers(0, 6))
def test_no_more_is_set_aside_than_may_be(made: tuple[Cursor, dict[int, Known]], want: int, most: int) -> None:
    cursor, known = made
    with patch.object(key_plan, "SET_ASIDE_MAX", cursor.aside + most):
        picked, _ = planned(cursor, known, want)
    assert len(picked.aside) - sum(len(run) for lease, run in picked.takeovers if lease.is_aside) <= most


def test_keys_come_in_the_order_of_their_first_messages_that_can_be_had() -> None:
    since_ms = [20, 30, 10, 20, 10, 5]
    known = {offset: Known("abcadb"[offset], ms) for offset, ms in enumerate(since_ms)}
    assert [each.offset for each in OwedMessages().in_turn(known, range(6))] == [2, 4, 0, 3, 1, 5]


def test_what_the_same_call_delivers_blocks_nothing() -> None:
    held = {"x": Lease("x", 0, 1, NOW + 1_000, 1)}
    known = {0: Known("a", 0), 1: Known("a", 1)}
    cursor = Cursor(KEY, 0, 1, held)
    assert planned(cursor, known, 5, wanted=[1])[0].in_turn == []
    assert planned(cursor, known, 5, delivered=(0,), wanted=[1])[0].in_turn == [1]


def test_of_many_leases_one_write_takes_as_many_as_it_can_name_and_says_so() -> None:
    leases = {str(number): Lease(str(number), 2 * number, 1, NOW - 1, 1) for number in range(TAKEOVERS_MAX + 4)}
    known = {offset: Known("a", 0) for offset in range(2 * len(leases))}
    picked, _ = planned(Cursor(KEY, 0, 2 * len(leases), leases), known, 100, wanted=[])
    assert (len(picked.takeovers), picked.held_back) == (TAKEOVERS_MAX, HeldBack.ONE_WRITE)


@pytest.mark.parametrize(
    ("further", "held_back"), [(TAKEOVERS_MAX - 1, HeldBack.NOTHING), (TAKEOVERS_MAX, HeldBack.ONE_WRITE)]
)
def test_neighbours_in_a_lease_are_named_together(further: int, held_back: HeldBack) -> None:
    leases = {str(number): Lease(str(number), 21 + 2 * number, 1, NOW - 1, 1) for number in range(1, further + 1)}
    leases["0"] = Lease("0", 0, 20, NOW - 1, 1)
    known = {offset: Known("ab"[offset % 2], 0) for offset in range(100)}
    picked, _ = planned(Cursor(KEY, 0, 100, leases), known, 100, wanted=[])
    assert (picked.count, picked.held_back) == (20 + TAKEOVERS_MAX - 1, held_back)
    assert len(picked.takeovers) == TAKEOVERS_MAX


@pytest.mark.parametrize(
    ("count", "taken"), [(LEASES_MAX, (0, 0)), (LEASES_MAX - 1, (0, 0)), (LEASES_MAX - 2, (10, 10))]
)
def test_a_cursor_without_room_for_two_leases_takes_nothing_fresh(count: int, taken: tuple[int, int]) -> None:
    cursor, known = with_leases(count)
    picked, _ = planned(cursor, known, 10)
    assert (picked.count, picked.fresh, HeldBack.CAP in picked.held_back) == (*taken, not taken[0])


@pytest.mark.parametrize(("count", "aside"), [(LEASES_MAX, 0), (LEASES_MAX - 1, AHEAD)])
def test_what_all_waits_is_set_aside_if_there_is_room(count: int, aside: int) -> None:
    cursor, known = with_leases(count, "a")
    picked, _ = planned(cursor, known, 10)
    assert len(picked.aside) == aside
    if aside:
        assert carried_out(cursor, picked).next == cursor.next + aside


@pytest.mark.parametrize(("count", "taken"), [(FULL - 1, [1, 3, 4]), (FULL, [4])])
def test_a_full_cursor_splits_no_lease_and_goes_on(count: int, taken: list[int]) -> None:
    """The lease of 1 and 2 cannot be taken over as a whole, since 2 waits for 0."""
    cursor, _ = with_leases(count - 4)
    due = [Lease("b", 1, 2, NOW, 1), Lease("c", 3, 1, NOW, 1), Lease("d", 4, 1, NOW, 1)]
    leases = {"a": Lease("a", 0, 1, NOW + 1, 1), **{lease.token: lease for lease in due}}
    leases |= {token: replace(lease, start=lease.start + 5) for token, lease in cursor.leases.items()}
    known = {offset: Known(None, 0) for offset in range(5, cursor.next + 5 + AHEAD)}
    known |= {offset: Known(key, 0) for offset, key in enumerate(["a", "b", "a", "b", None])}
    assert planned(Cursor(KEY, 0, cursor.next + 5, leases), known, 10)[0].in_turn == taken


def with_leases(count: int, key: str | None = None) -> tuple[Cursor, dict[int, Known]]:
    leases = {str(number): Lease(str(number), 2 * number, 1, NOW + 1, 1) for number in range(count)}
    return Cursor(KEY, 0, 2 * count, leases), {offset: Known(key, 0) for offset in range(2 * count + AHEAD)}


@pytest.mark.parametrize(
    ("due", "is_cut", "wanted", "fresh", "aside"),
    [
        (0, True, [10, 11], 4, [10, 11]),
        (0, False, [10, 11], 0, []),
        (0, True, [12], 2, []),
        (1, True, [10, 11], 0, []),
        (1, True, [12], 2, []),
    ],
)
def test_a_claim_of_nothing_new_passes_what_is_not_wanted_or_all_waits(
    due: int, is_cut: bool, wanted: list[int], fresh: int, aside: list[int]
) -> None:
    """All that is wanted waits if the claim after this one is to look further."""
    chosen = [key_plan.Ready(5, 5, NOW, Lease("due", 5, 1, NOW, 1))] * due
    choice = key_plan.Choice(chosen)
    picked = key_plan.arrange(Cursor(KEY, 0, 10, {}), FreshWindow(range(10, 14), wanted, is_cut), choice)
    assert (picked.fresh, picked.aside, picked.count) == (fresh, aside, due)


@pytest.mark.parametrize(("bound", "taken"), [(4, [11, 13]), (3, [11, 13]), (2, [11]), (1, [])])
def test_the_last_are_left_if_too_many_would_be_set_aside(bound: int, taken: list[int]) -> None:
    """One of three that are set aside, and one that is due, are taken besides."""
    aside, due = Lease("~aside", 2, 2, SET_ASIDE_UNTIL_MS, 0), Lease("due", 5, 1, NOW, 1)
    leases = [key_plan.Ready(2, 2, NOW, aside), key_plan.Ready(5, 5, NOW, due)]
    choice = key_plan.Choice([*leases, *(key_plan.Ready(each, each, NOW, None) for each in (11, 13))])
    cursor = Cursor(KEY, 0, 10, {lease.token: lease for lease in (aside, due)})
    with patch.object(key_plan, "SET_ASIDE_MAX", bound):
        picked = key_plan.arrange(cursor, FreshWindow(range(10, 14), [10, 11, 12, 13], False), choice)
    assert picked.in_turn == [2, 5, *taken]


@pytest.mark.parametrize(("aside", "count"), [(0, 4), (1, 3), (2, 1), (3, 0)])
def test_no_more_is_looked_at_than_can_be_set_aside(aside: int, count: int) -> None:
    known = {offset: Known(key, 0) for offset, key in enumerate("aabaab")}
    with patch.object(key_plan, "SET_ASIDE_MAX", 3):
        assert key_plan.look(known, {"a"}, aside, [*known], 10) == (count, True)


@pytest.mark.parametrize(
    ("keys", "want", "looked_at"),
    [
        ("ab" * 25, 3, (35, True)),
        ("ab" * 9, 3, (18, True)),
        ("ab" * 2, 5, (4, False)),
        ("aaab" * 9, 3, (3, True)),
        ("aabb" * 9, 3, (35, True)),
        ("xaxaxbxx" * 9, 3, (38, True)),
    ],
)
def test_so_many_fresh_messages_are_looked_at(keys: str, want: int, looked_at: tuple[int, bool]) -> None:
    """Messages with the key `x` wait."""
    known = {offset: Known(key, 0) for offset, key in enumerate(keys)}
    assert key_plan.look(known, {"x"}, 0, [*known], want) == looked_at


@pytest.mark.parametrize(
    ("keys", "blocked", "is_further"),
    [
        (["a", "b"], (), True),
        (["a", None], (), True),
        (["a", "a"], (), False),
        ([None, None], (), False),
        (["a", "b"], ("a",), False),
        (["a", "b", "c"], ("a",), True),
    ],
)
def test_only_for_several_keys_more_is_looked_at_than_wanted(
    keys: list[str | None], blocked: tuple[str, ...], is_further: bool
) -> None:
    known = {offset: Known(key, 0) for offset, key in enumerate(keys)}
    assert bool(key_plan.further(known, blocked, [*known])) is is_further


def test_a_claim_of_all_that_is_ready_is_not_limited() -> None:
    known = {offset: Known(None, offset) for offset in range(AHEAD)}
    assert planned(Cursor(KEY, 0, 0, {}), known, AHEAD + 1)[0].held_back is HeldBack.NOTHING


def test_a_claim_passes_what_is_not_wanted_and_sets_aside_what_waits() -> None:
    due, aside = Lease("due", 2, 7, NOW, 1), Lease("~aside", 3, 4, SET_ASIDE_UNTIL_MS, 0)
    leased = [(8, due), (2, due), (6, aside), (3, aside), (4, aside)]
    chosen = [key_plan.Ready(offset, offset, NOW, lease) for offset, lease in leased]
    chosen[2:2] = [key_plan.Ready(offset, offset, NOW, None) for offset in (15, 12)]
    cursor = Cursor(KEY, 0, 10, {lease.token: lease for lease in (due, aside)})
    window = FreshWindow(range(10, 20), [11, 12, 13, 15, 18], is_cut=False)
    for held_back in (HeldBack.CAP, HeldBack.ONE_WRITE):
        assert key_plan.arrange(cursor, window, key_plan.Choice(chosen, held_back)) == KeyPick(
            ((due, range(1)), (aside, range(2)), (aside, range(3, 4)), (due, range(6, 7))),
            8,
            10,
            held_back=held_back,
            passed=[0, 1, 3, 4, 6, 7],
            aside=[11, 13],
            in_turn=[8, 2, 15, 12, 6, 3, 4],
        )


@pytest.mark.parametrize(
    ("cap", "freed", "want", "count", "is_limited"),
    [
        (9, 0, 9, 4, False),
        (6, 0, 9, 4, False),
        (5, 0, 9, 3, True),
        (5, 1, 9, 4, False),
        (5, 0, 3, 3, False),
        (2, 0, 9, 0, True),
        (1, 0, 9, 0, True),
        (1, 2, 9, 1, True),
    ],
)
def test_no_more_is_chosen_than_may_be_in_flight(cap: int, freed: int, want: int, count: int, is_limited: bool) -> None:
    """2 are, and `freed` of those are acked."""
    cursor = Cursor(KEY, 0, 2, {"held": Lease("held", 0, 2, NOW + 1, 1)})
    ready = [key_plan.Ready(offset, offset, NOW, None) for offset in range(2, 6)]
    chosen = key_plan.choose(cursor, replace(GROUP, max_in_flight=cap), ready, want, NOW, freed)
    assert chosen == key_plan.Choice(ready[:count], HeldBack.CAP if is_limited else HeldBack.NOTHING)


def test_what_is_owed_is_ready_or_held_or_of_this_call() -> None:
    due, acked, held = Lease("due", 1, 3, NOW, 1), Lease("acked", 4, 3, NOW, 1), Lease("held", 7, 2, NOW + 1, 1)
    aside, unripe = Lease("~aside", 9, 2, SET_ASIDE_UNTIL_MS, 0), Lease("~unripe", 11, 1, SET_ASIDE_UNTIL_MS, 0)
    cursor = Cursor(KEY, 0, 12, {lease.token: lease for lease in (unripe, aside, held, acked, due)})
    known = {offset: Known(None if offset == 3 else "ab"[offset % 2], 100 + offset) for offset in range(12)}
    riding = Plan(tokens={"acked"}, acked=[(acked, [0, 2])])
    owed = OwedMessages.by(cursor, known, NOW, riding, {2, 10}, lambda stored_at_ms: stored_at_ms < 111)
    ready = [key_plan.Ready(1, "b", NOW, due), key_plan.Ready(3, 3, NOW, due), key_plan.Ready(9, "b", 109, aside)]
    assert owed.ready == ready
    assert owed.held == {5, 7, 8, 11}
    assert owed.blocked(known) == {"a", "b"}
    assert [each.offset for each in owed.in_turn(known, [])] == [1, 3]


def test_the_bound_of_what_is_over_and_stays_is_that_of_one_write() -> None:
    over = [Lease(f"{number:03}", 2 * number, 1, NOW, 1) for number in range(TAKEOVERS_MAX + 4)]
    cursor = Cursor(KEY, 0, 100, {lease.token: lease for lease in over})
    group = replace(GROUP, max_in_flight=1)
    for count in (0, 1, TAKEOVERS_MAX - 1, TAKEOVERS_MAX, TAKEOVERS_MAX + 1):
        for acked in (0, count // 2):
            taken = tuple((lease, range(1)) for lease in over[acked:count])
            picked = KeyPick(taken, 0, 100)
            demanded = key_plan.overdue(cursor, group, picked, NOW, {lease.token for lease in over[:acked]})
            assert [*demanded] == over[count : max(count, TAKEOVERS_MAX)]


def test_what_is_over_and_stays_is_demanded_where_it_could_exceed_the_cap() -> None:
    live, over = Lease("live", 0, 2, NOW + 1, 1), Lease("over", 2, 3, NOW, 1)
    taken, acked = Lease("taken", 5, 1, NOW, 1), Lease("acked", 6, 1, NOW, 1)
    cursor = Cursor(KEY, 0, 7, {lease.token: lease for lease in (taken, acked, live, over)})
    picked = KeyPick(((taken, range(1)),), 0, 7)
    for cap, demanded in ((5, [over]), (6, [])):
        group = replace(GROUP, max_in_flight=cap)
        assert [*key_plan.overdue(cursor, group, picked, NOW, {"acked"})] == demanded
