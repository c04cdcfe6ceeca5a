"""Signing keys that are kept elsewhere: which signs, which are accepted, and when a change of them is heard."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from chalicelib.core.base.errors import RequestNotFound, StoreUnavailable
from chalicelib.core.base.limits import INVISIBLE_MS_MAX
from chalicelib.core.catalogue.signing_key import FAILED_MS, HEARD_MS, REREAD_MS, RETRY_MS, ConfiguredKeys, SigningKey
from chalicelib.core.cursors.lease import Receipt, Receipts
from chalicelib.core.requests.correlation import Correlation, Correlations
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.clock import START_MS, Clock

OLD, NEW, NEWEST = "old-key-old-key-old", "new-key-new-key-new", "newest-key-newest-key"
RECEIPT = Receipt("topic-id", "group-id", "", 0, 1, "token", 0, 7, 1, 1, 0)
CORRELATION = Correlation("topic-id", "orders", START_MS, 3_000, b"12345678")


class Place:
    """Where the keys are kept. Each instance that reads them has its own cache."""

    def __init__(self, *keys: str) -> None:
        self.clock = Clock()
        self.reads = 0
        self.trouble: Exception | None = None
        self.change(*keys)
        self.clock.ms += HEARD_MS

    def change(self, *keys: str) -> None:
        self.text, self.changed_at_ms = "\n".join(keys), self.clock.ms

    def read(self) -> tuple[str, int]:
        self.reads += 1
        if self.trouble:
            raise self.trouble
        return self.text, self.changed_at_ms

    def instance(self) -> ConfiguredKeys:
        return ConfiguredKeys("KEYS", self.read, self.clock.runtime())

    def receipts(self) -> Receipts:
        return Receipts(self.signing_key())

    def signing_key(self) -> SigningKey:
        return Service(MemoryStore(), self.clock.runtime(), self.instance()).signing_key


def test_the_first_of_several_keys_signs_and_all_are_accepted() -> None:
    assert Place(NEW, OLD).instance()() == [NEW.encode(), OLD.encode()]
    receipts = Place(NEW, OLD).receipts()
    for key in (NEW, OLD):
        assert receipts.read(Place(key).receipts().sign(RECEIPT), "topic-id") == RECEIPT
    assert receipts.read(Place(NEWEST).receipts().sign(RECEIPT), "topic-id") is None
    assert Place(NEW).receipts().read(receipts.sign(RECEIPT), "topic-id") == RECEIPT


def test_a_correlation_id_of_the_key_before_is_accepted_too() -> None:
    old = Correlations(Place(OLD).signing_key()).sign(CORRELATION)
    assert Correlations(Place(NEW, OLD).signing_key()).read(old) == CORRELATION
    with pytest.raises(RequestNotFound):
        Correlations(Place(NEW).signing_key()).read(old)


def test_a_new_key_signs_only_when_every_instance_accepts_it() -> None:
    """Instances that read just before the change, just after it, and that start later, at every moment since."""
    place = Place(OLD)
    before = place.receipts()
    before.sign(RECEIPT)
    place.change(NEW, OLD)
    after, changed_at_ms = place.receipts(), place.clock.ms
    while place.clock.ms < changed_at_ms + 2 * HEARD_MS:
        instances = [before, after, place.receipts()]
        for text in [each.sign(RECEIPT) for each in instances]:
            assert all(each.read(text, "topic-id") == RECEIPT for each in instances)
        place.clock.ms += 20_000
    assert place.instance()()[0] == NEW.encode()


def test_what_the_old_key_signed_is_accepted_for_the_longest_lease() -> None:
    place = Place(OLD)
    receipts = place.receipts()
    place.change(NEW, OLD)
    place.clock.ms += HEARD_MS - 1
    last = receipts.sign(RECEIPT)
    assert Place(OLD).receipts().sign(RECEIPT) == last
    place.clock.ms += INVISIBLE_MS_MAX
    assert receipts.read(last, "topic-id") == RECEIPT
    place.change(NEW)
    place.clock.ms += REREAD_MS
    assert receipts.read(last, "topic-id") is None


def test_a_leaked_key_that_is_replaced_stops_within_minutes() -> None:
    place = Place(OLD)
    keys = place.instance()
    keys()
    place.change(NEW)
    place.clock.ms += REREAD_MS
    assert keys() == [NEW.encode()]


def test_the_keys_are_read_again_every_five_minutes_and_not_more_often() -> None:
    place = Place(OLD)
    keys = place.instance()
    for _ in range(REREAD_MS // 1_000):
        keys()
        place.clock.ms += 1_000
    assert place.reads == 1
    keys()
    assert place.reads == 2


@pytest.mark.parametrize("trouble", ["away", "empty"])
def test_an_instance_goes_on_with_the_keys_that_it_knows(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(NEW, OLD)
    keys = place.instance()
    known = keys()
    if trouble == "away":
        place.trouble = StoreUnavailable("the signing keys cannot be read: ThrottlingException")
    else:
        place.change()
    place.clock.ms += REREAD_MS
    with caplog.at_level(logging.WARNING, "decant"):
        assert (keys(), keys(), place.reads) == (known, known, 2)
    assert "could not be read again" in caplog.text
    assert not any(key in caplog.text for key in (OLD, NEW))
    place.trouble = None
    place.change(NEWEST, NEW)
    place.clock.ms += RETRY_MS
    assert keys()[1] == NEWEST.encode()


def test_an_instance_that_knows_none_fails_and_tries_again() -> None:
    place = Place(OLD)
    place.trouble = StoreUnavailable("the signing keys cannot be read: ParameterNotFound")
    keys = place.instance()
    for reads in (1, 2):
        with pytest.raises(StoreUnavailable):
            keys()
        assert place.reads == reads
        place.clock.ms += FAILED_MS
    place.trouble = None
    assert keys() == [OLD.encode()]


@pytest.mark.parametrize("trouble", ["away", "empty"])
def test_who_waited_for_a_read_that_failed_does_not_read_again(trouble: str) -> None:
    place = Place() if trouble == "empty" else Place(OLD)
    error: type[Exception] = ValueError
    if trouble == "away":
        error = StoreUnavailable
        place.trouble = StoreUnavailable("the signing keys cannot be read: ThrottlingException")
    keys, read = place.instance(), place.read

    def slow() -> tuple[str, int]:
        place.clock.ms += 20 * FAILED_MS
        return read()

    keys._read = slow
    details = set()
    for _ in range(5):
        with pytest.raises(error) as failed:
            keys()
        details.add(str(failed.value))
        place.clock.ms += FAILED_MS // 5
    assert (len(details), place.reads) == (1, 1)


@pytest.mark.parametrize("text", ["", "\n \n", "short", f"{OLD}\nshort-secret"])
def test_a_text_without_good_keys_is_refused_and_not_shown(text: str) -> None:
    place = Place(text)
    with pytest.raises(ValueError, match="KEYS must hold keys of at least 16 characters, one on each line") as refused:
        place.instance()()
    assert OLD not in str(refused.value)
    assert "short" not in str(refused.value)


def test_all_receipts_of_a_call_ask_for_the_keys_once() -> None:
    asked: list[int] = []

    def keys() -> list[bytes]:
        asked.append(1)
        return [NEW.encode()]

    receipts = Receipts(Service(MemoryStore(), Clock().runtime(), keys).signing_key)
    signed = receipts.sign_each(RECEIPT, range(7, 107))
    assert receipts.read_each(signed, "topic-id") == [
        dataclasses.replace(RECEIPT, index=index, offset=7 + index) for index in range(100)
    ]
    assert len(asked) == 2
