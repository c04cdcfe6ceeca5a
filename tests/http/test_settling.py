"""ack, nack and extend over HTTP: what a receipt is worth, and what becomes of its message."""

from __future__ import annotations

import itertools
import random

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BACKOFF_MS
from chalicelib.core.cursors.cursor_writes import WITNESSES_MAX
from chalicelib.core.table.writes import RemoveItem, Write
from tests.support.client import Client, Group, Topic, bodies, failed, offsets, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


# -- ack --------------------------------------------------------------------------------------------------------------


def test_acked_messages_never_come_back(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    assert group.ack(*group.take(3)) == {"acked": 3, "failed": []}
    clock.sleep(43_200_000)
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_messages_of_one_lease_are_acked_one_by_one_in_any_order(
    topic: Topic, group: Group, order: tuple[int, ...]
) -> None:
    topic.produce(*"abcd")
    taken = group.take(4)
    for done, index in enumerate(order, start=1):
        assert group.ack(taken[index]) == {"acked": 1, "failed": []}
        assert group.totals() == (0, 4 - done, 0, 0)
        left = [each for each in range(4) if each not in order[:done]]
        assert group.queue()["committed_offset"] == min(left, default=4)


def test_256_messages_of_one_lease_are_acked_in_any_order_by_two_instances(topic: Topic, group: Group) -> None:
    topic.produce(*["x"] * 256)
    taken = group.take(256)
    random.Random(1).shuffle(taken)
    instances = [group, group.seen_by(group.client.another())]
    for number, first in enumerate(range(0, 256, 16)):
        assert instances[number % 2].ack(*taken[first : first + 16])["acked"] == 16
    assert group.totals() == (0, 0, 0, 0)
    assert group.queue()["committed_offset"] == 256


@pytest.mark.parametrize("whole", [True, False])
def test_acking_twice_counts_twice(topic: Topic, group: Group, whole: bool) -> None:
    topic.produce("a", "b")
    taken = group.take(2)
    first = taken if whole else taken[:1]
    for _ in range(3):
        assert group.ack(*first) == {"acked": len(first), "failed": []}
    assert group.seen_by(group.client.another()).ack(*first)["acked"] == len(first)


def test_a_receipt_twice_in_one_call_counts_twice(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    taken = group.take(2)
    assert group.ack(taken[0], taken[0], taken[1]) == {"acked": 3, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_one_call_acks_receipts_of_many_queues_and_pops(client: Client) -> None:
    topic = client.topic("orders", queues=8)
    group = topic.group("billing")
    for queue in range(8):
        topic.produce(*"abcd", queue=queue)
    taken = [message for _ in range(16) for message in group.take(2)]
    random.Random(2).shuffle(taken)
    assert group.ack(*taken) == {"acked": 32, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_a_late_ack_counts_until_someone_else_has_the_message(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    taken = group.take_one()
    clock.sleep(3_600_000)
    assert group.ack(taken) == {"acked": 1, "failed": []}
    assert group.pop()["messages"] == []


def test_a_late_ack_is_lost_once_someone_else_has_the_message(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    late = group.take_one()
    clock.sleep(30_000)
    taker = group.take_one()
    assert group.ack(late) == {"acked": 0, "failed": [{"receipt": late["receipt"], "code": "LeaseLost"}]}
    assert group.totals() == (0, 1, 0, 0)
    assert group.ack(taker)["acked"] == 1
    assert failed(group.ack(late)) == ["LeaseLost"]
    assert failed(group.seen_by(group.client.another()).ack(late)) == ["LeaseLost"]


def test_a_late_ack_of_a_lease_taken_over_in_part_counts_for_the_rest(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    late = group.take(3)
    clock.sleep(30_000)
    group.take(2)
    assert group.ack(*late) == {
        "acked": 1,
        "failed": [{"receipt": each["receipt"], "code": "LeaseLost"} for each in late[:2]],
    }
    assert group.totals() == (0, 2, 0, 0)


@pytest.mark.parametrize("leases", [16, WITNESSES_MAX])
def test_late_acks_are_lost_though_the_taker_of_many_leases_acked(
    topic: Topic, group: Group, clock: Clock, leases: int
) -> None:
    topic.produce(*["x"] * leases)
    late = [group.take_one() for _ in range(leases)]
    clock.sleep(30_000)
    group.ack(*group.take(leases))
    topic.produce("y")
    group.take_one()
    assert group.ack(*late)["acked"] == 0


def test_an_ack_after_extend_nack_or_the_groups_last_attempt_is_lost(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=2)
    topic.produce("a", "b", "c")
    extended, nacked, dead = group.take(3)
    group.extend(extended)
    group.nack(nacked, delay_ms=60_000)
    assert failed(group.ack(extended)) == ["LeaseLost"]
    assert failed(group.ack(nacked)) == ["LeaseLost"]
    group.nack(dead, delay_ms=0)
    last = group.take_one()
    assert group.nack(last)["nacked"] == 1
    assert group.totals()[3] == 1
    assert failed(group.ack(last)) == ["LeaseLost"]


# -- receipts that are none -------------------------------------------------------------------------------------------


@pytest.fixture
def taken(topic: Topic, group: Group) -> str:
    topic.produce("a", "b")
    receipt: str = group.take_one()["receipt"]
    return receipt


@pytest.mark.parametrize(
    "receipt", ["", " ", "x", "AAAA", "A" * 200, "é", "🎉", "\0", "a:b", "====", "-_-_", "null", "x" * 512]
)
@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_garbage_is_an_invalid_receipt(group: Group, verb: str, receipt: str) -> None:
    answer = getattr(group, verb)(receipt)
    assert answer["failed"] == [{"receipt": receipt, "code": "ReceiptInvalid"}]


def test_a_receipt_with_one_character_changed_is_invalid(group: Group, taken: str) -> None:
    altered = [
        taken[:place] + other + taken[place + 1 :]
        for place in range(len(taken))
        for other in [*random.Random(place).sample(ALPHABET, 4), ALPHABET[ALPHABET.index(taken[place]) ^ 1]]
        if other != taken[place]
    ]
    for first in range(0, len(altered), 256):
        batch = altered[first : first + 256]
        assert failed(group.ack(*batch)) == ["ReceiptInvalid"] * len(batch)
    assert group.totals() == (1, 1, 0, 0)


@pytest.mark.parametrize("ending", ["=", "==", "A", "AAAA", "\n", " ", "!"])
def test_a_receipt_with_more_behind_it_is_invalid(group: Group, taken: str, ending: str) -> None:
    assert failed(group.ack(taken + ending)) == ["ReceiptInvalid"]
    assert group.totals() == (1, 1, 0, 0)


def test_a_receipt_with_something_missing_is_invalid(group: Group, taken: str) -> None:
    cut = [taken[:length] for length in range(1, len(taken))] + [taken[start:] for start in range(1, len(taken))]
    for first in range(0, len(cut), 256):
        batch = cut[first : first + 256]
        assert failed(group.ack(*batch)) == ["ReceiptInvalid"] * len(batch)


def test_a_receipt_of_another_deployment_is_invalid(group: Group, taken: str) -> None:
    other = Client(seed=9).topic("orders").group("billing")
    assert failed(other.ack(taken)) == ["ReceiptInvalid"]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("max_attempts", [1, 16])
def test_a_receipt_of_another_group_is_invalid_and_touches_neither(
    topic: Topic, group: Group, taken: str, verb: str, max_attempts: int
) -> None:
    other = topic.group("others", max_attempts=max_attempts)
    other.take_one()
    assert failed(getattr(other, verb)(taken)) == ["ReceiptInvalid"]
    assert [group.totals(), other.totals()] == [(1, 1, 0, 0)] * 2
    assert group.ack(taken)["acked"] == 1


def test_a_pop_refuses_foreign_receipts_and_goes_on(topic: Topic, group: Group, taken: str) -> None:
    other = topic.group("others")
    popped = other.pop(ack=[taken])
    assert (bodies(popped["messages"]), popped["acked"], failed(popped)) == (["a", "b"], 0, ["ReceiptInvalid"])
    assert group.totals() == (1, 1, 0, 0)


def test_good_and_bad_receipts_of_one_call_are_distinguished(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcd")
    others = topic.group("others").take_one()
    lost = group.take_one(invisible_ms=1)
    clock.sleep(1)
    _, first, second = group.take(3)
    for verb, count, good in (("nack", "nacked", first), ("ack", "acked", second)):
        answer = getattr(group, verb)(lost, good, others, "garbage")
        assert answer[count] == 1
        assert {each["receipt"]: each["code"] for each in answer["failed"]} == {
            lost["receipt"]: "LeaseLost",
            others["receipt"]: "ReceiptInvalid",
            "garbage": "ReceiptInvalid",
        }


# -- nack -------------------------------------------------------------------------------------------------------------


def test_a_nacked_message_comes_back_after_its_delay(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce({"body": "a", "key": "k", "tag": "t", "properties": {"p": "q"}})
    first = group.take_one()
    assert group.nack(first, delay_ms=500) == {"nacked": 1, "failed": []}
    assert group.totals() == (0, 0, 1, 0)
    clock.sleep(499)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert group.totals() == (1, 0, 0, 0)
    again = group.take_one()
    assert again == {
        **first,
        "attempt": 2,
        "receipt": again["receipt"],
        "invisible_until_ms": clock.now() + 30_000,
    }
    assert group.ack(again)["acked"] == 1


def test_the_backoff_is_that_of_the_contract() -> None:
    assert list(BACKOFF_MS) == [
        *(10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000),
        *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
    ]


def test_a_nack_with_no_delay_at_all_is_ready_at_once(topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.nack(group.take_one(), delay_ms=0)
    assert group.totals() == (1, 0, 0, 0)
    assert group.take_one()["attempt"] == 2


def test_messages_of_one_lease_are_nacked_each_for_itself(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcdef")
    taken = group.take(6)
    group.nack(taken[4], delay_ms=2_000)
    group.nack(taken[0], taken[2], delay_ms=1_000)
    group.ack(taken[3])
    assert group.totals() == (0, 2, 3, 0)
    clock.sleep(1_000)
    assert bodies(group.pop()["messages"]) == ["a", "c"]
    clock.sleep(1_000)
    assert bodies(group.pop()["messages"]) == ["e"]
    clock.sleep(28_000)
    assert bodies(group.pop()["messages"]) == ["b", "f"]


def test_256_scattered_messages_are_nacked_in_one_call(topic: Topic, group: Group) -> None:
    for _ in range(2):
        topic.produce(*["x"] * 256)
    taken = group.take(256) + group.take(256)
    assert group.nack(*taken[::2], delay_ms=0) == {"nacked": 256, "failed": []}
    assert group.totals() == (256, 256, 0, 0)
    assert offsets(group.take(256)) == list(range(0, 512, 2))


def test_a_message_nacked_for_the_last_time_is_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=2)
    topic.produce("a", "b", "c")
    group.nack(*group.take(3), delay_ms=0)
    again = group.take(3)
    assert group.nack(*again[:2], delay_ms=0, reason="no stock") == {"nacked": 2, "failed": []}
    assert group.totals() == (0, 1, 0, 2)
    clock.sleep(86_400_000)
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 3)


def test_256_messages_die_in_one_call(topic: Topic) -> None:
    group = topic.group("billing", max_attempts=1)
    topic.produce(*["x"] * 256)
    assert group.nack(*group.take(256)) == {"nacked": 256, "failed": []}
    assert group.totals() == (0, 0, 0, 256)
    assert group.queue()["committed_offset"] == 256


def test_a_nack_of_what_is_settled_nacked_extended_or_taken_is_lost(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcd")
    acked, nacked, extended, expired = (group.take_one(invisible_ms=1_000) for _ in range(4))
    group.ack(acked)
    group.nack(nacked, delay_ms=60_000)
    group.extend(extended)
    clock.sleep(1_000)
    taker = group.take_one()
    assert taker["offset"] == expired["offset"]
    for verb in (group.nack, group.extend):
        assert failed(verb(acked, nacked, extended, expired)) == ["LeaseLost"] * 4
    group.ack(taker)
    for verb in (group.nack, group.extend):
        assert failed(verb(acked, nacked, extended, expired)) == ["LeaseLost"] * 4


def test_a_nacked_message_stays_lost_though_the_rest_is_acked_twice(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    first, second = group.take(2)
    group.nack(second, delay_ms=0)
    group.ack(group.take_one())
    for _ in range(2):
        assert group.ack(first)["acked"] == 1
    assert failed(group.ack(second)) == ["LeaseLost"]


def test_a_nack_after_expiry_counts_until_someone_else_has_the_message(
    topic: Topic, group: Group, clock: Clock
) -> None:
    topic.produce("a")
    taken = group.take_one()
    clock.sleep(60_000)
    assert group.nack(taken, delay_ms=1_000)["nacked"] == 1
    assert group.totals() == (0, 0, 1, 0)


@pytest.mark.parametrize("verb", ["nack", "extend"])
def test_an_old_and_a_new_receipt_of_a_message_in_one_call_differ(topic: Topic, group: Group, verb: str) -> None:
    topic.produce("a")
    old = group.take_one()["receipt"]
    new = group.extend(old)["extended"][0]["new_receipt"]
    answer = getattr(group, verb)(old, new)
    assert answer["failed"] == [{"receipt": old, "code": "LeaseLost"}]
    assert answer["nacked"] == 1 if verb == "nack" else [each["receipt"] for each in answer["extended"]] == [new]


# -- extend -----------------------------------------------------------------------------------------------------------


def test_an_extension_lasts_from_now_and_gives_a_new_receipt(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    taken = group.take_one()
    clock.sleep(20_000)
    answer = group.extend(taken, invisible_ms=30_000)
    extended = answer["extended"][0]
    assert answer == {
        "extended": [
            {
                "receipt": taken["receipt"],
                "new_receipt": extended["new_receipt"],
                "invisible_until_ms": clock.now() + 30_000,
            }
        ],
        "failed": [],
    }
    assert extended["new_receipt"] != taken["receipt"]
    clock.sleep(29_999)
    assert group.pop()["messages"] == []
    assert group.ack(extended["new_receipt"])["acked"] == 1


def test_a_lease_can_be_shortened(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.extend(group.take_one(), invisible_ms=1)
    clock.sleep(1)
    assert group.take_one()["attempt"] == 2


def test_a_lease_can_be_ended_at_once(topic: Topic, group: Group) -> None:
    topic.produce("a")
    [ended] = group.extend(group.take_one(), invisible_ms=0)["extended"]
    assert ended["invisible_until_ms"] == group.client.clock.ms
    assert group.take_one()["attempt"] == 2
    assert failed(group.ack(ended["new_receipt"])) == ["LeaseLost"]


def test_a_lease_is_extended_again_and_again(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    receipt = group.take_one()["receipt"]
    for _ in range(50):
        clock.sleep(900)
        receipt = group.extend(receipt, invisible_ms=1_000)["extended"][0]["new_receipt"]
    assert group.pop()["messages"] == []
    assert group.ack(receipt)["acked"] == 1
    assert group.totals() == (0, 0, 0, 0)


def test_an_extension_of_some_messages_leaves_the_others_as_they_are(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    taken = group.take(5)
    extended = group.extend(taken[1], taken[3], invisible_ms=90_000)["extended"]
    assert [each["receipt"] for each in extended] == receipts(taken[1], taken[3])
    assert group.ack(taken[0]) == {"acked": 1, "failed": []}
    clock.sleep(30_000)
    assert bodies(group.pop()["messages"]) == ["c", "e"]
    clock.sleep(60_000)
    assert [(each["body"], each["attempt"]) for each in group.pop()["messages"]] == [
        ("b", 2),
        ("c", 3),
        ("d", 2),
        ("e", 3),
    ]


def test_256_scattered_messages_are_extended_in_one_call(topic: Topic, group: Group) -> None:
    for _ in range(2):
        topic.produce(*["x"] * 256)
    taken = group.take(256) + group.take(256)
    answer = group.extend(*taken[::2])
    assert [each["receipt"] for each in answer["extended"]] == receipts(*taken[::2])
    assert group.ack(*[each["new_receipt"] for each in answer["extended"]])["acked"] == 256


def test_an_extension_after_expiry_counts_until_the_message_is_taken_over(
    topic: Topic, group: Group, clock: Clock
) -> None:
    topic.produce("a")
    taken = group.take_one()
    clock.sleep(60_000)
    assert len(group.extend(taken)["extended"]) == 1
    assert group.pop()["messages"] == []


def test_a_receipt_twice_in_one_extension_gets_one_new_receipt(topic: Topic, group: Group) -> None:
    topic.produce("a")
    taken = group.take_one()
    new = {each["new_receipt"] for each in group.extend(taken, taken)["extended"]}
    assert len(new) == 1
    assert group.ack(*new)["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "bury"])
def test_settling_that_meets_the_deletion_of_its_group_is_404(
    client: Client, topic: Topic, group: Group, store: TroubledStore, verb: str
) -> None:
    topic.produce("a")
    taken = group.take_one()

    def meanwhile(asked: str, _about: object) -> None:
        if asked.startswith("write"):
            store.before = unavailable()
            group.delete()

    store.before = meanwhile
    assert client.post(f"{group.path}/{verb}", receipts=receipts(taken)).problem == (404, "GroupNotFound")


# -- what an instance remembers ---------------------------------------------------------------------------------------


def test_a_receipt_acked_before_its_group_was_made_again_is_invalid_after(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    topic.produce("a", "b")
    taken = group.take(2)
    group.seen_by(client.another()).ack(taken[0])
    writes = itertools.count()
    store.before = lambda verb, _: StoreUnavailable("throttled") if verb == "write" and next(writes) else None
    assert client.another().post(f"{group.path}/ack", receipts=[taken[1]["receipt"]]).status == 503
    store.before = unavailable()
    group.pop()  # remembers the lease that owes nothing, and could not be removed
    group.delete()
    again = topic.group("billing")
    assert failed(again.ack(taken[0])) == ["ReceiptInvalid"]
    assert failed(again.ack(*taken)) == ["ReceiptInvalid"] * 2


def test_receipts_of_a_half_deleted_group_are_told_apart(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing")
    taken = [group.take_one() for queue in (0, 1) if topic.produce("a", queue=queue)]
    known = client.api.service.env.catalogue.seen_group(client.api.service.env.catalogue.topic("orders"), "billing")
    assert known
    for key in (known.key, known.cursor_key(1)):
        client.store.write(Write(key, (), (RemoveItem(),)))
    clock.sleep(10_000)
    assert client.post(f"{group.path}/pop").problem == (404, "GroupNotFound")
    assert group.ack(*taken) == {"acked": 1, "failed": [{"receipt": taken[1]["receipt"], "code": "ReceiptInvalid"}]}


def test_settling_on_one_instance_is_seen_by_the_next(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    taken = group.take(4)
    other = group.seen_by(group.client.another())
    new = other.extend(taken[0])["extended"][0]["new_receipt"]
    other.nack(taken[1], delay_ms=60_000)
    other.ack(taken[2])
    assert failed(group.ack(taken[0], taken[1], taken[2], taken[3], new)) == ["LeaseLost", "LeaseLost"]
    assert group.totals() == (0, 0, 1, 0)


@pytest.mark.parametrize("settle_by", ["receipt", "delivery", "message"])
def test_a_letter_from_before_a_reset_refuses_no_second_ack(topic: Topic, settle_by: str) -> None:
    group = topic.group("billing", settle_by=settle_by)
    topic.produce("a")
    topic.client.post(f"{group.path}/bury", receipts=receipts(group.take_one()))
    group.reset("earliest")
    message = group.take_one()
    assert [group.ack(message) for _ in range(2)] == 2 * [{"acked": 1, "failed": []}]
