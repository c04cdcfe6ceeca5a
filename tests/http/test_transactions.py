"""Transactions: half messages that nobody sees until their sender commits them, and never if it does not."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import (
    HALF_MESSAGES_MAX,
    MESSAGE_JSON_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    RESPONSE_BODY_BYTES_MAX,
)
from chalicelib.core.delays.decision import PROMOTED_MAX
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Key
from chalicelib.core.upkeep.sweeps import SWEEP_MS
from tests.support.client import Answer, Client, Group, Json, Topic, bodies, offsets
from tests.support.clock import START_MS, Clock
from tests.support.hooks import refuse_secrets
from tests.support.troubled_store import Trouble, TroubledStore, unavailable, unknown

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LARGE = Random(1).randbytes(2_000).hex()
"""Too large for the item of a transaction."""


def asked_to_begin(topic: Topic, *messages: str | Json, **fields: Any) -> Answer:
    batch = [{"body": message} if isinstance(message, str) else message for message in messages]
    return topic.client.post(f"{topic.path}/transactions", messages=batch, **fields)


def begin(topic: Topic, *messages: str | Json, **fields: Any) -> str:
    """The id of a new transaction."""
    answer = asked_to_begin(topic, *messages, **fields)
    assert answer.status == 201, answer.json
    transaction_id: str = answer.json["transaction_id"]
    return transaction_id


def decide(topic: Topic, transaction_id: str, verb: str, client: Client | None = None) -> Answer:
    return (client or topic.client).ask("POST", f"{topic.path}/transactions/{transaction_id}/{verb}")


def commit(topic: Topic, transaction_id: str, client: Client | None = None) -> list[Json]:
    answer = decide(topic, transaction_id, "commit", client)
    assert answer.status == 200, answer.json
    results: list[Json] = answer.json["messages"]
    return results


def roll_back(topic: Topic, transaction_id: str) -> None:
    answer = decide(topic, transaction_id, "rollback")
    assert (answer.status, answer.json) == (200, {}), answer.json


def check(topic: Topic, client: Client | None = None, **fields: Any) -> list[Json]:
    answer = (client or topic.client).post(f"{topic.path}/transactions/check", **fields)
    assert answer.status == 200, answer.json
    transactions: list[Json] = answer.json["transactions"]
    return transactions


def undecided(topic: Topic, **query: Any) -> Json:
    answer = topic.client.get(f"{topic.path}/transactions", **query)
    assert answer.status == 200, answer.json
    page: Json = answer.json
    return page


class TickingClock(Clock):
    """Each look at it takes a millisecond."""

    def now(self) -> int:
        self.ms += 1
        return super().now()


def ids(transactions: list[Json]) -> list[str]:
    return [transaction["transaction_id"] for transaction in transactions]


Moment = Callable[[str, Any], bool]
"""Whether this is the request to the store, by its verb and what it is about."""


def is_decision(verb: str, _about: Any) -> bool:
    return verb == "write_together"


def is_read_of_payloads(verb: str, about: Any) -> bool:
    return verb == "read" and any(
        key.pk.startswith("payload#") for read in about if isinstance(read, Keys) for key in read.keys
    )


def first(moment: Moment, act: Callable[[], Any], store: TroubledStore) -> Trouble:
    """Just before the first such request, another instance does something."""

    def intrude(verb: str, about: Any) -> None:
        if moment(verb, about):
            store.before = unavailable()
            act()

    return intrude


# -- deciding ---------------------------------------------------------------------------------------------------------


def test_a_half_message_is_seen_when_it_is_committed_and_not_before(topic: Topic, group: Group, clock: Clock) -> None:
    answer = asked_to_begin(topic, "a", "b")
    assert (answer.status, answer.json["rollback_at_ms"]) == (201, START_MS + DAY_MS)
    topic.produce("between")
    clock.sleep(HOUR_MS)
    assert bodies(group.drained()) == ["between"]
    placed = commit(topic, answer.json["transaction_id"])
    assert [(each["queue"], each["offset"]) for each in placed] == [(0, 1), (0, 2)]
    came = group.drained()
    assert bodies(came) == ["a", "b"]
    assert [(each["message_id"], each["offset"]) for each in came] == [
        (each["message_id"], each["offset"]) for each in placed
    ]
    assert [(each["sent_at_ms"], each["stored_at_ms"]) for each in came] == [(START_MS, START_MS + HOUR_MS)] * 2


def test_a_commit_makes_messages_visible_before_it_answers(topic: Topic) -> None:
    commit(topic, begin(topic, "a", "b"))
    assert bodies(topic.read()["messages"]) == ["a", "b"]


def test_a_commit_delivers_what_was_due_before_it(topic: Topic, clock: Clock) -> None:
    earlier = 2 * PROMOTED_MAX - 1  # the first of its own messages goes with them
    topic.produce(*["a"] * earlier, delay_ms=1)
    clock.sleep(2)
    assert offsets(commit(topic, begin(topic, "a", "b"))) == [earlier, earlier + 1]


def test_a_commit_tells_offsets_though_time_passes(store: TroubledStore) -> None:
    topic = Client(store, TickingClock()).topic("orders")
    assert offsets(commit(topic, begin(topic, "a", "b"))) == [0, 1]


def test_a_commit_tells_all_offsets_of_what_needs_several_entries(topic: Topic) -> None:
    batch: list[Json] = [{"body": Random(seed).randbytes(150_000).hex()} for seed in range(5)]
    assert offsets(commit(topic, begin(topic, *batch))) == [0, 1, 2, 3, 4]


def test_a_committed_message_is_found_by_its_id(topic: Topic) -> None:
    (placed,) = commit(topic, begin(topic, "a"))
    found = topic.client.get(f"{topic.path}/messages/{placed['message_id']}").json
    assert (found["body"], found["offset"]) == ("a", 0)


def test_a_message_keeps_all_it_was_given(client: Client) -> None:
    topic = client.topic("wide", queues=3)
    group = topic.group("g")
    given = {"body_base64": "AAEC", "key": "k", "tag": "t", "properties": {"p": "q"}, "queue": 2}
    commit(topic, begin(topic, given))
    message = group.take_one()
    assert {name: message[name] for name in given} == given


def test_messages_go_where_a_produce_would_put_them_and_keep_their_order(client: Client) -> None:
    topic = client.topic("wide", queues=4)
    produced = topic.produce("warm", "warm", key="k")
    batch: list[Json] = [
        {"body": "1", "key": "k"},
        {"body": "2", "queue": 3},
        {"body": "3", "key": "k"},
        {"body": "4", "queue": 3, "key": "k"},
    ]
    placed = commit(topic, begin(topic, *batch))
    assert [each["queue"] for each in placed] == [produced[0]["queue"], 3, produced[0]["queue"], 3]
    for queue in {each["queue"] for each in placed}:
        expected = [sent["body"] for sent, each in zip(batch, placed, strict=True) if each["queue"] == queue]
        assert [body for body in bodies(topic.read(queue=queue)["messages"]) if body != "warm"] == expected


@pytest.mark.parametrize("size", [10, 2_000, 4 * 1024 * 1024])
def test_a_body_of_any_size_comes_out_as_it_went_in(client: Client, topic: Topic, group: Group, size: int) -> None:
    body = Random(size).randbytes(size // 2).hex()
    half = begin(topic, body, check_after_ms=1)
    dropped = begin(topic, body)
    client.clock.sleep(1)
    assert check(topic)[0]["messages"][0]["body"] == body
    commit(topic, half)
    roll_back(topic, dropped)
    assert bodies(group.drained()) == [body]
    held = [pk for pk, items in client.store._items.items() for _ in items if pk.startswith("payload#")]
    assert len(set(held)) == (size > 1_000)  # that of the log alone


def test_the_time_to_live_begins_with_the_commit(topic: Topic, group: Group, clock: Clock) -> None:
    halves = [begin(topic, {"body": body, "ttl_ms": 1_000}) for body in "ab"]
    clock.sleep(2_000)
    commit(topic, halves[0])
    clock.sleep(999)
    assert bodies(group.drained()) == ["a"]
    commit(topic, halves[1])
    clock.sleep(1_000)
    assert group.drained() == []


def test_a_large_half_message_outlasts_the_retention_of_its_topic(
    client: Client, topic: Topic, group: Group, clock: Clock
) -> None:
    assert client.put(topic.path, retention_ms=HOUR_MS).status == 200
    half = begin(topic, LARGE, rollback_after_ms=10 * DAY_MS)
    clock.sleep(3 * DAY_MS)
    client.store.drop_expired(clock.ms)
    commit(topic, half, client.another())
    assert bodies(group.drained()) == [LARGE]


def test_a_repeated_decision_gets_the_same_answer_from_any_instance(topic: Topic, group: Group, clock: Clock) -> None:
    committed, dropped = begin(topic, "a", "b"), begin(topic, "c")
    first = commit(topic, committed)
    roll_back(topic, dropped)
    clock.sleep(DAY_MS)
    assert commit(topic, committed) == commit(topic, committed, topic.client.another()) == first
    roll_back(topic, dropped)
    assert bodies(group.drained()) == ["a", "b"]


def test_the_opposite_of_a_decision_is_refused_and_told_why(topic: Topic, group: Group, clock: Clock) -> None:
    committed, dropped = begin(topic, "a"), begin(topic, "b")
    clock.sleep(7)
    commit(topic, committed)
    roll_back(topic, dropped)
    late, wrong = decide(topic, committed, "rollback"), decide(topic, dropped, "commit")
    assert late.problem == wrong.problem == (409, "TransactionEnded")
    assert f"committed at {START_MS + 7}" in late.json["detail"]
    assert f"rolled back at {START_MS + 7}" in wrong.json["detail"]
    assert bodies(group.drained()) == ["a"]


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_an_unknown_transaction_is_not_found(client: Client, topic: Topic, verb: str) -> None:
    elsewhere = begin(client.topic("other"), "a")
    for unknown_id in (elsewhere, "x", "0" * 40, f"{'0' * 16}b1", f"{'0' * 16}bffffffffffff"):
        answer = decide(topic, unknown_id, verb)
        assert answer.problem == (404, "TransactionNotFound")
        assert unknown_id in answer.json["detail"]
    assert decide(Topic(client, "none"), elsewhere, verb).problem == (404, "TopicNotFound")


def test_nothing_is_decided_after_the_rollback_was_due(topic: Topic, group: Group, clock: Clock) -> None:
    late, last = (begin(topic, body, check_after_ms=1_000, rollback_after_ms=1_000) for body in ("late", "last"))
    clock.sleep(999)
    assert len(undecided(topic)["transactions"]) == 2
    commit(topic, last)
    clock.sleep(1)
    assert undecided(topic)["transactions"] == check(topic) == []
    assert decide(topic, late, "commit").problem == (409, "TransactionEnded")
    roll_back(topic, late)
    clock.set_back_ms = 2_000  # by the instance that asks, it is not due yet
    assert decide(topic, late, "commit").problem == (409, "TransactionEnded")
    assert bodies(group.drained()) == ["last"]


def test_a_sweep_rolls_back_what_nobody_decided_about(client: Client, topic: Topic, clock: Clock) -> None:
    old, young = begin(topic, LARGE, rollback_after_ms=1_000), begin(topic, "young")
    clock.sleep(HOUR_MS)
    assert client.api.service.sweeps.expire().done >= 1
    assert not any(items for pk, items in client.store._items.items() if pk.startswith("payload#"))
    assert decide(topic, old, "commit").problem == (409, "TransactionEnded")
    assert ids(undecided(topic)["transactions"]) == [young]


def test_a_sweep_rolls_back_for_as_long_as_it_has_time(
    client: Client, store: TroubledStore, topic: Topic, clock: Clock
) -> None:
    for _ in range(4):
        begin(topic, "a", rollback_after_ms=1)
    clock.sleep(HOUR_MS)
    store.before = lambda verb, _: clock.sleep(SWEEP_MS // 2 + 1) if verb == "write_together" else None
    assert client.api.service.sweeps.expire().done == 2


# -- beginning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", [{"delay_ms": 0}, {"delay_ms": 5, "dedup_id": "a"}, {"deliver_at_ms": START_MS + 5}, {"dedup_id": "a"}]
)
def test_a_half_message_has_no_delay_and_no_dedup_id(topic: Topic, field: Json) -> None:
    answer = asked_to_begin(topic, "a", {"body": "b", **field}, "c", {"body": "d", **field})
    assert answer.problem == (400, "InvalidField")
    assert [each["index"] for each in answer.json["errors"]] == [1, 3]
    name, value = next(iter(field.items()))
    assert answer.json["detail"] == f"field 'messages[1].{name}' cannot be given here; it is {json.dumps(value)}"
    assert undecided(topic)["transactions"] == []


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (["a"] * (HALF_MESSAGES_MAX + 1), "InvalidField"),
        ([{"body": "a", "queue": 1}], "InvalidField"),
        ([{}], "InvalidField"),
    ],
)
def test_messages_that_are_wrong_are_refused_and_nothing_stored(topic: Topic, messages: list[Any], code: str) -> None:
    assert asked_to_begin(topic, *messages).problem == (400, code)
    assert undecided(topic)["transactions"] == []


def test_messages_that_no_response_could_carry_are_too_large(topic: Topic) -> None:
    halves = ["\x01" * 600_000] * 2  # each as JSON seven times as long
    assert asked_to_begin(topic, *halves).problem == (413, "MessageTooLarge")
    assert asked_to_begin(topic, *["a" * 1_100_000] * 4).problem == (413, "MessageTooLarge")
    assert undecided(topic)["transactions"] == []
    quotes, more = '"' * 700_000, 200_000  # four bytes each, in JSON in JSON
    told = asked_to_begin(topic, quotes, quotes + "a" * more).json["detail"]
    [size] = re.findall(r"is (\d+) bytes", told)
    assert int(size) > 2 * (4 * len(quotes) + MESSAGE_OVERHEAD_BYTES) + more
    most = more - (int(size) - MESSAGE_JSON_BYTES_MAX)
    assert asked_to_begin(topic, quotes, quotes + "a" * (most + 1)).problem == (413, "MessageTooLarge")
    assert asked_to_begin(topic, quotes, quotes + "a" * most).status == 201


def test_hooks_run_around_the_begin_and_may_refuse_it(client: Client, topic: Topic, group: Group) -> None:
    seen: list[Any] = []
    hooks = client.api.service.producing.hooks
    hooks.before.append(refuse_secrets)
    hooks.after.append(lambda name, messages, outcome: seen.append((name, len(messages), outcome)))
    assert asked_to_begin(topic, "a", {"body": "b", "tag": "secret"}).problem == (400, "InvalidField")
    assert isinstance(seen.pop()[2], Exception)
    half = begin(topic, "a", {"body": "b", "queue": 0})
    commit(topic, half)
    ((name, count, outcome),) = seen
    assert (name, count, [(each.queue, each.message_id) for each in outcome]) == (
        "orders",
        2,
        [(-1, None), (0, None)],
    )


def test_a_message_carries_the_trace_of_the_begin(client: Client, topic: Topic, group: Group) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    path = f"{topic.path}/transactions"
    answer = client.ask("POST", path, {"messages": [{"body": "a"}]}, traceparent=trace)
    commit(topic, answer.json["transaction_id"])
    assert group.take_one()["properties"] == {"traceparent": trace}


# -- checking ---------------------------------------------------------------------------------------------------------


def test_a_check_returns_what_was_left_undecided_oldest_first(topic: Topic, clock: Clock) -> None:
    given = {"body_base64": "AAEC", "key": "k", "tag": "t", "properties": {"p": "q"}, "queue": 0, "ttl_ms": 5_000}
    plain: Json = {"body": "a", "key": None, "tag": None, "properties": {}}
    halves = []
    for _ in range(3):
        halves.append(begin(topic, "a", given))
        clock.sleep(1)
    roll_back(topic, halves.pop(1))
    clock.sleep(MINUTE_MS - 4)
    assert check(topic) == []
    clock.sleep(3)
    told = check(topic)
    assert ids(told) == halves
    assert told[0] == {
        "topic": "orders",
        "transaction_id": halves[0],
        "messages": [plain, given],
        "checks": 1,
        "created_at_ms": START_MS,
        "rollback_at_ms": START_MS + DAY_MS,
    }


def test_each_transaction_is_given_to_one_caller_and_later_again(topic: Topic, clock: Clock) -> None:
    other = topic.client.another()
    halves = [begin(topic, "a", check_after_ms=1_000) for _ in range(5)]
    clock.sleep(1_000)
    told = [ids(check(topic, max=2)), ids(check(topic, other, max=2)), ids(check(topic)), ids(check(topic, other))]
    assert [len(each) for each in told] == [2, 2, 1, 0]
    assert sorted(each for taken in told for each in taken) == sorted(halves)
    clock.sleep(999)
    assert check(topic) == []
    clock.sleep(1)
    assert [each["checks"] for each in check(topic)] == [2] * 5


def test_a_check_reads_no_further_than_what_it_takes(store: TroubledStore, topic: Topic, clock: Clock) -> None:
    """Or the cost of checking many grows with their square."""
    costs = []
    for _ in range(2):
        for _ in range(120):
            begin(topic, "a", check_after_ms=1_000)
        clock.sleep(1_000)
        before = store.meter.read_units
        assert len(check(topic)) == 16
        costs.append(store.meter.read_units - before)
    assert costs[0] == costs[1]
    left = 2 * 120 - 16  # those of the first check are due again
    while taken := check(topic):
        left -= len(taken)
    assert left == 0


@pytest.mark.parametrize(("due_ms", "wait_ms"), [(1, 1), (5_000, 20_000)])
def test_a_check_waits_until_one_is_due(topic: Topic, clock: Clock, due_ms: int, wait_ms: int) -> None:
    half = begin(topic, "a", check_after_ms=due_ms)
    begin(topic, "later")
    assert ids(check(topic, wait_ms=wait_ms)) == [half]
    assert clock.ms == START_MS + due_ms


def test_a_waiting_check_sees_what_begins_meanwhile(topic: Topic, clock: Clock) -> None:
    other = topic.client.another()
    clock.at(START_MS + 3_000, lambda: begin(Topic(other, topic.name), "a", check_after_ms=100))
    assert len(check(topic, wait_ms=20_000)) == 1
    assert START_MS + 3_100 <= clock.ms <= START_MS + 4_200


def test_a_check_waits_no_longer_than_asked(topic: Topic, clock: Clock) -> None:
    begin(topic, "a")
    assert check(topic, wait_ms=7_000) == []
    assert clock.slept == [10, 20, 40, 80, 160, 320, 640, *[1_000] * 5, 730]


def test_a_check_whose_client_has_hung_up_takes_nothing(topic: Topic, clock: Clock) -> None:
    begin(topic, "a", check_after_ms=1_000)
    with deadline.caller(lambda: clock.ms > START_MS):
        assert check(topic, wait_ms=20_000) == []
    assert clock.ms < START_MS + 1_000


def test_a_check_returns_what_it_could_take(store: TroubledStore, topic: Topic, clock: Clock) -> None:
    halves = [begin(topic, "a", check_after_ms=1) for _ in range(3)]
    clock.sleep(1)
    throttled = itertools.chain([StoreUnavailable("the store throttled")], itertools.repeat(None))
    store.before = lambda verb, _: next(throttled) if verb == "write" else None
    taken = ids(check(topic))
    assert len(taken) == 2
    store.before = unavailable("write")
    assert topic.client.post(f"{topic.path}/transactions/check").problem == (503, "StoreUnavailable")
    store.before = unavailable()
    assert sorted(taken + ids(check(topic))) == sorted(halves)


def test_an_answer_is_no_larger_than_a_response(topic: Topic, clock: Clock) -> None:
    half = RESPONSE_BODY_BYTES_MAX // 2 - MESSAGE_OVERHEAD_BYTES - len(r"{\"b\":\"\"}")
    for size in (half, half, half + 1, half):
        begin(topic, "a" * size, check_after_ms=1)
        clock.sleep(1)
    page = undecided(topic)
    rest = undecided(topic, next=page["next"])
    assert (len(page["transactions"]), len(rest["transactions"])) == (2, 1)
    assert len(undecided(topic, next=rest["next"])["transactions"]) == 1
    assert [len(check(topic)) for _ in range(4)] == [2, 1, 1, 0]


# -- listing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 4, 10, 1_000])
def test_pages_hold_every_undecided_transaction_once(topic: Topic, clock: Clock, limit: int) -> None:
    halves = []
    for _ in range(10):
        halves.append(begin(topic, "a"))
        clock.sleep(1)
    commit(topic, halves.pop(3))
    roll_back(topic, halves.pop(6))
    got: list[str] = []
    query: Json = {"limit": limit}
    while True:
        page = undecided(topic, **query)
        got += ids(page["transactions"])
        if page["next"] is None:
            break
        query["next"] = page["next"]
    assert got == halves


def test_a_list_shows_how_often_a_transaction_was_checked(topic: Topic, clock: Clock) -> None:
    begin(topic, "a")
    assert undecided(topic)["transactions"][0]["checks"] == 0
    clock.sleep(MINUTE_MS)
    told = check(topic)
    assert undecided(topic)["transactions"] == told


def test_a_list_leaves_out_what_is_decided_while_it_reads(store: TroubledStore, topic: Topic) -> None:
    half, other = begin(topic, LARGE), topic.client.another()
    store.before = first(is_read_of_payloads, lambda: commit(topic, half, other), store)
    assert undecided(topic)["transactions"] == []


# -- trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_a_decision_whose_answer_is_lost_can_be_repeated(
    store: TroubledStore, topic: Topic, group: Group, verb: str
) -> None:
    half = begin(topic, "a", LARGE)
    store.after = unknown("write_together")
    lost = decide(topic, half, verb)
    assert (lost.problem, lost.json["outcome"]) == ((503, "StoreUnavailable"), "unknown")
    store.after = unavailable()
    assert decide(topic, half, verb).status == 200
    assert decide(topic, half, "commit" if verb == "rollback" else "rollback").problem == (409, "TransactionEnded")
    assert len(group.drained()) == (2 if verb == "commit" else 0)


def no_promotion(verb: str, about: Any) -> StoreUnavailable | None:
    """Nobody can promote delayed messages."""
    is_promotion = verb == "write" and about.key.pk.startswith("promotions#")
    return StoreUnavailable("the store throttled") if is_promotion else None


@pytest.mark.parametrize(("cancelled", "places"), [([0], [None, 0]), ([1], [0, None]), ([0, 1], [None, None])])
def test_a_commit_tells_that_messages_were_cancelled_meanwhile(
    store: TroubledStore, topic: Topic, cancelled: list[int], places: list[int | None]
) -> None:
    half = begin(topic, "a", "b")
    store.before = no_promotion
    assert decide(topic, half, "commit").status == 503
    store.before = unavailable()
    waiting = topic.client.get(f"{topic.path}/delayed").json["messages"]
    for place in cancelled:
        assert topic.client.delete(f"{topic.path}/delayed/{waiting[place]['message_id']}").status == 200
    assert offsets(commit(topic, half)) == places


def test_a_commit_whose_messages_are_lost_decides_nothing(store: TroubledStore, topic: Topic) -> None:
    half = begin(topic, LARGE)
    store.remove_all([Key(pk, sk) for pk, items in store._items.items() for sk in items if pk.startswith("payload#")])
    assert decide(topic, half, "commit").problem == (503, "StoreUnavailable")
    roll_back(topic, half)


def test_a_throttled_begin_stores_nothing(store: TroubledStore, topic: Topic, group: Group) -> None:
    store.before = unavailable("write_together")
    assert asked_to_begin(topic, "a").problem == (503, "StoreUnavailable")
    store.before = unavailable()
    assert undecided(topic)["transactions"] == []


def test_a_deleted_topic_takes_its_transactions_with_it(client: Client, topic: Topic) -> None:
    halves = [begin(topic, LARGE), begin(topic, "a")]
    topic.delete()
    assert [pk for pk, items in client.store._items.items() if items and not pk.startswith("log#")] == []
    again = client.topic("orders")
    assert undecided(again)["transactions"] == check(again) == []
    for half in halves:
        assert decide(again, half, "commit").problem == (404, "TransactionNotFound")


@pytest.mark.parametrize("moment", [is_decision, is_read_of_payloads])
def test_a_commit_during_the_deletion_delivers_nothing(
    store: TroubledStore, client: Client, topic: Topic, moment: Moment
) -> None:
    half = begin(topic, LARGE)
    store.before = first(moment, Topic(client.another(), topic.name).delete, store)
    assert decide(topic, half, "commit").status == 404
    again = client.topic("orders")
    assert again.group("g").pop()["messages"] == []


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_an_id_that_differs_in_its_time_names_no_transaction(topic: Topic, verb: str) -> None:
    path = f"{topic.path}/transactions"
    begun = topic.client.post(path, messages=[{"body": "a"}]).json["transaction_id"]
    other = begun[:-1] + ("1" if begun[-1] == "0" else "0")
    for _ in range(2):
        assert topic.client.post(f"{path}/{other}/{verb}").problem == (404, "TransactionNotFound")
        assert topic.client.post(f"{path}/{begun}/{verb}").status == 200
