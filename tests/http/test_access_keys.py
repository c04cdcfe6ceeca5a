"""Access keys: whose signature counts, and for how long."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.access.callers import WrongSignature
from chalicelib.core.base.errors import Unauthenticated
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.service import Service
from tests.support.client import ALL_RIGHTS, Client, Json

VALID, INVALID, WRONG = "valid", "invalid key", "wrong signature"


@pytest.fixture
def client() -> Client:
    return Client()


def made(client: Client, **fields: int) -> Json:
    token: Json = client.api.make_token({"name": "a", "rights": [ALL_RIGHTS], **fields})
    return token


def signed(api: Api, key_id: str, secret: str) -> str:
    """The instance's verdict on a signature with this secret."""
    try:
        caller = api.service.access.callers.signer(key_id, lambda own: own == secret)
    except Unauthenticated:
        return INVALID
    except WrongSignature:
        return WRONG
    assert caller.name == key_id
    return VALID


def shown(client: Client, pair: Json) -> str:
    return signed(client.api, pair["access_key_id"], pair["secret_access_key"])


def test_a_signature_counts_if_the_secret_of_the_key_fits(client: Client) -> None:
    token, other = made(client), made(client)
    assert shown(client, token) == VALID
    assert shown(client, {**token, "secret_access_key": other["secret_access_key"]}) == WRONG


@pytest.mark.parametrize("spoil", [lambda _: "", str.lower, lambda key: key[:-1], lambda key: key + "A"])
def test_whatever_is_wrong_with_a_key_id_gets_one_answer(client: Client, spoil: Callable[[str], str]) -> None:
    token = made(client)
    spoilt = spoil(token["access_key_id"])
    errors, reads = set(), client.store.meter.requests
    for key_id in (spoilt, "AKIDEXAMPLE", f"{token['access_key_id']}\n", "DCTK" + 16 * "A"):
        with pytest.raises(Unauthenticated) as error:
            client.api.service.access.callers.signer(key_id, lambda _: True)
        errors.add(error.value.detail)
    assert client.store.meter.requests == reads + 1  # only the last could be one
    assert errors == {"the access key is not valid: it is malformed, unknown, expired or revoked"}


def test_a_key_ends_when_its_token_expires(client: Client) -> None:
    token = made(client, expires_at_ms=client.clock.ms + 1_000)
    client.clock.ms += 999
    assert shown(client, token) == VALID
    client.clock.ms += 1
    assert shown(client, token) == INVALID


def test_a_deleted_key_stops_at_once_here_and_soon_everywhere(client: Client) -> None:
    other, token = client.another(), made(client)
    assert (shown(client, token), shown(other, token)) == (VALID, VALID)
    client.api.delete_token(token["token_id"])
    client.clock.ms += METADATA_AGE_MS_MAX
    assert (shown(client, token), shown(other, token)) == (INVALID, VALID)
    client.clock.ms += 1
    assert shown(other, token) == INVALID


def test_after_a_rotation_both_secrets_sign_until_the_old_one_ends(client: Client) -> None:
    old = made(client)
    new = client.api.rotate_token(old["token_id"], {"old_valid_ms": 1_000})
    client.clock.ms += 999
    assert (shown(client, old), shown(client, new)) == (VALID, VALID)
    client.clock.ms += 1
    assert (shown(client, old), shown(client, new)) == (WRONG, VALID)


def test_a_secret_that_was_rotated_away_at_once_signs_nothing(client: Client) -> None:
    old = made(client)
    client.api.rotate_token(old["token_id"], {"old_valid_ms": 0})
    assert shown(client, old) == WRONG


def test_a_secret_signs_while_its_signing_key_is_accepted() -> None:
    keys: Sequence[bytes] = (16 * b"a",)
    client = Client()
    client.api = Api(Service(client.store, client.clock.runtime(1), lambda: keys))
    old = made(client)
    keys = (16 * b"b", 16 * b"a")
    new = client.api.rotate_token(old["token_id"], {})
    assert (shown(client, old), shown(client, new)) == (VALID, VALID)
    keys = (16 * b"b",)
    assert (shown(client, old), shown(client, new)) == (WRONG, VALID)


def test_every_secret_is_tried_so_that_the_time_tells_nothing() -> None:
    client = Client()
    client.api = Api(Service(client.store, client.clock.runtime(1), lambda: (16 * b"b", 16 * b"a")))
    token = made(client)
    client.api.rotate_token(token["token_id"], {})
    client.clock.ms += 100_000_000  # the first secret is not valid any more
    tried: list[str] = []

    def is_right(secret: str) -> bool:
        tried.append(secret)
        return True

    client.api.service.access.callers.signer(token["access_key_id"], is_right)
    assert len(set(tried)) == len(tried) == 4
    assert all(re.fullmatch("[A-Za-z0-9_-]{40}", secret) for secret in tried)


def test_tokens_have_no_access_key_where_a_table_holds_the_signing_key() -> None:
    client = Client()
    client.api = Api(Service(client.store, client.clock.runtime(1), has_access_keys=False))
    token = made(client)
    rotated = client.api.rotate_token(token["token_id"], {})
    assert (token["secret_access_key"], rotated["secret_access_key"]) == (None, None)


@pytest.mark.parametrize(
    ("settings", "has_keys"),
    [
        ({"DECANT_STORE": "dynamodb"}, False),
        ({"DECANT_STORE": "dynamodb", "DECANT_SIGNING_KEY": 16 * "a"}, True),
        ({"DECANT_STORE": "dynamodb", "DECANT_SIGNING_KEY_FROM": "ssm:/decant/key"}, True),
        ({"DECANT_STORE": "memory"}, True),
    ],
)
def test_an_access_key_needs_a_signing_key_that_no_table_holds(
    settings: dict[str, str], has_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DECANT_SIGNING_KEY", "DECANT_SIGNING_KEY_FROM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert wiring.settings.has_access_keys is has_keys
