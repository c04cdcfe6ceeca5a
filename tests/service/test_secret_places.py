"""Signing keys from Parameter Store and Secrets Manager, as the service reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import moto
import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.signing_key import ConfiguredKeys
from chalicelib.service import Service
from tests.spark.service import busy_world
from tests.support.consumer import Consumer

OLD, NEW = "old-key-old-key-old", "new-key-new-key-new"


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DECANT_SIGNING_KEY", raising=False)
    with moto.mock_aws():
        yield


def kept_as_parameter(text: str) -> str:
    boto3.client("ssm").put_parameter(Name="/decant/signing-key", Value=text, Type="SecureString", Overwrite=True)
    return "ssm:/decant/signing-key"


def kept_as_secret(text: str) -> str:
    arn: str = boto3.client("secretsmanager").create_secret(Name="decant", SecretString=text)["ARN"]
    return f"secretsmanager:{arn}"


@pytest.mark.parametrize("keep", [kept_as_parameter, kept_as_secret])
def test_several_keys_are_read_from_where_they_are_kept(
    keep: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECANT_SIGNING_KEY_FROM", keep(f"{NEW}\n{OLD}\n"))
    keys = wiring.settings.signing_key
    assert isinstance(keys, ConfiguredKeys)
    assert keys() == [OLD.encode(), NEW.encode()], "the new one was put there a moment ago"


@pytest.mark.parametrize("place", ["ssm:/decant/none", "secretsmanager:none"])
def test_keys_that_are_not_there_are_503_and_the_place_is_not_told(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_SIGNING_KEY_FROM", place)
    keys = wiring.settings.signing_key
    assert isinstance(keys, ConfiguredKeys)
    with pytest.raises(StoreUnavailable) as failed:
        keys()
    assert "NotFound" in failed.value.detail
    assert "none" not in failed.value.detail


@pytest.mark.parametrize("place", ["/decant/key", "ssm", "ssm:", "vault:key", f"{NEW}-as-the-place"])
def test_an_unknown_place_is_refused_and_not_shown(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_SIGNING_KEY_FROM", place)
    with pytest.raises(ValueError, match="must be ssm:<name> or secretsmanager:<name or ARN>") as refused:
        _ = wiring.settings.signing_key
    assert NEW not in str(refused.value)


def test_sends_and_sweeps_need_no_key() -> None:
    """So the functions that do nothing else need no right to read it."""
    world = busy_world()
    asked: list[str] = []

    def absent() -> list[bytes]:
        asked.append("for the keys")
        raise StoreUnavailable("the signing keys cannot be read: AccessDeniedException")

    api = Api(Service(world.client.store, world.client.clock.runtime(9), absent, outside=Consumer().outside()))
    api.produce("orders", {"messages": [{"body": "a"}, {"body": "b", "delay_ms": 5}]})
    world.client.clock.sleep(3_600_000)
    sweeps = api.service.sweeps
    for sweep in (sweeps.revive, sweeps.forward, sweeps.expire, sweeps.check):
        sweep()
    sweeps.push(api.service.outside.wake)
    assert asked == []
    before = api.get_group("orders", "tagged")
    with pytest.raises(StoreUnavailable):
        api.pop("orders", "tagged", {})
    assert api.get_group("orders", "tagged") == before, "what nobody could settle is not leased"


def test_a_key_and_a_place_of_keys_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_SIGNING_KEY", NEW)
    monkeypatch.setenv("DECANT_SIGNING_KEY_FROM", "ssm:/decant/key")
    with pytest.raises(ValueError, match="cannot both be set") as refused:
        _ = wiring.settings.signing_key
    assert NEW not in str(refused.value)
