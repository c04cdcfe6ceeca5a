"""The slots of a pushed group, and its pause: what each write demands, and what it cannot undo."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import CLOCKS_APART_MS, HOUR_MS, PUSH_TIMEOUT_MS_MAX, SECOND_MS
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.push import Push
from chalicelib.core.table.writes import Item, Refused, Write
from chalicelib.core.telemetry.telemetry import Telemetry
from chalicelib.push.slots import PAUSE_MS_MAX, SLOT_SPARE_MS, PushPause, PushSlot, Slots, hold, take
from local.memory.store import MemoryStore
from tests.support.clock import Clock

PUSH = Push({"url": "https://a.example/", "concurrency": 2, "timeout_ms": 5_000})
GROUP = Group("topic", "g", "group", [], 0)
HELD_MS = PUSH.timeout_ms + SLOT_SPARE_MS


class Shelf(MemoryStore):
    """Remembers its writes, to apply them again later."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Write] = []

    def write(self, write: Write) -> Item:
        self.written.append(write)
        return super().write(write)

    def item(self, slot: PushSlot) -> dict[str, object]:
        return dict(self._items[slot.key.pk][slot.key.sk])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slots(shelf: Shelf, clock: Clock) -> Slots:
    runtime = clock.runtime()
    return Slots(Env.over(shelf, runtime, Telemetry(runtime)))


def taken(slots: Slots, push: Push = PUSH) -> PushSlot:
    slot, _ = slots.take(GROUP, push)
    assert slot is not None
    return slot


def is_free(slots: Slots) -> bool:
    return slots.take(GROUP, PUSH)[0] is not None


def test_there_are_as_many_slots_as_the_concurrency(slots: Slots) -> None:
    first = taken(slots)
    assert {first.number, taken(slots).number} == {0, 1}
    assert not is_free(slots)
    slots.release(first)
    assert taken(slots).number == first.number
    assert not is_free(slots)


def test_a_slot_is_free_when_its_time_is_over_and_not_before(slots: Slots, clock: Clock) -> None:
    for _ in range(2):
        taken(slots)
    clock.sleep(HELD_MS - 1)
    assert not is_free(slots)
    clock.sleep(1)
    assert is_free(slots)


def test_two_who_read_a_free_slot_do_not_both_get_it(slots: Slots, shelf: Shelf) -> None:
    for before in (None, shelf.item(taken(slots))):
        other = PushSlot(taken(slots, Push({**PUSH.given, "concurrency": 9})).key, 0, "other", 1)
        shelf.write(take(other, shelf.item(other)))
        with pytest.raises(Refused):
            shelf.write(take(other.__class__(other.key, 0, "late", 2), before))


def test_a_take_that_is_repeated_after_the_release_is_refused(slots: Slots, shelf: Shelf, clock: Clock) -> None:
    slot = taken(slots)
    late = shelf.written[-1]
    assert shelf.write(late)  # the same request once more finds itself
    clock.sleep(1)
    slots.release(slot)
    with pytest.raises(Refused):
        shelf.write(late)
    assert is_free(slots)


def test_a_late_holder_changes_nothing(slots: Slots, shelf: Shelf, clock: Clock) -> None:
    old = taken(slots)
    clock.sleep(HELD_MS)
    new = taken(slots)
    assert (new.key, slots.kept(old, PUSH)) == (old.key, None)
    slots.release(old)
    assert shelf.item(new)["by"] == new.token
    with pytest.raises(Refused):
        shelf.write(hold(old))
    assert slots.kept(new, PUSH) == new


def test_a_slot_is_renewed_when_it_is_too_short_for_a_batch(slots: Slots, shelf: Shelf, clock: Clock) -> None:
    slot = taken(slots)
    clock.sleep(10 * SECOND_MS)
    assert slots.kept(slot, PUSH) == slot
    clock.sleep(1)
    kept = slots.kept(slot, PUSH)
    assert kept is not None
    assert kept.until_ms == clock.now() + HELD_MS == shelf.item(slot)["until"]


def test_a_slot_beyond_a_lower_concurrency_is_not_kept(slots: Slots) -> None:
    kept = [slots.kept(taken(slots), Push({**PUSH.given, "concurrency": 1})) for _ in range(2)]
    assert [slot is None for slot in kept] == [False, True]


def test_a_slot_or_a_pause_of_a_clock_that_was_ahead_does_not_count(slots: Slots, clock: Clock) -> None:
    clock.ms += HOUR_MS
    for _ in range(2):
        taken(slots)
    slots.pause(slots.take(GROUP, PUSH)[1], PAUSE_MS_MAX)
    clock.ms -= HOUR_MS
    assert is_free(slots)


def test_the_longest_slot_of_a_clock_that_is_a_little_ahead_counts(slots: Slots, clock: Clock) -> None:
    longest = Push({**PUSH.given, "concurrency": 1, "timeout_ms": PUSH_TIMEOUT_MS_MAX})
    clock.set_back_ms = -CLOCKS_APART_MS
    taken(slots, longest)
    clock.set_back_ms = 0
    assert slots.take(GROUP, longest)[0] is None


def test_a_slot_that_is_gone_is_not_kept(slots: Slots, shelf: Shelf, clock: Clock) -> None:
    slot = taken(slots)
    before = shelf.item(slot)
    shelf.remove_all([slot.key])
    clock.sleep(HELD_MS)
    assert slots.kept(slot, PUSH) is None
    with pytest.raises(Refused):
        shelf.write(take(slot, before))


def test_while_calls_pause_nobody_gets_a_slot_and_then_one_does(slots: Slots, clock: Clock) -> None:
    _, pause = slots.take(GROUP, PUSH)
    clock.sleep(HELD_MS)
    slots.pause(pause, 7_000)
    slot, pause = slots.take(GROUP, PUSH)
    assert (slot, pause.failures, pause.until_ms) == (None, 1, clock.now() + 7_000)
    clock.sleep(7_000)
    assert is_free(slots)
    assert not is_free(slots)  # one call tries
    slots.resume(pause)
    assert is_free(slots)
    assert slots.take(GROUP, PUSH)[1].failures == 0


def test_calls_that_fail_at_once_count_once(slots: Slots) -> None:
    _, pause = slots.take(GROUP, PUSH)
    for _ in range(3):
        slots.pause(pause, 1_000)
    assert slots.take(GROUP, PUSH)[1].failures == 1


def test_a_pause_is_a_minute_at_most(slots: Slots, clock: Clock) -> None:
    _, pause = slots.take(GROUP, PUSH)
    slots.pause(pause, 10 * PAUSE_MS_MAX)
    assert slots.take(GROUP, PUSH)[1].until_ms == clock.now() + PAUSE_MS_MAX


def test_an_old_success_does_not_end_a_new_pause(slots: Slots) -> None:
    _, pause = slots.take(GROUP, PUSH)
    slots.pause(pause, 1_000)
    slots.resume(PushPause(pause.key, 3))
    assert slots.take(GROUP, PUSH)[1].failures == 1
