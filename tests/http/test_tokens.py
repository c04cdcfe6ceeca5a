"""Tokens: made, shown once, listed, rotated, expired and deleted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chalicelib.api import Demand
from chalicelib.core.access.tokens import secret_access_key
from chalicelib.core.base.limits import DAY_MS, METADATA_AGE_MS_MAX, OLD_SECRET_MS_DEFAULT, OLD_SECRET_MS_MAX
from tests.support.client import ALL_RIGHTS, Answer, Client, Json

READ = {"operations": ["read"], "topics": "orders*"}
VALID, UNKNOWN = 200, (401, "Unauthenticated")


@pytest.fixture
def client() -> Client:
    """It demands tokens, and shows one that may do everything."""
    client = Client(demand=Demand(requests=True))
    client.token = client.make_token()
    return client


def made(client: Client, **fields: Any) -> Json:
    answer = client.post("/tokens", **{"name": "reader", "rights": [ALL_RIGHTS], **fields})
    assert answer.status == 201
    token: Json = answer.json
    return token


def rotated(client: Client, token: Json, **fields: Any) -> Json:
    answer = client.post(f"/tokens/{token['token_id']}/rotate", **fields)
    assert answer.status == 200
    new: Json = answer.json
    return new


def shown(client: Client, token: Json) -> int | tuple[int, str]:
    """The instance's verdict on the token: 200, or the problem."""
    answer = client.ask("GET", "/topics", authorization=f"Bearer {token['token']}")
    return answer.status if answer.status == 200 else answer.problem


def listed(client: Client) -> list[str]:
    return [token["token_id"] for token in client.get("/tokens").json["tokens"]]


def test_a_new_token_is_what_bearers_and_clients_of_sqs_expect(client: Client) -> None:
    token = made(client)
    assert re.fullmatch(r"dct_[A-Z2-7]{16}_[A-Za-z0-9_-]{43}", token["token"])
    assert re.fullmatch(r"[A-Z0-9]{20}", token["access_key_id"])
    assert len(token["secret_access_key"]) == 40
    assert shown(client, token) == VALID


def test_a_token_is_shown_as_it_was_made_and_without_its_secrets(client: Client) -> None:
    rights = [READ, {"operations": ["admin", "read"], "topics": "orders.eu", "groups": "b*", "deny": True}]
    token = made(client, rights=rights, expires_at_ms=client.clock.ms + DAY_MS)
    got = client.get(f"/tokens/{token['token_id']}").json
    assert got == {
        "token_id": token["token_id"],
        "name": "reader",
        "rights": [{**READ, "groups": "*", "deny": False}, rights[1]],
        "expires_at_ms": client.clock.ms + DAY_MS,
        "created_at_ms": client.clock.ms,
        "access_key_id": token["access_key_id"],
    }
    assert got in client.get("/tokens").json["tokens"]


def test_the_table_holds_no_secret_of_a_token(client: Client) -> None:
    token = made(client)
    rotated_token = rotated(client, token)
    held = repr(client.store._items)
    for one in (token, rotated_token):
        assert one["token"].rpartition("_")[2] not in held
        assert one["secret_access_key"] not in held


def test_tokens_are_paged_as_every_list(client: Client) -> None:
    ids = sorted([*listed(client), *(made(client)["token_id"] for _ in range(4))])
    seen, page = [], client.get("/tokens", limit=2).json
    while page["tokens"]:
        seen += [token["token_id"] for token in page["tokens"]]
        page = client.get("/tokens", limit=2, next=page["next"]).json if page["next"] else {"tokens": []}
    assert seen == ids
    assert client.get("/tokens", next="bm8").problem == (400, "InvalidField")


def test_a_token_that_has_ended_before_it_begins_is_refused(client: Client) -> None:
    before = listed(client)
    answer = client.post("/tokens", name="a", rights=[READ], expires_at_ms=0)
    assert answer.problem == (400, "InvalidField")
    assert "expires_at_ms" in answer.json["detail"]
    assert listed(client) == before


def test_a_token_is_valid_until_it_expires_to_the_millisecond(client: Client) -> None:
    token = made(client, expires_at_ms=client.clock.ms + 1_000)
    assert client.post("/tokens", name="a", rights=[READ], expires_at_ms=client.clock.ms).status == 400
    client.clock.ms += 999
    client.store.drop_expired(client.clock.ms)
    assert shown(client, token) == VALID
    client.clock.ms += 1
    assert shown(client, token) == UNKNOWN


def test_a_deleted_token_stops_at_once_here_and_soon_everywhere(client: Client) -> None:
    other, token = client.another(), made(client)
    client.clock.ms += 100
    assert (shown(client, token), shown(other, token)) == (VALID, VALID)
    client.clock.ms += 4_000
    assert client.delete(f"/tokens/{token['token_id']}").status == 204
    assert (shown(client, token), shown(other, token)) == (UNKNOWN, VALID)
    client.clock.ms += METADATA_AGE_MS_MAX - 4_000 + 1
    assert shown(other, token) == UNKNOWN
    assert token["token_id"] not in listed(client)


def test_a_revocation_is_heard_even_by_who_uses_the_token_all_the_time(client: Client) -> None:
    other, token = client.another(), made(client)
    assert shown(other, token) == VALID
    client.delete(f"/tokens/{token['token_id']}")
    deleted_at_ms = client.clock.ms
    while shown(other, token) == VALID:
        client.clock.ms += 250
    assert client.clock.ms - deleted_at_ms <= METADATA_AGE_MS_MAX + 250


def test_a_second_delete_is_404(client: Client) -> None:
    path = f"/tokens/{made(client)['token_id']}"
    assert [client.delete(path).status for _ in range(2)] == [204, 404]


def test_after_a_rotation_both_secrets_work_for_a_day(client: Client) -> None:
    old = made(client)
    new = rotated(client, old)
    assert (new["token_id"], new["access_key_id"]) == (old["token_id"], old["access_key_id"])
    assert new["secret_access_key"] != old["secret_access_key"]
    client.clock.ms += OLD_SECRET_MS_DEFAULT - 1
    assert (shown(client, old), shown(client, new)) == (VALID, VALID)
    client.clock.ms += 1
    assert (shown(client, old), shown(client, new)) == (UNKNOWN, VALID)


def test_a_rotation_can_revoke_the_old_secrets_at_once(client: Client) -> None:
    first = made(client)
    second = rotated(client, first)
    third = rotated(client, second, old_valid_ms=0)
    assert [shown(client, token) for token in (first, second, third)] == [UNKNOWN, UNKNOWN, VALID]


def test_rotating_again_after_a_lost_answer_locks_nobody_out(client: Client) -> None:
    old = made(client)
    for _ in range(5):
        lost = rotated(client, old)
    assert (shown(client, old), shown(client, lost)) == (VALID, VALID)


def test_a_later_rotation_never_makes_an_old_secret_live_longer(client: Client) -> None:
    first = made(client)
    rotated(client, first, old_valid_ms=1_000)
    rotated(client, first, old_valid_ms=OLD_SECRET_MS_MAX)
    client.clock.ms += 1_000
    assert shown(client, first) == UNKNOWN


def test_a_token_has_ten_secrets_at_most(client: Client) -> None:
    token = made(client)
    path = f"/tokens/{token['token_id']}/rotate"
    assert [client.post(path).status for _ in range(10)] == [200] * 9 + [400]
    assert client.post(path).problem == (400, "InvalidField")
    assert client.post(path, old_valid_ms=0).status == 200
    assert shown(client, token) == UNKNOWN


def test_an_expired_token_can_still_be_rotated_and_is_still_expired(client: Client) -> None:
    token = made(client, expires_at_ms=client.clock.ms + 1_000)
    client.clock.ms += 1_000
    assert shown(client, rotated(client, token)) == UNKNOWN


def test_a_secret_access_key_follows_from_the_key_of_the_service(client: Client) -> None:
    token = made(client)
    key = client.api.service.signing_key.of(token["token_id"])
    assert token["secret_access_key"] == secret_access_key(token["token_id"], 1, key)
    other = client.another().api.service.signing_key.of(token["token_id"])
    assert rotated(client, token)["secret_access_key"] == secret_access_key(token["token_id"], 2, other)


def test_deleting_a_topic_leaves_the_tokens_for_it(client: Client) -> None:
    token = made(client, rights=[{**ALL_RIGHTS, "topics": "orders"}])
    client.topic("orders").delete()
    assert token["token_id"] in listed(client)
    answer: Answer = client.ask("GET", "/topics/orders", authorization=f"Bearer {token['token']}")
    assert answer.problem == (404, "TopicNotFound")
