"""Receipts in groups that settle by delivery or by message, and extensions that keep their receipt."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.cursors.retries import PARKED_MAX, RETRY_PAGE_LEASES
from tests.support.client import Client, Group, Json, Topic, bodies, failed, offsets, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable

HOUR_MS = 3_600_000
SEEDS = count(100)
ONE = {"acked": 1, "failed": []}


def by(topic: Topic, rule: str, **settings: object) -> Group:
    return topic.group("g", settle_by=rule, **settings)


def extended(group: Group, *messages: Json | str, invisible_ms: int = 60_000) -> list[tuple[str, str]]:
    answer = group.extend(*messages, invisible_ms=invisible_ms)
    return [(each["receipt"], each["new_receipt"]) for each in answer["extended"]]


def bury_and_redrive(group: Group, message: Json) -> None:
    group._post("bury", receipts=receipts(message))
    assert group.client.post(f"{group.path}/dead/redrive").json["redriven"] == 1


@pytest.fixture(params=["same", "another"])
def acting(request: pytest.FixtureRequest, topic: Topic) -> str:
    """Whether the instance that settles is the one that popped, or one that knows nothing."""
    return str(request.param)


def seen(group: Group, acting: str) -> Group:
    return group if acting == "same" else group.seen_by(Client(group.client.store, group.client.clock, next(SEEDS)))


# -- by message -------------------------------------------------------------------------------------------------------


def test_by_message_a_receipt_from_before_a_redelivery_acks(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a", "b")
    old = group.take(2)
    clock.sleep(30_000)
    group.take(2)
    assert seen(group, acting).ack(old[0]) == ONE
    assert group.totals() == (0, 1, 0, 0)
    assert seen(group, acting).ack(old[0], old[1]) == {"acked": 2, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("rule", ["message", "delivery"])
def test_several_leases_are_extended_in_place_together(topic: Topic, clock: Clock, acting: str, rule: str) -> None:
    group = by(topic, rule)
    topic.produce("a", "b", "c")
    taken = [group.take_one() for _ in range(3)]
    assert len(extended(seen(group, acting), *taken, invisible_ms=HOUR_MS)) == 3
    clock.sleep(HOUR_MS - 1)
    assert group.pop()["messages"] == []


@pytest.mark.parametrize("verb", ["extend", "nack", "bury"])
def test_by_message_a_receipt_from_before_a_redelivery_does_all_else(
    topic: Topic, clock: Clock, acting: str, verb: str
) -> None:
    group = by(topic, "message")
    topic.produce("a", "b")
    old = group.take(2)
    clock.sleep(30_000)
    group.take(2)
    about = {"extend": {"invisible_ms": 90_000}, "nack": {"delay_ms": 90_000}}.get(verb, {})
    answer = seen(group, acting)._post(verb, receipts=[old[0]["receipt"]], **about)
    assert answer["failed"] == []
    clock.sleep(60_000)
    assert bodies(group.take(1)) == ["b"]
    clock.sleep(60_000)
    assert bodies(group.pop()["messages"]) == (["b"] if verb == "bury" else ["a", "b"])


def test_by_message_what_was_given_back_unseen_can_still_be_buried(topic: Topic, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a")
    taken = group.take_one()
    service = group.client.api.service
    service.consuming.settler.give_back(service.env.catalogue.topic("orders"), "g", receipts(taken))
    assert seen(group, acting)._post("bury", receipts=receipts(taken)) == {"buried": 1, "failed": []}
    assert group.totals() == (0, 0, 0, 1)


@pytest.mark.parametrize("backoff", [[1_000, HOUR_MS], {"initial_ms": 1_000, "multiplier": 10, "max_ms": HOUR_MS}])
def test_by_message_what_was_redriven_waits_as_after_a_first_try(
    topic: Topic, clock: Clock, acting: str, backoff: Any
) -> None:
    group = by(topic, "message", backoff_ms=backoff)
    topic.produce("a")
    taken = group.take_one()
    bury_and_redrive(group, taken)
    seen(group, acting).nack(taken)
    clock.sleep(999)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert bodies(group.take(1)) == ["a"]


def test_by_message_what_was_redriven_dies_without_an_attempt(topic: Topic, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a")
    taken = group.take_one()
    bury_and_redrive(group, taken)
    seen(group, acting)._post("bury", receipts=receipts(taken))
    [letter] = group.client.get(f"{group.path}/dead").json["messages"]
    assert letter["attempts"] == 0


def test_by_message_a_nacked_message_is_extended_and_keeps_its_receipt(topic: Topic, clock: Clock) -> None:
    group = by(topic, "message")
    topic.produce("a", "b")
    taken = group.take(2)
    group.nack(*taken, delay_ms=1_000)
    assert extended(group, taken[0]) == [(taken[0]["receipt"], taken[0]["receipt"])]
    clock.sleep(1_000)
    assert bodies(group.pop()["messages"]) == ["b"]
    assert group.totals() == (0, 1, 1, 0)
    clock.sleep(59_000)
    assert "a" in bodies(group.pop()["messages"])


@pytest.mark.parametrize("verb", ["ack", "extend", "nack", "bury"])
def test_by_message_a_retry_page_is_brought_back_to_settle(topic: Topic, clock: Clock, acting: str, verb: str) -> None:
    group = by(topic, "message")
    topic.produce(*["x"] * (3 * PARKED_MAX))
    taken = group.take(3 * PARKED_MAX)
    group.nack(*taken[::2], delay_ms=HOUR_MS)
    group.ack(*taken[1::2])
    about = {"extend": {"invisible_ms": 0}, "nack": {"delay_ms": 0}}.get(verb, {})
    assert seen(group, acting).ack(taken[-1]) == ONE  # the page does not have it
    first_in_page = taken[::2][-RETRY_PAGE_LEASES]
    for some in ([first_in_page], [each for each in taken[::2] if each is not first_in_page]):
        answer = seen(group, acting)._post(verb, receipts=[each["receipt"] for each in some], **about)
        assert answer["failed"] == []
    left = len(taken[::2]) if verb in ("extend", "nack") else 0
    assert sum(group.totals()) == (len(taken[::2]) if verb != "ack" else 0)
    clock.sleep(1)
    assert len(group.pop(max_messages=256)["messages"]) == left


def test_by_message_an_ack_finds_a_page_where_others_are_due_sooner(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message")
    topic.produce(*["x"] * (PARKED_MAX + 1))
    taken = group.take(PARKED_MAX + 1)
    for place, message in enumerate(taken):
        group.nack(message, delay_ms=HOUR_MS - place)
    assert seen(group, acting).ack(taken[0]) == ONE
    clock.sleep(HOUR_MS)
    assert sorted(offsets(group.drained())) == offsets(taken[1:])


def test_by_message_only_an_ack_of_what_is_settled_succeeds(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a")
    old = group.take_one()
    clock.sleep(30_000)
    group.ack(group.take_one())
    other = seen(group, acting)
    assert other.ack(old) == ONE
    for answer in (other.extend(old), other.nack(old), other._post("bury", receipts=[old["receipt"]])):
        assert failed(answer) == ["LeaseLost"]


def test_by_message_a_reset_ends_every_receipt(topic: Topic, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a")
    old = group.take_one()
    group.reset("earliest")
    group.take_one()
    assert failed(seen(group, acting).ack(old)) == ["LeaseLost"]
    assert failed(seen(group, acting).extend(old)) == ["LeaseLost"]
    assert group.totals() == (0, 1, 0, 0)


@pytest.mark.parametrize("rule", ["message", "delivery"])
def test_a_receipt_of_a_dead_message_is_lost(topic: Topic, clock: Clock, acting: str, rule: str) -> None:
    group = by(topic, rule, max_attempts=1)
    topic.produce("a", "b")
    taken = group.take(2)
    group.nack(taken[0])
    clock.sleep(30_000)
    group.pop()
    assert group.totals() == (0, 0, 0, 2)
    other = seen(group, acting)
    for answer in (other.ack(*taken), other.extend(*taken), other.nack(*taken)):
        assert failed(answer) == ["LeaseLost"] * 2


@pytest.mark.parametrize("rule", ["message", "delivery", "receipt"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_dead_message_is_lost_though_others_of_its_lease_are_acked(
    topic: Topic, acting: str, rule: str, count: int
) -> None:
    group = by(topic, rule, max_attempts=1)
    topic.produce("a", "b", "c", "d")
    group.ack(group.take_one())
    dead, alive, *_ = group.take(count)
    group.nack(dead)
    lost = [{"receipt": dead["receipt"], "code": "LeaseLost"}]
    assert seen(group, acting).ack(dead, alive) == {"acked": 1, "failed": lost}


@pytest.mark.parametrize("rule", ["message", "delivery"])
def test_a_dead_message_is_lost_though_its_attempt_has_taken_another(
    store: TroubledStore, client: Client, topic: Topic, acting: str, rule: str
) -> None:
    """The second call of an attempt claims when what the first has taken is settled: its lease has the same token."""
    group = by(topic, rule, max_attempts=1)
    topic.produce(*"abcde")
    group.ack(group.take_one())

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write":
            store.before = unavailable()
            first = group.seen_by(client.another())
            dead.extend(first.take(2, attempt_id="x"))
            first.nack(dead[0])
            first.ack(dead[1])

    dead: list[Json] = []
    store.before = meanwhile
    assert bodies(group.take(2, attempt_id="x")) == ["d", "e"]
    assert failed(seen(group, acting).ack(dead[0])) == ["LeaseLost"]


def test_what_was_dead_before_a_reset_is_acked_twice(topic: Topic, acting: str) -> None:
    group = topic.group("g", max_attempts=1)
    topic.produce("a", "b")
    group.nack(*group.take(2))
    group.reset("earliest")
    taken = group.take(2)
    assert group.ack(*taken) == seen(group, acting).ack(*taken) == {"acked": 2, "failed": []}


def test_by_message_an_ack_finds_its_page_brought_back_by_another(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    group = by(topic, "message")
    topic.produce(*["x"] * (PARKED_MAX + 1))
    taken = group.take(PARKED_MAX + 1)
    for message in taken:
        group.nack(message, delay_ms=HOUR_MS)

    def meanwhile(verb: str, about: Any) -> None:
        if verb == "read" and "retry#" in repr(about):
            store.before = unavailable()
            acked.append(group.seen_by(client.another()).ack(taken[-2]))

    acked: list[Json] = []
    store.before = meanwhile
    assert group.ack(taken[-1]) == ONE
    assert acked == [ONE]


def test_by_message_what_is_extended_while_it_moves_into_a_page_stays_away(
    store: TroubledStore, client: Client, topic: Topic, clock: Clock
) -> None:
    group = by(topic, "message")
    topic.produce(*["x"] * (PARKED_MAX + 1))
    taken = group.take(PARKED_MAX + 1)
    late = taken[-2]

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            group.seen_by(client.another()).extend(late, invisible_ms=2 * HOUR_MS)

    store.before = meanwhile
    for message in taken:
        group.nack(message, delay_ms=HOUR_MS)
    clock.sleep(HOUR_MS)
    came = [message for _ in range(6) for message in group.pop(max_messages=256)["messages"]]
    assert {*offsets(came)} == {*offsets(taken)} - {late["offset"]}


def test_by_message_old_and_new_receipts_of_a_message_count_in_one_call(topic: Topic, clock: Clock) -> None:
    group = by(topic, "message")
    topic.produce("a")
    old = group.take_one()
    clock.sleep(30_000)
    new = group.take_one()
    assert len(extended(group, old, new)) == 2
    assert group.ack(new, old) == {"acked": 2, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_by_message_an_old_receipt_that_rides_in_a_pop_acks(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message")
    topic.produce("a", "b")
    old = group.take_one()
    clock.sleep(30_000)
    group.take_one()
    popped = seen(group, acting).pop(ack=[old["receipt"]])
    assert (popped["acked"], bodies(popped["messages"])) == (1, ["b"])


@pytest.mark.parametrize("is_nacked", [True, False])
def test_by_message_a_pop_gets_what_its_ack_leaves_of_a_later_lease(
    topic: Topic, clock: Clock, acting: str, is_nacked: bool
) -> None:
    group = by(topic, "message")
    topic.produce("a", "b")
    old = group.take(2)
    if is_nacked:
        group.nack(*old, delay_ms=30_000)
    else:
        clock.sleep(30_000)
        group.take(2)
    clock.sleep(30_000)
    popped = seen(group, acting).pop(ack=receipts(old[0]))
    assert (popped["acked"], bodies(popped["messages"])) == (1, ["b"])


def test_by_message_a_pop_gets_what_its_ack_leaves_of_a_retry_page(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message")
    topic.produce(*"ab" * (PARKED_MAX + 1))
    pairs = [group.take(2) for _ in range(PARKED_MAX + 1)]
    outside, (first, *later) = pairs[:-RETRY_PAGE_LEASES], pairs[-RETRY_PAGE_LEASES:]
    for pair in outside:
        group.nack(*pair, delay_ms=HOUR_MS - 1)
    group.nack(*first, delay_ms=HOUR_MS)
    for pair in later:
        group.nack(*pair, delay_ms=2 * HOUR_MS)
    group.ack(*(message for pair in outside for message in pair))
    clock.sleep(HOUR_MS)
    popped = seen(group, acting).pop(ack=receipts(first[0]))
    assert (popped["acked"], bodies(popped["messages"])) == (1, ["b"])


def test_a_nack_by_an_old_receipt_counts_the_attempts_of_the_message(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "message", max_attempts=2)
    topic.produce("a")
    old = group.take_one()
    clock.sleep(30_000)
    assert group.take_one()["attempt"] == 2
    assert seen(group, acting).nack(old)["nacked"] == 1
    assert group.totals() == (0, 0, 0, 1)


# -- by delivery ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [{}, {"attempt_id": "a"}])
def test_by_delivery_a_receipt_stays_good_through_every_extension(
    topic: Topic, clock: Clock, acting: str, ask: Json
) -> None:
    group = by(topic, "delivery")
    topic.produce("a", "b", "c")
    taken = group.take(3, **ask)
    for _ in range(3):
        clock.sleep(20_000)
        assert len(extended(seen(group, acting), *taken[:2], invisible_ms=30_000)) == 2
        assert len(extended(seen(group, acting), taken[0], invisible_ms=30_000)) == 1
        extended(group, taken[2], invisible_ms=30_000)
    assert group.pop()["messages"] == []
    assert seen(group, acting).ack(*taken) == {"acked": 3, "failed": []}
    assert seen(group, acting).ack(*taken) == {"acked": 3, "failed": []}
    assert failed(group.extend(*taken)) == ["LeaseLost"] * 3


@pytest.mark.parametrize("ask", [{}, {"attempt_id": "a"}])
def test_by_delivery_a_receipt_ends_with_its_lease(topic: Topic, clock: Clock, acting: str, ask: Json) -> None:
    group = by(topic, "delivery")
    topic.produce("a", "b")
    taken = group.take(2, **ask)
    clock.sleep(29_999)
    assert seen(group, acting).ack(taken[0]) == ONE
    clock.sleep(1)
    other = seen(group, acting)
    bury = other._post("bury", receipts=[taken[1]["receipt"]])
    for answer in (other.ack(taken[1]), other.extend(taken[1]), other.nack(taken[1]), bury):
        assert failed(answer) == ["LeaseLost"]
    assert group.take_one(**ask)["attempt"] == 2


def test_by_delivery_a_redelivery_ends_older_receipts(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "delivery")
    topic.produce("a")
    old = group.take_one(attempt_id="a")
    clock.sleep(30_000)
    new = group.take_one(attempt_id="a")
    assert failed(seen(group, acting).ack(old)) == ["LeaseLost"]
    assert failed(seen(group, acting).extend(old)) == ["LeaseLost"]
    assert seen(group, acting).ack(new) == ONE


def test_by_delivery_what_ends_while_its_ack_is_refused_is_lost(
    store: TroubledStore, client: Client, topic: Topic, clock: Clock
) -> None:
    group = by(topic, "delivery")
    topic.produce("a", "b")
    first, second = group.take(2)

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write":
            store.before = unavailable()
            group.seen_by(client.another()).ack(second)
            clock.sleep(30_000)

    store.before = meanwhile
    assert group.ack(first, second) == {"acked": 1, "failed": [{"receipt": first["receipt"], "code": "LeaseLost"}]}


@pytest.mark.parametrize("verb", ["nack", "bury"])
def test_by_delivery_what_is_over_does_not_die(topic: Topic, clock: Clock, acting: str, verb: str) -> None:
    group = by(topic, "delivery", max_attempts=1)
    topic.produce("a", "b")
    other = seen(group, acting)
    first = other.take_one(invisible_ms=60_000)
    second = group.take_one()
    clock.sleep(30_000)
    answer = other._post(verb, receipts=receipts(first, second))
    assert answer["failed"] == [{"receipt": second["receipt"], "code": "LeaseLost"}]


def test_by_delivery_a_receipt_ends_with_a_nack(topic: Topic, acting: str) -> None:
    group = by(topic, "delivery")
    topic.produce("a")
    taken = group.take_one()
    group.nack(taken, delay_ms=HOUR_MS)
    assert failed(seen(group, acting).ack(taken)) == ["LeaseLost"]


def test_by_delivery_a_nack_of_the_last_attempt_is_a_dead_letter(topic: Topic, acting: str) -> None:
    group = by(topic, "delivery", max_attempts=1)
    topic.produce("a")
    assert seen(group, acting).nack(group.take_one())["nacked"] == 1
    assert group.totals() == (0, 0, 0, 1)


def test_by_delivery_an_expired_receipt_that_rides_in_a_pop_is_lost(topic: Topic, clock: Clock) -> None:
    group = by(topic, "delivery")
    topic.produce("a")
    taken = group.take_one()
    clock.sleep(30_000)
    popped = group.pop(ack=[taken["receipt"]])
    assert (popped["acked"], failed(popped), bodies(popped["messages"])) == (0, ["LeaseLost"], ["a"])


def test_by_delivery_what_expired_in_a_lease_of_no_time_is_passed(topic: Topic, clock: Clock) -> None:
    group = by(topic, "delivery")
    topic.produce({"body": "short", "ttl_ms": 1_000}, {"body": "long"})
    group.take(2, invisible_ms=0)
    clock.sleep(1_000)
    assert bodies(group.pop(invisible_ms=0)["messages"]) == ["long"]
    assert group.totals() == (1, 0, 0, 0)  # the long one is due again
    group.ack(*group.take(1))
    assert group.totals() == (0, 0, 0, 0)


# -- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["delivery", "message"])
def test_the_extension_of_a_whole_lease_keeps_its_receipt(topic: Topic, clock: Clock, acting: str, rule: str) -> None:
    group = by(topic, rule)
    topic.produce("a", "b")
    taken = group.take(2)
    kept = [(each["receipt"], each["receipt"]) for each in taken]
    assert extended(seen(group, acting), *taken) == kept
    clock.sleep(59_999)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert [each["attempt"] for each in group.take(2)] == [2, 2]


@pytest.mark.parametrize("rule", ["delivery", "message"])
def test_an_extension_out_of_a_larger_lease_keeps_the_old_receipt_too(topic: Topic, rule: str) -> None:
    group = by(topic, rule)
    topic.produce("a", "b", "c")
    taken = group.take(3)
    [(_, new)] = extended(group, taken[1])
    assert new != taken[1]["receipt"]
    assert extended(group, taken[1]) == [(taken[1]["receipt"], taken[1]["receipt"])]
    assert group.ack(new) == ONE
    assert group.ack(taken[1]) == ONE
    assert group.ack(taken[0], taken[2])["acked"] == 2
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("rule", ["delivery", "message"])
def test_an_extension_in_place_can_end_a_lease_at_once(topic: Topic, rule: str) -> None:
    group = by(topic, rule)
    topic.produce("a")
    taken = group.take_one()
    assert extended(group, taken, invisible_ms=0) == [(taken["receipt"], taken["receipt"])]
    assert group.take_one()["attempt"] == 2


def test_a_message_extended_in_place_is_not_taken_over_by_who_saw_it_due(client: Client, clock: Clock) -> None:
    topic = client.topic("orders")
    group = by(topic, "message")
    topic.produce("a")
    old = group.take_one()
    other = group.seen_by(client.another())
    other.pop()
    clock.sleep(30_000)
    group.extend(old)
    assert other.pop()["messages"] == []


def test_what_is_extended_while_it_is_given_back_unread_stays_away(
    store: TroubledStore, client: Client, topic: Topic, clock: Clock
) -> None:
    group = by(topic, "message", invisible_ms=1_000)
    topic.produce(Random(1).randbytes(2_000).hex())
    old = group.take_one()
    clock.sleep(1_000)
    other, writes = group.seen_by(client.another()), count()

    def away(verb: str, about: Any) -> Exception | None:
        if verb == "write" and next(writes) == 1:
            store.before = unavailable()
            group.extend(old)
        is_payload = verb == "read" and any("payload#" in repr(read) for read in about)
        return StoreUnavailable("the store throttled") if is_payload else None

    store.before = away
    assert other.client.post(f"{other.path}/pop").status == 503
    clock.sleep(2_000)
    assert group.pop()["messages"] == []


def test_the_rule_of_a_group_can_change_at_any_time(topic: Topic, clock: Clock, acting: str) -> None:
    group = by(topic, "receipt")
    topic.produce("a")
    old = group.take_one()
    clock.sleep(30_000)
    group.take_one(invisible_ms=600_000)
    assert failed(group.ack(old)) == ["LeaseLost"]
    group.change(settle_by="message")
    clock.sleep(5_001)  # so long an instance may go by what it has read
    assert group.progress()["settle_by"] == "message"
    assert seen(group, acting).ack(old) == ONE


def test_an_instance_that_only_settles_learns_of_a_new_rule(topic: Topic, client: Client, clock: Clock) -> None:
    group = by(topic, "receipt", invisible_ms=1_000)
    topic.produce("a")
    old = group.take_one()
    other = group.seen_by(client.another())
    other.change(settle_by="message")
    clock.sleep(60_000)
    other.take_one(invisible_ms=600_000)
    assert group.ack(old) == ONE


@pytest.mark.parametrize(("before", "rule"), [("message", "receipt"), ("receipt", "delivery")])
def test_a_receipt_follows_the_rule_of_its_own_group(client: Client, clock: Clock, before: str, rule: str) -> None:
    """Not that of a deleted one of the same name, which another instance still knows."""
    topic = client.topic("orders")
    group = by(topic, before)
    topic.produce("a")
    other = group.seen_by(client.another())
    other.take_one()
    group.delete()
    by(topic, rule)
    old = group.take_one(invisible_ms=1_000)
    clock.sleep(1_000)
    if rule == "receipt":
        group.take_one()
    assert failed(other.ack(old)) == ["LeaseLost"]


def test_by_message_a_repeated_ack_looks_into_a_retry_page_once(topic: Topic) -> None:
    group = topic.group("many", settle_by="message")
    group.nack_into_a_page(60_000)
    topic.produce("a")
    last = group.take_one()
    for _ in range(2):
        assert group.ack(last) == {"acked": 1, "failed": []}
