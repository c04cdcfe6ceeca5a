"""Every message has one owner and one end, however many callers act on a cursor, and however old the one they know is.

Random histories of a cursor in the hands of many, each of whom plans from some earlier sight of it. A change that a
plan's guards refuse does not happen; one that they let pass must keep the invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.core.base.limits import LEASES_MAX
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.claim_plan import LeaseTokens, pick, take
from chalicelib.core.cursors import cursor_writes as steps
from chalicelib.core.cursors.broadcast import forget, newest, note
from chalicelib.core.cursors.cursor import (
    LEASES_FEW,
    Cursor,
    ReceiptState,
    RetryPage,
    all_cursors_of,
    completed,
    cursors_of,
    read_again,
)
from chalicelib.core.cursors.cursor_writes import CursorChange
from chalicelib.core.cursors.lease import ACKED, MOVED, SET_ASIDE_UNTIL_MS, UNKNOWN_MS, Lease, mark, runs
from chalicelib.core.table.writes import Item, Key, Path, RemoveItem, Set, Write
from local.memory.evaluate import after, holds
from tests.support.late_store import LateStore

KEY = Key("group", "cursor")
END = 60
CAP = 12
GROUP = Group("t", "g", "gid", [], 0, max_in_flight=CAP)

Fates = dict[int, str]
"""Offset -> the token of the lease that owes it, or `settled`."""
SETTLED = "settled"


class History:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 1_000_000
        self.item: Item = after(None, steps.create(Cursor.fresh(KEY, 0))) or {}
        self.sights = [self.item]
        self.tokens = 0
        self.delivered: set[tuple[str, int]] = set()
        """Tokens and offsets of which someone holds a receipt."""
        self.firsts: dict[int, int] = {}
        """When each message was first delivered, where that is noted."""
        self.late_heartbeats: set[str] = set()
        """Tokens of leases that had run out before their holders extended them in place: these take no room."""
        self.sent: list[tuple[Write, set[int]]] = []
        """Writes that a late repeat may bring back, with the offsets that each may take from their owners."""

    @property
    def acts(self) -> tuple[Callable[[], None], ...]:
        """The steps of a history, at random."""
        return self.pop, self.pop, self.ack, self.move, self.prolong, self.bury, self.prune, self.wait

    @property
    def cursor(self) -> Cursor:
        return Cursor.of(self.item)

    def fates(self) -> Fates:
        found: Fates = dict.fromkeys(range(self.cursor.next), SETTLED)
        for lease in self.cursor.owing:
            for offset in lease.owed_offsets:
                assert found[offset] == SETTLED, f"{offset} is owed twice"
                found[offset] = lease.token
        return found

    def apply(self, write: Write, named: Iterable[int] = ()) -> bool:
        self.sent.append((write, set(named)))
        if not all(holds(guard, self.item) for guard in write.guards):
            return False
        over = {token for token, lease in self.cursor.leases.items() if lease.deadline <= self.now}
        self.item = after(self.item, write) or {}
        self.late_heartbeats |= {token for token in over & {*self.cursor.leases} if self.lasts(token)}
        self.sights.append(self.item)
        return True

    def lasts(self, token: str) -> bool:
        return self.cursor.leases[token].deadline > self.now

    def sight(self) -> Cursor:
        """The cursor as a caller last saw it: mostly recent, at times old."""
        return Cursor.of(self.sights[-min(len(self.sights), self.chance.choice((1, 1, 2, 3, 10)))])

    def token(self, prefix: str = "") -> str:
        self.tokens += 1
        return f"{prefix}{self.tokens}"

    # -- what can happen ----------------------------------------------------------------------------------------------

    def pop(self) -> None:
        seen, before = self.sight(), self.fates()
        looked_at = self.now - self.chance.choice((0, 0, 4, 600))  # what was parked then may be due by now
        picked = pick(seen, GROUP, self.chance.randint(seen.next, END), self.chance.choice((1, 3, 8)), looked_at)
        until_ms, noted_ms = self.now + self.chance.choice((5, 500)), self.chance.choice((None, self.now))
        tokens = LeaseTokens(self.token(), self.token)
        change = take(picked, seen, [], tokens, until_ms, is_exact=False, noted_ms=noted_ms)
        change += steps.prune(seen, self.now) + steps.note_pop(None, self.now)
        live = {token for token, lease in self.cursor.leases.items() if lease.deadline > self.now}
        if change.tokens and self.apply(steps.write(seen, change), picked.offsets(seen)):
            for token in change.tokens:
                for offset in self.cursor.leases[token].owed_offsets:
                    assert before.get(offset) not in (SETTLED, *live), f"{offset} was not to be had"
                    self.delivered.add((token, offset))
            assert self.cursor.next <= END
            self.only_changed(before, change)

    def ack(self) -> None:
        seen, before = self.sight(), self.fates()
        lease, indexes = self.some(seen)
        if not lease:
            return
        acked = {lease.start + index for index in indexes}
        if self.apply(steps.write(seen, steps.ack(lease, indexes)), acked):
            for offset, fate in self.fates().items():
                was = before[offset]
                assert fate == (SETTLED if offset in acked and was == lease.token else was)

    def move(self) -> None:
        """Extends or gives back."""
        seen, before = self.sight(), self.fates()
        lease, indexes = self.some(seen)
        if not lease or lease.deadline <= self.now:
            return
        prefix, deadline = self.chance.choice(("", "~")), self.now + self.chance.choice((0, 3, 50, 500))
        new = [
            Lease(self.token(prefix), lease.start + run.start, len(run), deadline, lease.attempt, (), lease.first_at_ms)
            for run in runs(indexes)
        ]
        change = steps.move(lease, indexes, new)
        if self.apply(steps.write(seen, change), (lease.start + index for index in indexes)):
            if not prefix:
                self.delivered |= {(each.token, offset) for each in new for offset in each.owed_offsets}
            assert all(before[lease.start + index] == lease.token for index in indexes)
            self.only_changed(before, change)

    def prolong(self) -> None:
        """A caller takes over a lease only if it is still due: `pop` asserts that no live one is taken."""
        seen, before = self.sight(), self.fates()
        lease, _ = self.some(seen)
        if not lease:
            return
        deadline = self.now + self.chance.choice((0, 3, 50, 500))
        if self.apply(steps.write(seen, steps.prolong(lease, deadline))):
            assert self.fates() == before
            assert self.cursor.leases[lease.token].owed_offsets == lease.owed_offsets
            assert self.cursor.leases[lease.token].deadline == deadline

    def bury(self) -> None:
        seen, before = self.sight(), self.fates()
        lease, indexes = self.some(seen, parked=True)
        if not lease:
            return
        buried = {lease.start + index for index in indexes}
        if self.apply(steps.write(seen, steps.bury([(lease, indexes)], len(indexes))), buried):
            assert all(before[offset] == lease.token for offset in buried)
            assert self.fates() == before | dict.fromkeys(buried, SETTLED)

    def prune(self) -> None:
        seen, before = self.sight(), self.fates()
        change = steps.prune(seen, self.now)
        if change:
            self.apply(steps.write(seen, change))
        assert self.fates() == before

    def late(self) -> None:
        """A request arrives once more, after its caller has given up or gone on. Messages that it takes anew are
        nobody's until its lease runs out; from others it takes no more than it did before, and settles nothing else."""
        if not self.sent:
            return
        write, named = self.chance.choice(self.sent[-20:])
        before = self.fates()
        self.apply(write, named)
        for offset, fate in self.fates().items():
            assert offset in named or offset not in before or fate == before[offset], f"{offset} was not meant"

    def wait(self) -> None:
        self.now += self.chance.choice((1, 5, 600, 700_000))

    # -- what must hold -----------------------------------------------------------------------------------------------

    def some(self, seen: Cursor, parked: bool = False) -> tuple[Lease | None, list[int]]:
        """A lease, and some of what it owes."""
        leases = [lease for lease in seen.owing if parked or not lease.parked]
        if not leases:
            return None, []
        lease = self.chance.choice(leases)
        return lease, sorted(self.chance.sample(lease.owed, self.chance.randint(1, len(lease.owed))))

    def only_changed(self, before: Fates, change: CursorChange) -> None:
        """Everything is where it was, or in one of the new leases; nothing got settled."""
        for offset, fate in self.fates().items():
            assert fate == before.get(offset) or fate in change.tokens

    def check(self) -> None:
        live = [lease for lease in self.cursor.owing if not lease.parked and self.lasts(lease.token)]
        assert sum(len(lease.owed) for lease in live if lease.token not in self.late_heartbeats) <= CAP
        fates = self.fates()
        owed = [offset for offset, fate in fates.items() if fate != SETTLED and not fate.startswith("~")]
        assert self.cursor.committed(ordered=False) == min([self.cursor.next, *owed])
        for lease in self.cursor.owing:
            for offset in lease.owed_offsets:
                if lease.first_at_ms is not None or offset in self.firsts:
                    assert self.firsts.setdefault(offset, lease.first_at_ms or 0) == lease.first_at_ms
        for token, offset in self.delivered:
            if fates[offset] == token:
                assert self.cursor.state_of(token, self.cursor.leases[token].start, offset) is ReceiptState.OWED


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_every_message_has_one_owner_and_one_end(seed: int) -> None:
    history = History(seed)
    for _ in range(50):
        history.chance.choice(history.acts)()
        history.check()


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_requests_that_arrive_once_more_take_nothing_else(seed: int) -> None:
    history = History(seed)
    for _ in range(50):
        history.chance.choice((*history.acts, history.late, history.late))()
        history.fates()


def test_a_cursor_is_read_as_it_is_stored() -> None:
    rest = {"pages": {"p": [4, 5, 6]}, "zone": ["z", 9], "purged": 1, "returns": 2}
    bare = {**KEY._asdict(), "epoch": 3, "next": [7], "leases": {}, "dead": 2, "claims": 8, "by": ""}
    item = {**bare, **rest, "leases": {"t": [1, 2, 3, 4]}, "segment": 5, "at": 9, "by": "ann"}
    page, lease = RetryPage("p", 4, 5, 6), Lease("t", 1, 2, 3, 4)
    whole = Cursor(KEY, 3, 7, {"t": lease}, 5, 9, "ann", 2, 8, {"p": page}, True, ("z", 9), 1, 2)
    assert (Cursor.or_none(item), Cursor.or_none({}), Cursor.or_none(None)) == (whole, None, None)
    assert Cursor.of(bare) == Cursor(KEY, 3, 7, {}, dead=2, claims=8)
    assert ("t" in Cursor.of(item).leases, "u" in Cursor.of(item).leases) == (True, False)
    assert Cursor.fresh(KEY, 7, 1) == Cursor(KEY, 0, 7, {}, purged_at_ms=1, exists=False)
    assert whole.as_created(1, 2, "bob") is whole


def test_new_cursors_are_those_of_their_consumer() -> None:
    group = replace(GROUP, starts=[7, 8], mode="broadcast")
    own = Cursor(group.cursor_key(1, "ann"), 1, 9, {})
    fresh = Cursor.fresh(group.cursor_key(0, "ann"), 7)
    assert completed(group, range(2), [own], "ann") == [fresh, own]


def paths(change: CursorChange) -> list[Path]:
    return [effect.path for effect in change.effects if not isinstance(effect, RemoveItem)]


def item_at(key: Key) -> Item:
    return after(None, steps.create(Cursor(key, 1, 9, {}))) or {}


def test_the_cursors_of_a_group_are_found_among_its_items() -> None:
    topic, group = Topic("t", "t", 0, 0, queues=2), replace(GROUP, starts=[7, 8])
    items = [item_at(own.cursor_key(1)) for own in (group, replace(group, id="former"))]
    known = [Cursor.fresh(group.cursor_key(0), 7), Cursor.of(items[0])]
    assert cursors_of(group, topic, items) == all_cursors_of(group, topic, items) == known
    broadcast = replace(group, mode="broadcast")
    of_ann = item_at(broadcast.cursor_key(1, "ann"))
    known = [Cursor.fresh(group.cursor_key(0, "ann"), 7), Cursor.of(of_ann)]
    assert cursors_of(broadcast, topic, [of_ann], "ann") == known
    assert all_cursors_of(broadcast, topic, [of_ann]) == known[1:]


def test_a_cursor_that_is_read_again_is_as_it_is_now() -> None:
    store, item = LateStore(), item_at(KEY)
    store.fall_behind()
    store.put_all([item])
    assert read_again(store, [KEY, Key("group", "other")]) == [Cursor.of(item), None]
    assert read_again(store, []) == []


def test_a_pop_holds_its_leases_and_those_split_off_them_until_they_end() -> None:
    ends = {"attempt.1": 10, "attempt.2": 11, "attemptsplit": 12, "other": 12, "attempt.9": 12}
    leases = {token: Lease(token, number, 1, ms, 1) for number, (token, ms) in enumerate(ends.items())}
    leases["attempt.9"] = replace(leases["attempt.9"], marks=(mark(ACKED, [0]),))
    held = Cursor(KEY, 1, 9, leases).held("attempt", 10)
    assert held == [leases["attempt.2"], leases["attemptsplit"]]


def test_messages_are_leased_or_waiting_until_they_are_due() -> None:
    kinds = {"": (20, 1), "x": (10, 2), "~": (20, 4), "~x": (10, 8)}
    leases = {f"{kind}t": Lease(f"{kind}t", 20 * count, count, ends, 1) for kind, (ends, count) in kinds.items()}
    leases |= {
        f"{token}m": replace(each, token=f"{token}m", count=16, marks=(mark(ACKED, range(each.count)),))
        for token, each in leases.items()
    }
    seen = Cursor(KEY, 1, 999, leases, pages={"p": RetryPage("p", 5, 100, 0), "q": RetryPage("q", 50, 1_000, 0)})
    assert (seen.live(10), seen.retrying(10)) == (1 + 15, 4 + 12 + 1_100)
    assert (seen.live(9), seen.retrying(9)) == (1 + 15 + 2 + 14, 4 + 12 + 8 + 8 + 1_100)
    aside = [Lease(f"~a{count}", count, count, SET_ASIDE_UNTIL_MS, 0) for count in (1, 2)]
    assert replace(seen, leases=leases | {lease.token: lease for lease in aside}).aside == 3
    assert [lease.token for lease in seen.due(10)] == ["xt", "xtm", "~xt", "~xtm"]


def test_a_cursor_is_read_as_it_was_made_and_as_the_last_pop_left_it() -> None:
    group = replace(GROUP, starts=[7], purged_at_ms=5)
    made = completed(group, [0], [])[0].as_created(3, 4, "ann")
    assert made == Cursor(made.key, 3, 7, {}, None, 4, "ann", purged_at_ms=5, exists=False)
    item = after(None, steps.create(made)) or {}
    assert Cursor.of(item) == replace(made, exists=True)
    item = after(item, steps.write(made, steps.note_pop("bob", 9, "z"))) or {}
    popped = replace(made, exists=True, last_pop_at_ms=9, last_consumer_id="bob", last_zone=("z", 9), claims=1)
    assert Cursor.of(item) == popped
    noted = note(popped, 10)
    assert [noted.landed(before) for before in ({**item, "at": 10}, item, {})] == [True, False, False]


def test_a_claim_tends_many_leases_a_due_page_and_used_up_messages() -> None:
    lease, page = Lease("t", 0, 1, 10, 2), RetryPage("p", 10, 1, 0)
    few = {f"t{number}": replace(lease, token=f"t{number}") for number in range(LEASES_FEW)}
    seen = replace(Cursor.fresh(KEY, 9), leases=few, pages={"p": page})
    assert not seen.needs_tending(9, max_attempts=2)
    assert replace(seen, leases={**few, "t": lease}).needs_tending(9, max_attempts=2)
    assert replace(seen, leases={}).needs_tending(10, max_attempts=2)
    assert [replace(seen, pages={}).needs_tending(10, attempts) for attempts in (2, 3)] == [True, False]


def test_a_write_demands_the_epoch_that_was_read() -> None:
    item = after(None, steps.create(Cursor(KEY, 3, 0, {}))) or {}
    writes = [steps.write(Cursor(KEY, epoch, 0, {}), steps.note_pop(None, 9)) for epoch in (2, 3, 4)]
    assert [all(holds(guard, item) for guard in write.guards) for write in writes] == [False, True, False]


def test_a_receipt_stands_as_its_own_lease_does() -> None:
    seen = Cursor(KEY, 1, 4, {"t": Lease("t", 2, 2, 5, 1, (mark(ACKED, [0]),))})
    assert (seen.state_of("t", 2, 2), seen.state_of("t", 2, 3)) == (ReceiptState.ACKED, ReceiptState.OWED)
    assert (seen.state_of("t", 0, 1), seen.state_of("u", 2, 3)) == (ReceiptState.ACKED, ReceiptState.LOST)
    moved = replace(seen, leases={"t": Lease("t", 2, 2, 5, 1, (mark(MOVED, [0]),))})
    assert [moved.state_of("t", 2, offset) for offset in (2, 3)] == [ReceiptState.LOST, ReceiptState.OWED]


def claimed(item: Item, token: str) -> Write:
    return steps.write(Cursor.of(item), steps.claim(token, 2, None, 1_000_500) + steps.not_beyond(END - 2))


def revived() -> tuple[History, Cursor, Lease]:
    """A lease that was acked to the end, and its claim has arrived again: it holds other messages now. The cursor and
    the lease as they were seen before."""
    history = History(0)
    claim = claimed(history.item, "t")
    assert history.apply(claim)
    seen = history.cursor
    lease = seen.leases["t"]
    assert history.apply(steps.write(seen, steps.ack(lease, lease.owed)))
    assert history.apply(claim)
    assert history.cursor.leases["t"].start == 2
    return history, seen, lease


@pytest.mark.parametrize("indexes", [[0], [0, 1]])
def test_an_ack_never_counts_for_other_messages_under_the_same_token(indexes: list[int]) -> None:
    history, seen, lease = revived()
    before = history.fates()
    history.apply(steps.write(seen, steps.ack(lease, indexes)))
    assert history.fates() == before
    assert history.cursor.state_of("t", lease.start, lease.start) is ReceiptState.ACKED


def test_a_move_never_takes_other_messages_under_the_same_token() -> None:
    history, seen, lease = revived()
    before = history.fates()
    history.apply(steps.write(seen, steps.move(lease, [0, 1], [Lease("u", 0, 2, 1_000_900, 1)])))
    assert history.fates() == before


def test_messages_whose_lease_was_extended_meanwhile_are_not_buried() -> None:
    """A burial by a receipt knows no deadline, and does not demand one."""
    history = History(0)
    assert history.apply(claimed(history.item, "t"))
    seen, lease = history.cursor, history.cursor.leases["t"]
    assert history.apply(steps.write(seen, steps.prolong(lease, lease.deadline + 1)))
    assert not history.apply(steps.write(seen, steps.bury([(lease, [0])], 1)))
    assert history.apply(steps.write(seen, steps.bury([(replace(lease, deadline=UNKNOWN_MS), [0])], 1)))


def test_a_move_has_landed_while_any_of_its_new_leases_stands() -> None:
    """Another may have been delivered and acked before the repeat."""
    new = [Lease("~one", 0, 1, 5, 1), Lease("~other", 2, 1, 5, 1)]
    landed = steps.write(Cursor.fresh(KEY, 4), steps.move(Lease("t", 0, 3, 5, 1), [0, 2], new)).landed
    assert landed is not None
    assert [landed({"leases": {each.token: each.listed()}}) for each in new] == [True, True]


def test_leases_that_are_extended_together_all_are_or_none_counts() -> None:
    one, other = Lease("one", 0, 2, 5, 1), Lease("other", 2, 2, 5, 1)
    cursor = Cursor(Key("pk", "sk"), 1, 4, {"one": one, "other": other})
    landed = steps.write(cursor, steps.prolong(one, 9) + steps.prolong(other, 9)).landed
    assert landed is not None
    assert landed({"leases": {"one": [0, 2, 9, 1], "other": [2, 2, 9, 1]}})
    assert not landed({"leases": {"one": [0, 2, 9, 1], "other": [2, 2, 5, 1]}})


def test_pruning_never_takes_away_other_messages_under_the_same_token() -> None:
    history = History(0)
    claim = claimed(history.item, "t")
    assert history.apply(claim)
    assert history.apply(Write(KEY, (), (Set(("leases", "t"), [0, 2, 1_000_500, 1, b"a\x03"]),)))
    seen = history.cursor
    pruning = steps.write(seen, steps.prune(seen, history.now))
    assert history.apply(pruning)
    assert history.apply(claim)
    before = history.fates()
    history.apply(pruning)
    assert history.fates() == before


def test_the_newest_32_witnesses_stay_until_ten_minutes_after_their_end() -> None:
    leases = [Lease(f"t{number:02}", number, 1, number, 1, (mark(MOVED, [0]),)) for number in range(36)]
    cursor = Cursor(KEY, 1, 36, {lease.token: lease for lease in leases})
    for now, count in ((0, 4), (600_004, 4), (600_005, 5)):
        gone = {path[1] for path in paths(steps.prune(cursor, now))}
        assert gone == {lease.token for lease in leases[:count]}


def test_nothing_that_needs_a_lease_is_written_to_a_full_cursor() -> None:
    history = History(0)
    full = {f"t{number}": [0, 1, 1_000_500, 1] for number in range(LEASES_MAX)}
    assert history.apply(Write(KEY, (), (Set(("leases",), full),)))
    new = Lease("~u", 0, 1, 1_000_500, 1)
    for change in (steps.claim("u", 1, None, 1_000_500), steps.set_aside(new), steps.redrive([new], 1)):
        assert not history.apply(steps.write(history.cursor, change))
    assert history.apply(steps.write(history.cursor, steps.has_room() + steps.note_pop(None, 0)))


def test_a_redrive_knows_its_own_retry() -> None:
    history = History(0)
    redrive = steps.write(history.cursor, steps.redrive([Lease("~u", 0, 1, 0, 1)], 1))
    assert not redrive.landed(history.item)
    assert history.apply(redrive)
    assert redrive.landed(history.item)


def test_the_newest_cursor_of_one_instant_is_the_same_in_any_order() -> None:
    keys = [Key("group", f"cursor#{number}") for number in range(3)]
    cursors = [replace(Cursor.fresh(key, 0), last_pop_at_ms=1) for key in keys]
    assert [newest(order) for order in permutations(cursors)] == [cursors[-1]] * 6


def test_pruning_takes_what_is_acked_or_old_and_leaves_new_witnesses() -> None:
    history = History(0)
    end = history.now

    def lease(token: str, deadline: int, letter: bytes) -> Lease:
        return Lease(token, 0, 1, deadline, 1, (mark(letter, [0]),))

    witnesses = [lease(f"w{number}", end - number, MOVED) for number in range(steps.WITNESSES_MAX + 1)]
    gone = [
        *(lease("acked", end, ACKED), lease("~parked", end, MOVED)),
        *(lease("old", end - steps.WITNESS_MS - 1, MOVED), witnesses[-1]),
    ]
    inert = [*witnesses, *gone[:3], lease("touched", end, ACKED)]
    items = {each.token: each.listed() for each in inert}
    assert history.apply(Write(KEY, (), (Set(("leases",), items),)))
    pruned = steps.prune(history.cursor, end, touched=["touched"])
    assert sorted(paths(pruned)) == sorted(each.path for each in gone)


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_acking_all_that_is_owed_settles_everything(seed: int) -> None:
    history = History(seed)
    for _ in range(30):
        history.chance.choice((history.pop, history.ack, history.move, history.wait))()
    for lease in history.cursor.owing:
        assert history.apply(steps.write(history.cursor, steps.ack(lease, lease.owed)))
    history.now += 10**9
    while change := steps.prune(history.cursor, history.now):
        assert history.apply(steps.write(history.cursor, change))
    assert history.cursor.committed(ordered=False) == history.cursor.next
    assert history.cursor.leases == {}


@given(st.integers(0, 2**32))
def test_a_reset_voids_whatever_was_seen_before(seed: int) -> None:
    history = History(seed)
    for _ in range(20):
        history.chance.choice((history.pop, history.ack, history.move))()
    seen = history.cursor
    reset = steps.reset(seen, 0)
    assert history.apply(reset)
    assert reset.landed(history.item)
    before = history.item
    for change in (
        steps.claim("late", 1, None, history.now),
        *(steps.ack(lease, lease.owed) for lease in seen.owing),
        *(steps.move(lease, lease.owed, []) for lease in seen.owing),
    ):
        assert not history.apply(steps.write(seen, change))
    assert history.item == before


def test_a_purge_does_not_take_another_reset_for_itself() -> None:
    item = after(None, steps.create(Cursor.fresh(KEY, 0))) or {}
    purge, reset = (steps.reset(Cursor.of(item), 5, purged_at_ms) for purged_at_ms in (7, None))
    assert purge.landed is not None
    assert [purge.landed(after(item, write) or {}) for write in (purge, reset)] == [True, False]


def test_a_cursor_that_is_kept_for_its_dead_letters_begins_anew() -> None:
    item = after(None, steps.create(Cursor.fresh(KEY, 0))) or {}
    item = after(item, Write(KEY, (), (Set(("next",), [9]), Set(("segment",), 5), Set(("dead",), 2)))) or {}
    left = after(item, forget(Cursor.of(item), 4, now=8)) or {}
    assert Cursor.of(left) == Cursor(KEY, 8, 4, {}, dead=2)
    again = after(left, forget(Cursor.of(left), 4, now=7)) or {}  # by a clock that is behind
    assert Cursor.of(again).epoch == 9
