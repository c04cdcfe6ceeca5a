"""Secrets of pushed groups where the signing keys are kept elsewhere: the table holds none, and keys are replaced."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from chalicelib.api import Api
from chalicelib.core.base.limits import DAY_MS, MINUTE_MS
from chalicelib.core.catalogue.signing_key import HEARD_MS
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.core.test_configured_keys import NEW, OLD, Place
from tests.support.consumer import Call, Consumer

PUSH = {"url": "https://shop.example/"}


class Stage:
    """A stage whose signing keys are in a place of their own, and a pushed group."""

    def __init__(self) -> None:
        self.place, self.consumer, self.store = Place(OLD), Consumer(), MemoryStore()
        self.api = self.instance()
        self.api.put_topic("orders", {"queues": 1, "retention_ms": 30 * DAY_MS})
        self.api.put_group("orders", "billing", {"push": PUSH, "max_attempts": 1})

    def instance(self, *, is_kept: bool = True) -> Api:
        keys = self.place.instance() if is_kept else None
        runtime = self.place.clock.runtime(seed=self.place.clock.ms)
        return Api(Service(self.store, runtime, keys, outside=self.consumer.outside()))

    def secret(self) -> str:
        secret: str = self.api.make_push_secret("orders", "billing")["secret"]
        return secret

    def pushed(self) -> list[Call]:
        """The calls that one message leads to."""
        self.api.produce("orders", {"messages": [{"body": "a"}]})
        self.consumer.calls.clear()
        self.api.service.pushing.run("orders")
        return self.consumer.calls

    def change(self, *keys: str) -> None:
        """Every instance knows of it."""
        self.place.change(*keys)
        self.place.clock.ms += HEARD_MS

    def progress(self) -> Any:
        return self.api.get_group("orders", "billing")


def is_signed(call: Call, secret: str) -> bool:
    names = [text.partition(",")[2] for text in call.headers.get("webhook-signature", "").split()]
    expected = Webhook(secret).sign(call.headers["webhook-id"], _instant(call), call.body.decode())
    return expected.partition(",")[2] in names


def _instant(call: Call) -> Any:
    return datetime.fromtimestamp(int(call.headers["webhook-timestamp"]), UTC)


def test_calls_are_signed_with_a_secret_that_the_table_does_not_hold() -> None:
    stage = Stage()
    secret = stage.secret()
    [call] = stage.pushed()
    assert is_signed(call, secret)
    key = Webhook(secret)._whsecret
    assert repr(key)[2:-1] not in repr(stage.store._items)
    assert OLD not in repr(stage.store._items)


def test_secrets_differ_and_outlive_a_rotation_of_the_keys() -> None:
    stage = Stage()
    first = stage.secret()
    stage.change(NEW, OLD)
    second = stage.secret()
    [call] = stage.pushed()
    assert first != second
    assert is_signed(call, first)
    assert is_signed(call, second)


def test_when_a_key_is_removed_the_secrets_of_the_others_sign() -> None:
    stage = Stage()
    first = stage.secret()
    stage.change(NEW, OLD)
    second = stage.secret()
    stage.change(NEW)
    [call] = stage.pushed()
    assert not is_signed(call, first)
    assert is_signed(call, second)
    assert len(call.headers["webhook-signature"].split()) == 1


def test_a_deleted_secret_signs_no_later_call() -> None:
    stage = Stage()
    older, newer = stage.api.make_push_secret("orders", "billing"), stage.secret()
    [call] = stage.pushed()
    assert is_signed(call, older["secret"])
    stage.api.delete_push_secret("orders", "billing", older["secret_id"])
    stage.place.clock.ms += HEARD_MS
    [call] = stage.pushed()
    assert not is_signed(call, older["secret"])
    assert is_signed(call, newer)


def test_without_its_key_nothing_is_sent_unsigned_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.secret()
    stage.change(NEW)
    caplog.set_level(logging.WARNING, "decant")
    for _ in range(3):
        assert stage.pushed() == []
        stage.place.clock.ms += MINUTE_MS
    progress = stage.progress()
    assert (progress["ready"], progress["in_flight"], progress["dead"]) == (3, 0, 0)
    assert "make a new secret" in caplog.text
    stage.secret()
    assert len(stage.pushed()) == 1


def test_a_function_is_called_without_any_key() -> None:
    stage = Stage()
    stage.secret()
    stage.change(NEW)
    stage.api.put_group("orders", "billing", {"push": {"function": "bill"}})
    assert len(stage.pushed()) == 1


def test_secrets_that_the_table_holds_go_on_signing() -> None:
    """A stage whose keys are moved out of the table."""
    stage = Stage()
    secret = stage.instance(is_kept=False).make_push_secret("orders", "billing")["secret"]
    [call] = stage.pushed()
    assert is_signed(call, secret)
