"""The checks of the log, of repeats, and of messages that wait find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.examples import PLACE, broken, delivered, history
from tests.history.facts import (
    Begun,
    Cancelled,
    Sent,
    Shown,
)
from tests.history.history import OFF_MS, SKEW_MS, History

FOUND = {"look_ups_match_the_log"}


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [(Shown(PLACE, "a", "id"), set()), (Shown((0, 1), "a", "id"), FOUND), (Shown(PLACE, "a", "other"), FOUND)],
)
def test_what_readers_are_shown_is_what_is_stored(shown: Shown, wrong: set[str]) -> None:
    assert broken(history(delivered("r", 100, 1_000), shown=[shown], ids={PLACE: "id"})) == wrong


def test_look_ups_that_do_not_match_the_log_are_named() -> None:
    assert broken(history(look_ups=["id is not found"])) == {"look_ups_match_the_log"}


def test_the_log_holds_what_was_told() -> None:
    assert "offsets_are_dense" in broken(history(ends={0: 2}))
    assert "acknowledged_messages_are_stored" in broken(history(log={}, ends={0: 0}))
    assert "no_message_is_stored_twice_or_unsent" in broken(history(log={PLACE: "a", (0, 1): "a"}, ends={0: 2}))
    assert "deliveries_are_what_is_stored" in broken(history(delivered("r", 1, 2), log={PLACE: "b"}))


def test_a_key_lies_in_one_queue_whoever_sends_it() -> None:
    """Also what was sent with an unknown outcome; and one producer's lie in its order."""
    first, second = Sent("p0-a", "k", 0, (0, 0)), Sent("p1-a", "k", 5, is_unknown=True)
    judged = history(sent=[first, second], log={(0, 0): "p0-a", (1, 0): "p1-a"}, ends={0: 1, 1: 1}, drained={})
    assert broken(judged) == {"keys_keep_their_order"}
    judged.log, judged.ends = {(0, 0): "p0-a", (0, 1): "p1-a"}, {0: 2}
    assert broken(judged) == set()
    judged.sent = [Sent("p0-b", "k", 0, (0, 1)), first]
    judged.log = {(0, 0): "p0-a", (0, 1): "p0-b"}
    assert broken(judged) == {"keys_keep_their_order"}
    judged.begun = [Begun(["p0-a", "p0-b"], 0, 0, 0, id="t")]
    assert "keys_keep_their_order" in broken(judged)
    judged.are_reads_torn = True
    assert "keys_keep_their_order" not in broken(judged)


def once(body: str, began_ms: int, place: tuple[int, int], message_id: str = "id") -> Sent:
    """A message with the only dedup id."""
    return Sent(body, None, began_ms, place, dedup_id="d", message_id=message_id, at_ms=began_ms + 10)


def test_a_repeat_may_lie_where_another_message_of_its_dedup_id_lies() -> None:
    assert broken(history(sent=[once("a", 0, PLACE), once("b", 20, PLACE)])) == set()


@pytest.mark.parametrize(("later_ms", "wrong"), [(300_000, set()), (290_000, {"a_dedup_id_is_stored_once"})])
def test_a_dedup_id_is_stored_again_when_it_is_free_again(later_ms: int, wrong: set[str]) -> None:
    judged = history(sent=[once("a", 0, PLACE), once("b", later_ms, (0, 1), "other")], ends={0: 2})
    judged.log, judged.drained = {PLACE: "a", (0, 1): "b"}, {}
    assert broken(judged) - {"a_repeat_gets_the_same_answer"} == wrong


def test_repeats_get_the_same_id() -> None:
    judged = history(sent=[once("a", 0, PLACE), once("b", 20, PLACE, "other")])
    assert broken(judged) == {"a_repeat_gets_the_same_answer"}


def waits(*outcomes: str, is_there: bool) -> History:
    """A message that was to wait until 2000, and was cancelled with these outcomes."""
    sent = Sent("a", None, 0, due_ms=2_000, message_id="id", told_due_ms=2_000, at_ms=10)
    cancels = [Cancelled("id", 100, 110, outcome) for outcome in outcomes]
    if not is_there:
        return History(sent=[sent], cancels=cancels, ends={0: 0})
    return history(sent=[sent], cancels=cancels, ids={PLACE: "id"})


@pytest.mark.parametrize(
    ("judged", "is_fine"),
    [
        (waits(is_there=True), True),
        (waits(is_there=False), False),
        (waits("ok", is_there=False), True),
        (waits("ok", is_there=True), False),
        (waits("ok", "ok", is_there=False), False),
        (waits("unknown", is_there=True), True),
        (waits("unknown", is_there=False), True),
        (waits("AlreadyDelivered", is_there=True), True),
        (waits("AlreadyDelivered", is_there=False), False),
        (waits("MessageNotFound", is_there=True), False),
    ],
)
def test_a_delayed_message_comes_or_is_cancelled_as_answered(judged: History, is_fine: bool) -> None:
    assert broken(judged) == (set() if is_fine else {"a_delayed_message_comes_once_or_is_cancelled"})


@pytest.mark.parametrize(("at_ms", "is_fine"), [(3_099 - SKEW_MS, False), (3_100 - SKEW_MS, True)])
def test_a_delivered_message_that_was_removed_is_not_found(at_ms: int, is_fine: bool) -> None:
    judged = replace(waits("AlreadyDelivered", is_there=True), retention_ms=1_000, expired_kept_ms=100)
    judged.cancels.append(Cancelled("id", at_ms, at_ms, "MessageNotFound"))
    assert broken(judged) == (set() if is_fine else {"a_delayed_message_comes_once_or_is_cancelled"})


@pytest.mark.parametrize(
    ("at_ms", "wrong"), [(2_000 - OFF_MS, set()), (1_999 - OFF_MS, {"no_message_comes_before_it_is_due"})]
)
def test_nothing_comes_before_it_is_due(at_ms: int, wrong: set[str]) -> None:
    judged = waits(is_there=True)
    judged.delivered = [replace(delivered("r", at_ms, 3_000), answered_ms=at_ms)]
    assert broken(judged) == wrong
