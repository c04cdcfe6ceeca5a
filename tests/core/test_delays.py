"""Which delayed messages are delivered together, and what is left of a decision."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import STORED_LATE_MS_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.delays.decision import (
    DUE_KEPT_MS,
    NONE,
    PROMOTED_BYTES_MAX,
    PROMOTED_MAX,
    Decision,
    Slot,
    inline_bytes_max,
    is_cancelled,
    slot_of,
    together,
    waiting_ttl,
)
from chalicelib.core.delays.delayed_messages import Waiting
from chalicelib.core.delays.promoter import first_due, remaining
from chalicelib.core.log.segment import Entry, unpack
from chalicelib.core.table.writes import Item

NOW = 1_800_000_000_999
SLOTS = [Slot(NOW + number, b"message%d" % number) for number in range(3)]


def item(slot: Slot, **attributes: object) -> Item:
    return {**slot.key("tid", 0)._asdict(), **attributes}


@pytest.mark.parametrize(
    ("weights", "count"),
    [
        ([1] * (PROMOTED_MAX + 2), PROMOTED_MAX),
        ([PROMOTED_BYTES_MAX - 1, 1, 1], 2),
        ([PROMOTED_BYTES_MAX // 2, PROMOTED_BYTES_MAX // 2], 2),
        ([PROMOTED_BYTES_MAX, 1], 1),
        ([PROMOTED_BYTES_MAX - 1, 2, 1], 1),
        ([PROMOTED_BYTES_MAX + 1, 1], 1),
        ([], 0),
    ],
)
def test_as_many_are_delivered_together_as_an_entry_takes(weights: list[int], count: int) -> None:
    items: list[Item] = [
        {"entry": Entry(b"an entry", 1, place, "json", weight, b"").as_value()} for place, weight in enumerate(weights)
    ]
    assert together(items) == items[:count]


@pytest.mark.parametrize(("count", "most"), [(1, 860), (2, 846), (32, 426)])
def test_a_decision_with_its_entry_fits_a_kilobyte(count: int, most: int) -> None:
    assert inline_bytes_max(count) == most


def test_what_is_left_of_a_decision_is_to_be_removed_or_marked() -> None:
    waits, cancelled, other = item(SLOTS[0]), item(SLOTS[1], x=True), item(SLOTS[2])
    assert [is_cancelled(each) for each in (waits, cancelled)] == [False, True]
    assert slot_of(waits) == SLOTS[0]
    delivery = Decision(1, NOW, b"by", tuple(SLOTS[:2]), Entry(b"entry-id", 2, NOW, "json", 1, b""))
    cancel = Decision(1, NOW, b"by", tuple(SLOTS[:2]))
    assert remaining(delivery, [waits, cancelled, other]) == [waits, cancelled]
    assert remaining(cancel, [waits, cancelled, other]) == [waits]


def test_a_payload_is_kept_for_whole_seconds_after_it_was_due() -> None:
    assert repr(waiting_ttl(NOW)) == repr(1_800_000_000 + DUE_KEPT_MS // 1_000)


def test_each_queue_tells_when_its_first_message_is_due() -> None:
    assert first_due([[item(SLOTS[1])], []]) == [NOW + 1, None]


@pytest.mark.parametrize(("sent_at_ms", "shown_ms"), [(None, NOW), (5, 5)])
def test_a_message_keeps_its_first_id_and_when_it_was_sent(sent_at_ms: int | None, shown_ms: int) -> None:
    message = Message("a", None, "key", "tag", {"n": "v"}, ttl_ms=7, sent_at_ms=sent_at_ms)
    waiting = Waiting(message, 3, NOW + 9, b"entry-id")
    entry = waiting.packed(NOW)
    assert (entry.id, entry.count, entry.stored_at_ms) == (b"entry-id", 1, NOW)
    [packed] = unpack(entry.codec, entry.data or b"")
    assert packed.delayed_id == waiting.message_id
    assert packed == Message(
        *("a", None, "key", "tag", {"n": "v"}), ttl_ms=7, sent_at_ms=shown_ms, delayed_id=waiting.message_id
    )
    place = {"message_id": waiting.message_id, "topic": "orders", "queue": 3, "deliver_at_ms": NOW + 9}
    shown = waiting.as_json("orders")
    assert {name: shown[name] for name in place} == place


LATE = STORED_LATE_MS_MAX
ENTRY = Entry(b"entry-id", 1, NOW, "json", 1, b"")


def delivers(at_ms: int, due_ms: int, after: Decision = NONE) -> Decision:
    """The next decision, which delivers one message."""
    return after.delivering(NOW + at_ms, [Slot(NOW + due_ms, b"message.")], ENTRY, 0)


@pytest.mark.parametrize(
    ("at_ms", "reached_ms", "is_late"),
    [
        pytest.param(LATE + 1, 1, True, id="another had its turn"),
        pytest.param(LATE, 1, False, id="not long ago"),
        pytest.param(LATE + 1, 0, False, id="in its order"),
    ],
)
def test_a_message_is_late_if_its_turn_has_passed_long_ago(at_ms: int, reached_ms: int, is_late: bool) -> None:
    before = delivers(at_ms, reached_ms)
    after = delivers(0, 0, before)
    assert (after.late, before.is_last_for(NOW)) == (int(is_late), is_late)
    assert (after.at_ms, after.reached_ms) == (NOW + at_ms, NOW + reached_ms)
    [slot] = after.slots
    cancel = before.cancelling(NOW, slot, b"caller")
    assert (cancel.at_ms, cancel.reached_ms, cancel.late) == (NOW + at_ms, NOW + reached_ms, 0)
    assert (delivers(0, 0, cancel).late, cancel.is_last_for(NOW)) == (int(is_late), is_late)


def test_what_an_earlier_release_decided_may_have_reached_all_that_was_due() -> None:
    old = Decision(1, NOW + LATE + 1, b"by", (Slot(NOW, b"message1"),), ENTRY)
    assert (delivers(0, 1, old).late, old.is_last_for(NOW + 1)) == (0, False)
    assert (delivers(0, 0, old).late, old.is_last_for(NOW)) == (1, False)
    assert old.is_last_for(NOW - 1)


def test_only_the_first_messages_of_a_decision_are_late() -> None:
    before = delivers(LATE + 1, 5)
    slots = [Slot(NOW + due_ms, b"message.") for due_ms in (-1, 0, 1, 5)]
    assert before.delivering(NOW, slots, ENTRY, 0).late == 2
