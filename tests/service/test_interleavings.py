"""Other calls between the look of a pop and its write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import MIB, TAKEOVERS_MAX
from chalicelib.core.dead_letters.bury import DEAD_TOGETHER_MAX
from chalicelib.core.table.writes import Add, Item, Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages


class Interrupted(MemoryStore):
    """Before the next claim is applied, something else happens; or after it, and the claim comes again, as if its reply
    were lost."""

    def __init__(self, keeps_blobs: bool = False) -> None:
        super().__init__(keeps_blobs)
        self.meanwhile: Callable[[], object] | None = None
        self.before_repeat: Callable[[], object] | None = None
        self.refused = 0

    def write(self, write: Write) -> Item:
        is_claim = any(isinstance(effect, Add) and effect.path == ("claims",) for effect in write.effects)
        if is_claim and self.meanwhile:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        if is_claim and self.before_repeat:
            happens, self.before_repeat = self.before_repeat, None
            super().write(write)
            happens()
        try:
            return super().write(write)
        except Exception:
            self.refused += 1
            raise


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pop(api: Api, count: int, **fields: object) -> tuple[list[int], list[str]]:
    """Offsets and receipts."""
    found = api.pop("t", "g", {"max_messages": count, **fields})["messages"]
    return [each["offset"] for each in found], [each["receipt"] for each in found]


def test_a_pop_that_others_outrun_reads_on_in_the_log(store: Interrupted, clock: Clock) -> None:
    """Full segments end what a pop has read; another took all of that before it claimed."""
    api, other = with_messages(store, clock, 0), instance(store, clock, 7)
    for number in range(40):
        api.produce("t", {"messages": [{"body": str(number)}]})
    log = next(items for pk, items in store._items.items() if pk.startswith("log#"))
    second, *_ = sorted(int(base) for base in log if int(base))
    store.meanwhile = lambda: pop(other, second)
    assert pop(api, 1)[0] == [second]


def test_a_claim_sent_again_of_which_all_is_taken_takes_what_is_ready(store: Interrupted, clock: Clock) -> None:
    api, other = with_messages(store, clock, 2, invisible_ms=1_000), instance(store, clock, 2)

    def taken_over() -> None:
        clock.ms += 1_000
        assert pop(other, 1, invisible_ms=60_000)[0] == [0]

    store.before_repeat = taken_over
    assert pop(api, 1)[0] == [1]


def test_an_attempt_whose_lease_runs_out_on_the_way_takes_it_once(store: Interrupted, clock: Clock) -> None:
    api = with_messages(store, clock, 3)

    def late() -> None:
        clock.ms += 2_000

    store.meanwhile = late
    found = api.pop("t", "g", {"attempt_id": "a", "invisible_ms": 1_000})["messages"]
    assert [(each["offset"], each["attempt"]) for each in found] == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("wanted", [8, 3])
def test_two_calls_of_one_attempt_at_once_get_the_same(store: Interrupted, clock: Clock, wanted: int) -> None:
    api, other = with_messages(store, clock, 20, invisible_ms=1_000), instance(store, clock, 7)
    pop(api, 3)
    clock.ms += 2_000
    first: list[tuple[list[int], list[str]]] = []
    store.meanwhile = lambda: first.append(pop(other, 8, attempt_id="x"))
    second = pop(api, wanted, attempt_id="x")
    assert second == first[0] == pop(api, 8, attempt_id="x")
    assert second[0] == list(range(8))


def test_what_another_call_of_an_attempt_had_until_now_is_taken_over(store: Interrupted, clock: Clock) -> None:
    api, other = with_messages(store, clock, 3), instance(store, clock, 7)

    def meanwhile() -> None:
        pop(other, 3, attempt_id="a", invisible_ms=1_000)
        clock.ms += 2_000

    store.meanwhile = meanwhile
    found = api.pop("t", "g", {"max_messages": 3, "attempt_id": "a"})["messages"]
    assert [(each["offset"], each["attempt"]) for each in found] == [(0, 2), (1, 2), (2, 2)]


def test_a_call_of_an_attempt_also_returns_what_its_repeat_took_meanwhile(store: Interrupted, clock: Clock) -> None:
    """Another consumer has moved the queue on, so the repeat does not recognise the claim of the first call."""
    api = with_messages(store, clock, 4)
    repeated: list[object] = []

    def others() -> None:
        pop(api, 1)
        repeated.extend(pop(instance(store, clock, 2), 1, attempt_id="a")[0])

    store.meanwhile = others
    assert pop(api, 1, attempt_id="a")[0] == [1, 2]
    assert repeated == [1]


def test_an_ack_in_a_pop_is_not_sent_again_when_the_pop_claims_twice(store: Interrupted, clock: Clock) -> None:
    api = with_messages(store, clock, 60, invisible_ms=1_000)
    for _ in range(30):
        pop(api, 1)
    clock.ms += 2_000
    _, receipts = pop(api, 1, invisible_ms=60_000)
    offsets, _ = pop(api, TAKEOVERS_MAX + 5, ack=receipts)
    assert len(offsets) == TAKEOVERS_MAX + 5
    assert store.refused == 0


def test_many_leases_are_buried_together(store: Interrupted, clock: Clock) -> None:
    api = with_messages(store, clock, 400, invisible_ms=60_000, max_attempts=1)
    for _ in range(200):
        pop(api, 1)
    clock.ms += 60_000
    before = store.meter.copy()
    assert pop(api, 1)[0] == [200]
    assert store.meter.since(before).round_trips < 2 * 200 / TAKEOVERS_MAX + 20
    assert api.get_group("t", "g")["dead"] == 200
    assert TAKEOVERS_MAX < DEAD_TOGETHER_MAX


def test_a_message_a_reset_brings_back_is_acked_though_it_was_dead_before(store: Interrupted, clock: Clock) -> None:
    api = with_messages(store, clock, 10, max_attempts=1)
    _, receipts = pop(api, 1)
    api.nack("t", "g", {"receipts": receipts})
    api.reset_group("t", "g", {"to": "earliest"})
    offsets, receipts = pop(api, 10)
    assert offsets == list(range(10))
    for _ in range(2):
        assert api.ack("t", "g", {"receipts": receipts}) == {"acked": 10, "failed": []}


def test_one_dead_letter_makes_later_acks_no_dearer(store: Interrupted, clock: Clock) -> None:
    api = with_messages(store, clock, 30, max_attempts=1)
    _, receipts = pop(api, 1)
    api.nack("t", "g", {"receipts": receipts})
    _, receipts = pop(api, 10)
    before = store.meter.copy()
    api.ack("t", "g", {"receipts": receipts})
    spent = store.meter.since(before)
    assert (spent.write_units, spent.read_units, spent.round_trips) == (1, 0, 1)


def test_a_repeat_acks_what_the_first_call_has_taken_over(store: Interrupted, clock: Clock) -> None:
    """The first call has taken over the message that the repeat acks, by an old receipt."""
    api, other = with_messages(store, clock, 3), instance(store, clock, 7)
    api.put_group("t", "g", {"settle_by": "message", "invisible_ms": 1_000})
    _, receipts = pop(api, 1)
    clock.ms += 995
    between: list[int] = []

    def first_call() -> None:
        clock.ms += 20
        between.extend(pop(other, 2, attempt_id="x")[0])

    store.meanwhile = first_call
    answer = api.pop("t", "g", {"max_messages": 2, "attempt_id": "x", "ack": receipts})
    assert (between, answer["failed"]) == ([0, 1], [])
    clock.ms += 5_000
    assert 0 not in pop(other, 3)[0]


def test_a_claim_that_passes_expired_messages_passes_no_others(store: Interrupted, clock: Clock) -> None:
    """Another pop has passed the same before it."""
    api, other = with_messages(store, clock, 0), instance(store, clock, 7)
    api.produce("t", {"messages": [{"body": "short", "ttl_ms": 1_000}] * 2 + [{"body": "long"}] * 6})
    clock.ms += 1_000
    between: list[int] = []
    store.meanwhile = lambda: between.extend(pop(other, 1)[0])
    assert pop(api, 2)[0] == [3, 4]
    assert between == [2]


def test_a_claim_that_is_overtaken_takes_no_more_than_fits(store: Interrupted, clock: Clock) -> None:
    api, other = instance(store, clock), instance(store, clock, 7)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    for body in ("small", "1" * (5 * MIB // 2), "2" * (5 * MIB // 2)):
        api.produce("t", {"messages": [{"body": body}]})
    store.meanwhile = lambda: pop(other, 1)
    assert pop(api, 3)[0] == [1]


def test_a_claim_that_is_repeated_late_returns_what_others_have_left_of_it(clock: Clock) -> None:
    """Receipts name messages, so nothing stays of a lease that was taken over."""

    class Late(Interrupted):
        late: Callable[[], object] | None = None

        def write(self, write: Write) -> Item:
            answer = super().write(write)
            if self.late:
                happens, self.late = self.late, None
                happens()
                return super().write(write)
            return answer

    store = Late()
    api, other = with_messages(store, clock, 2, settle_by="message", invisible_ms=1_000), instance(store, clock, 7)
    for _ in range(2):
        pop(api, 1)
    clock.ms += 1_000
    between: list[int] = []

    def take_one() -> None:
        clock.ms += 1_000
        between.extend(pop(other, 1)[0])

    store.late = take_one
    assert pop(api, 2)[0] == [1]
    assert between == [0]
