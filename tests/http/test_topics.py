"""Topics over HTTP: create, look at, list, delete, and make again."""

from __future__ import annotations

import pytest

from tests.support.client import Client, Topic, failed
from tests.support.clock import START_MS, Clock


def test_a_new_topic_is_201_and_has_four_queues(client: Client) -> None:
    answer = client.put("/topics/orders")
    assert answer.status == 201
    assert answer.json == {
        "topic": "orders",
        "queues": 4,
        "retention_ms": 259_200_000,
        "index_keys": False,
        "max_depth": None,
        "trace": False,
        "zones": None,
        "created_at_ms": START_MS,
    }


def test_a_topic_put_again_is_200_and_stays_as_it_is(client: Client, clock: Clock) -> None:
    made = client.put("/topics/orders", queues=7).json
    clock.sleep(1_000)
    assert [client.put("/topics/orders").status, client.put("/topics/orders", queues=7).status] == [200, 200]
    assert client.put("/topics/orders", queues=None).json == made


def test_a_topic_shows_its_groups_and_what_its_queues_hold(client: Client) -> None:
    topic = client.topic("orders", queues=3)
    topic.produce("a", "b", queue=1)
    topic.group("zeta")
    topic.group("alpha")
    assert topic.details() == {
        "topic": "orders",
        "queues": 3,
        "retention_ms": 259_200_000,
        "index_keys": False,
        "max_depth": None,
        "trace": False,
        "zones": None,
        "created_at_ms": START_MS,
        "groups": ["alpha", "zeta"],
        "queue_offsets": [
            {"queue": 0, "first_offset": 0, "end_offset": 0},
            {"queue": 1, "first_offset": 0, "end_offset": 2},
            {"queue": 2, "first_offset": 0, "end_offset": 0},
        ],
    }


def test_topics_are_listed_as_they_are_created(client: Client) -> None:
    made = [client.put(f"/topics/{name}").json for name in ("a", "a.b", "b")]
    assert client.get("/topics").json == {"topics": made, "next": None}


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 1000])
def test_pages_of_any_size_hold_every_topic_once(client: Client, limit: int) -> None:
    names = ["A", "a", "a-b", "a.b", "b" * 100]
    for name in names:
        client.topic(name)
    assert _paged(client, limit) == names


def test_a_page_has_100_topics_unless_asked_otherwise(client: Client) -> None:
    for number in range(101):
        client.topic(f"t{number:03}")
    first = client.get("/topics").json
    assert len(first["topics"]) == 100
    assert [each["topic"] for each in client.get("/topics", next=first["next"]).json["topics"]] == ["t100"]


def test_paging_while_topics_come_and_go_neither_repeats_nor_skips(client: Client) -> None:
    for name in ("b", "d", "f", "h"):
        client.topic(name)
    first = client.get("/topics", limit=2).json
    for name in ("a", "c", "e"):
        client.topic(name)
    client.delete("/topics/d")
    rest = client.get("/topics", limit=9, next=first["next"]).json
    assert [each["topic"] for each in first["topics"] + rest["topics"]] == ["b", "d", "e", "f", "h"]


def test_a_deleted_topic_is_gone(client: Client, topic: Topic) -> None:
    topic.group("billing")
    topic.delete()
    assert client.get(topic.path).problem == (404, "TopicNotFound")
    assert client.get("/topics").json["topics"] == []
    assert client.delete(topic.path).problem == (404, "TopicNotFound")
    assert client.get(f"{topic.path}/groups/billing").problem == (404, "TopicNotFound")
    assert client.post(f"{topic.path}/messages", messages=[{"body": "a"}]).problem == (404, "TopicNotFound")


def test_a_topic_made_again_starts_empty_at_offset_0_and_without_groups(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    for queue in (0, 1):
        topic.produce("a", "b", {"body": "x" * 10_000}, queue=queue)
    group = topic.group("billing")
    group.take(2)
    topic.delete()
    again = client.topic("orders", queues=2)
    assert again.details()["groups"] == []
    assert again.read() == {"messages": [], "next": None}
    assert [each["offset"] for each in again.produce("new", queue=0)] == [0]
    made_again = again.group("billing")
    assert [each["attempt"] for each in made_again.take(1)] == [1]
    assert made_again.totals() == (0, 1, 0, 0)


def test_receipts_of_a_deleted_topic_are_invalid_in_the_one_made_again(client: Client, topic: Topic) -> None:
    topic.produce("a", "b")
    old = topic.group("billing").take(2)
    topic.delete()
    group = client.topic("orders").group("billing")
    group.topic.produce("c", "d")
    group.take(2)
    invalid = ["ReceiptInvalid", "ReceiptInvalid"]
    assert [failed(verb(*old)) for verb in (group.ack, group.nack, group.extend)] == [invalid] * 3
    assert group.pop(ack=[each["receipt"] for each in old])["acked"] == 0
    assert group.totals() == (0, 2, 0, 0)


def test_ids_of_a_deleted_topic_find_nothing_in_the_one_made_again(client: Client, topic: Topic) -> None:
    old = topic.produce("a")[0]["message_id"]
    topic.delete()
    again = client.topic("orders")
    again.produce("b")
    assert client.get(f"{again.path}/messages/{old}").problem == (404, "MessageNotFound")


def test_a_topic_in_another_form_stops_neither_sweeps_nor_lists(client: Client, topic: Topic) -> None:
    topic.produce({"body": "a", "delay_ms": 1})
    client.topic("newer").produce({"body": "a", "delay_ms": 1})
    newer = client.store._items["topic#newer"]["settings"]
    client.store.put_all([{**newer, "form": 3}])
    client.clock.sleep(60_000)
    sweeps = client.another().api.service.sweeps
    assert sweeps.forward().done == 1
    sweeps.expire()
    assert [each["topic"] for each in client.get("/topics").json["topics"]] == ["orders"]


@pytest.mark.parametrize("form", [1, 3])
def test_a_topic_in_another_form_is_refused_with_both_numbers(client: Client, topic: Topic, form: int) -> None:
    item = client.store._items[f"topic#{topic.name}"].pop("settings")
    client.store.put_all([{**item, "form": form}])
    before = {pk: dict(items) for pk, items in client.store._items.items()}
    fresh = client.another()
    sent = fresh.post(f"{topic.path}/messages", messages=[{"body": "a"}])
    for answer in (sent, fresh.get(topic.path), fresh.put(topic.path), fresh.delete(topic.path)):
        assert answer.problem == (500, "Internal")
        assert f"is stored in form {form}, and this release reads form 2" in answer.json["detail"]
    assert client.store._items == before


def test_deleting_a_topic_leaves_nothing_but_the_end_of_its_log(client: Client, topic: Topic) -> None:
    topic.produce(*["x" * 2_000] * 40)
    topic.produce({"body": "y" * 1_000_000})
    topic_id = client.store._items[f"topic#{topic.name}"]["settings"]["id"]
    group = topic.group("billing", max_attempts=1)
    group.nack(*group.take(10))
    topic.delete()
    held = {pk: items for pk, items in client.store._items.items() if items}
    places = {pk.rpartition("#")[0] for pk in held}
    assert places == {f"log#{topic_id}", "agenda#revive", ""}, "the next sweeps end what is on the agenda"
    [closed] = held[f"log#{topic_id}#0"].values()
    assert (closed["end"], closed["entries"], closed["closed"]) == (41, [], True)
    assert closed["ttl"] == client.clock.now() // 1_000 + 24 * 60 * 60


# -- what another instance believes of it -----------------------------------------------------------------------------


def test_another_instance_finds_groups_of_a_topic_just_made_again(client: Client) -> None:
    old = client.topic("orders", queues=2)
    old.produce("a", queue=1)
    other = client.another()
    believed = old.group("billing").seen_by(other)
    late = believed.take_one()
    old.delete()
    topic = client.topic("orders", queues=1)
    group = topic.group("billing")
    topic.produce("b", "c")
    assert failed(believed.ack(late)) == ["ReceiptInvalid"]
    assert believed.topic.details()["queues"] == 1
    assert believed.totals() == (2, 0, 0, 0)
    assert [each["body"] for each in believed.take(2)] == ["b", "c"]
    assert group.totals() == (0, 2, 0, 0)


def test_another_instance_forgets_a_deleted_topic_within_5_seconds(client: Client, clock: Clock) -> None:
    topic = client.topic("orders")
    other = client.another()
    Topic(other, topic.name).produce("a")
    topic.delete()
    clock.sleep(5_001)
    assert other.post(f"{topic.path}/messages", messages=[{"body": "b"}]).problem == (404, "TopicNotFound")
    client.topic("orders")
    assert Topic(other, topic.name).produce("c")[0]["offset"] == 0
    assert [each["body"] for each in topic.read()["messages"]] == ["c"]


def _paged(client: Client, limit: int) -> list[str]:
    names: list[str] = []
    query = {"limit": limit}
    while True:
        page = client.get("/topics", **query).json
        assert len(page["topics"]) <= limit
        names += [each["topic"] for each in page["topics"]]
        if page["next"] is None:
            return names
        query["next"] = page["next"]
