"""The setting of a pushed group, and its secrets."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from chalicelib.core.base.limits import PUSH_SECRETS_MAX
from chalicelib.core.table.writes import Item, Write
from tests.http.pushed import URL, client, consumer, group
from tests.support.client import Client, Group, Topic, bodies
from tests.support.clock import START_MS, Clock
from tests.support.consumer import Consumer
from tests.support.troubled_store import TroubledStore

__all__ = ["client", "consumer", "group"]


def refusal(group: Group, push: Any, **settings: Any) -> str:
    """The detail of the error, after which nothing has changed."""
    before = group.progress()
    answer = group.client.put(group.path, push=push, **settings)
    assert answer.problem[0] == 400
    assert group.progress() == before
    return str(answer.json["detail"])


def test_a_push_is_answered_as_given_and_an_empty_one_removes_it(topic: Topic) -> None:
    push = {"url": URL, "batch": 256, "concurrency": 100, "timeout_ms": 60_000}
    group = topic.group("billing", push=push)
    assert group.progress()["push"] == push
    group.change(push={"function": "bill"})
    assert group.progress()["push"] == {"function": "bill"}
    group.change(paused=False)
    assert group.progress()["push"] == {"function": "bill"}
    group.change(push={})
    assert group.progress()["push"] is None
    topic.produce("a")
    assert bodies(group.take(1)) == ["a"]


@pytest.mark.parametrize(
    ("push", "wrong"),
    [
        ({"url": URL, "function": "f"}, "'push.url' and field 'push.function' must be given; both are"),
        ({"batch": 5}, "'push.url' and field 'push.function' must be given; neither is"),
        ({"url": URL, "secret_id": "none"}, "'push.secret_id'"),
        ({"function": "f", "secret_id": "x"}, "'push.secret_id'"),
        ({"function": "no such name"}, "'push.function'"),
        ({"url": "shop.example/hooks"}, "shop.example/hooks"),
        ({"url": "ftp://shop.example/"}, "ftp://"),
        ({"url": "https:///hooks"}, "'push.url'"),
        ({"url": "https://user:word@shop.example/"}, "'push.url'"),
        ({"url": "https://shop.example/#there"}, "'push.url'"),
        ({"url": "https://shop.example/a b"}, "'push.url'"),
        ({"url": "https://shop.example:99999/"}, "'push.url'"),
        ({"url": "https://[::1/"}, "'push.url'"),
        ({"url": "https://schön.example/"}, "'push.url'"),
        ({"url": "http://shop.example/"}, "an https URL"),
    ],
)
def test_an_invalid_push_is_refused_by_its_field(topic: Topic, push: Any, wrong: str) -> None:
    assert wrong in refusal(topic.group("billing"), push)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.1.1", "127.1", "2130706433", "0x7f000001", "localhost", "a.localhost", "localhost."),
        *("[::1]", "[fe80::1]", "[fd00::1]", "[4000::1]", "[ff0e::1]"),
        *("[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::]"),
        *("192.0.0.8", "192.0.0.9", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
        *("203.0.113.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "100.127.255.255", "172.31.255.255"),
        *("168.63.129.16", "100.100.100.200", "[fd00:ec2::254]", "[fd20:ce::254]", "[::ffff:168.63.129.16]"),
        *("[fec0::1]", "[::]", "[::8.8.8.8]", "[100::1]", "[5f00::1]", "[1fff::1]", "[2001:db8::1]", "[3fff::1]"),
        *("[2001::1]", "[2001:0:808:808::f7f7:f7f7]", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]", "[2001:1ff::1]"),
        *("[64:ff9b:1::808:808]", "[64:ff9b::a83f:8110]", "[2002:7f00:1::1]", "[2002:a83f:8110::1]"),
        *(
            "[2606:4700::5efe:7f00:1]",
            "[2606:4700::200:5efe:a00:1]",
            "[2002:808:808::5efe:a00:1]",
            "[fe80::5efe:808:808]",
        ),
    ],
)
def test_an_address_that_is_not_public_is_refused(topic: Topic, host: str) -> None:
    assert "a public address" in refusal(topic.group("billing"), {"url": f"https://{host}/hooks"})


@pytest.mark.parametrize(
    "host",
    [
        *("8.8.8.8", "[2606:4700::1111]", "shop.example"),
        *("[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::]"),  # these carry one of IPv4
        *("[2606:4700::5efe:808:808]", "[2002:808:808::5efe:909:909]"),
        *("192.0.1.1", "192.31.196.1", "172.32.0.1", "100.128.0.1", "168.63.129.17", "11.0.0.1", "223.255.255.255"),
        *("[2001:200::1]", "[2a00:1450::1]", "[2620:4f:8000::1]", "[3ffe::1]"),
    ],
)
def test_a_public_address_or_a_name_is_taken(topic: Topic, host: str) -> None:
    topic.group("billing", push={"url": f"https://{host}:8443/hooks?a=b"})


def test_only_where_it_is_allowed_a_url_may_be_on_this_machine(store: TroubledStore, consumer: Consumer) -> None:
    client = Client(store, outside=consumer.outside(allows_loopback=True))
    group = client.topic("orders").group("billing", push={"url": "http://localhost:8080/hooks"})
    group.change(push={"url": "http://127.0.0.1:8080/hooks"})
    assert "a public address" in refusal(group, {"url": "http://10.0.0.1/"})


def test_a_broadcast_group_cannot_be_pushed(topic: Topic) -> None:
    answer = topic.client.put(f"{topic.path}/groups/all", mode="broadcast", push={"url": URL})
    assert answer.problem == (400, "InvalidField")
    assert topic.details()["groups"] == []
    group = topic.group("all", mode="broadcast")
    assert "'push' needs a clustering group" in refusal(group, {"url": URL})


def test_a_pushed_group_refuses_to_be_popped(topic: Topic, group: Group) -> None:
    topic.produce("a")
    answer = topic.client.post(f"{group.path}/pop", wait_ms=20_000)
    assert answer.problem == (409, "GroupIsPushed")
    assert group.totals() == (1, 0, 0, 0)


def test_what_was_popped_before_the_push_can_still_be_settled(topic: Topic) -> None:
    topic.produce("a", "b")
    group = topic.group("billing")
    first, second = group.take(2)
    group.change(push={"url": URL})
    assert group.ack(first)["acked"] == 1
    assert group.nack(second)["nacked"] == 1


# -- secrets --------------------------------------------------------------------------------------------------------


def make_secret(group: Group) -> Any:
    answer = group.client.post(f"{group.path}/push/secrets")
    assert answer.status == 201
    return answer.json


def test_secrets_are_shown_once_and_listed_by_id(topic: Topic, group: Group, clock: Clock) -> None:
    first = make_secret(group)
    clock.sleep(5)
    second = make_secret(group)
    assert re.fullmatch("[0-9a-f]{16}", first["secret_id"])
    assert len(base64.b64decode(first["secret"].removeprefix("whsec_"), validate=True)) == 32
    assert first["secret"] != second["secret"]
    listed = group.client.get(f"{group.path}/push/secrets").json
    place = {"topic": "orders", "group": "billing"}
    expected = [
        {"secret_id": first["secret_id"], **place, "created_at_ms": START_MS},
        {"secret_id": second["secret_id"], **place, "created_at_ms": START_MS + 5},
    ]
    assert sorted(listed["secrets"], key=lambda each: each["created_at_ms"]) == expected
    assert listed["next"] is None
    assert "secrets" not in group.progress()


def test_a_secret_is_made_though_the_group_changes_meanwhile(topic: Topic, group: Group, store: TroubledStore) -> None:
    make_secret(group)  # the first write of all makes the signing key
    write = store.write

    def meanwhile(change: Write) -> Item:
        store.write = write  # type: ignore[method-assign]
        group.seen_by(topic.client.another()).change(max_attempts=3)
        return write(change)

    store.write = meanwhile  # type: ignore[assignment, method-assign]
    make_secret(group)
    assert len(group.client.get(f"{group.path}/push/secrets").json["secrets"]) == 2
    assert group.progress()["max_attempts"] == 3


def test_a_list_of_secrets_is_paged(topic: Topic, group: Group) -> None:
    made = {make_secret(group)["secret_id"] for _ in range(3)}
    path = f"{group.path}/push/secrets"
    page = group.client.get(path, limit=2).json
    rest = group.client.get(path, limit=2, next=page["next"]).json
    assert [len(page["secrets"]), len(rest["secrets"]), rest["next"]] == [2, 1, None]
    assert {each["secret_id"] for each in page["secrets"] + rest["secrets"]} == made
    assert group.client.get(path, limit=3).json["next"] is None
    assert group.client.get(path, next="garbage").problem == (400, "InvalidField")


def test_a_deleted_secret_is_gone_and_deleting_it_twice_is_404(topic: Topic) -> None:
    group = topic.group("billing")  # not pushed yet
    path = f"{group.path}/push/secrets/{make_secret(group)['secret_id']}"
    kept = make_secret(group)["secret_id"]
    assert group.client.delete(path).status == 204
    assert group.client.delete(path).problem == (404, "NotFound")
    listed = group.client.get(f"{group.path}/push/secrets").json["secrets"]
    assert [each["secret_id"] for each in listed] == [kept]


def test_a_group_has_only_so_many_secrets(topic: Topic, group: Group) -> None:
    for _ in range(PUSH_SECRETS_MAX):
        make_secret(group)
    answer = group.client.post(f"{group.path}/push/secrets")
    assert answer.problem == (400, "InvalidField")
    assert str(PUSH_SECRETS_MAX) in answer.json["detail"]


def test_the_secret_that_the_push_names_cannot_be_deleted(topic: Topic, group: Group) -> None:
    secret_id = make_secret(group)["secret_id"]
    group.change(push={"url": URL, "secret_id": secret_id})
    path = f"{group.path}/push/secrets/{secret_id}"
    assert group.client.delete(path).problem == (400, "InvalidField")
    group.change(push={"url": URL})
    assert group.client.delete(path).status == 204


def test_secrets_outlive_changes_of_settings_but_not_their_group(topic: Topic, group: Group) -> None:
    make_secret(group)
    group.change(max_attempts=3, push={"url": URL, "batch": 1})
    assert len(group.client.get(f"{group.path}/push/secrets").json["secrets"]) == 1
    group.delete()
    again = topic.group("billing", push={"url": URL})
    assert again.client.get(f"{again.path}/push/secrets").json["secrets"] == []
