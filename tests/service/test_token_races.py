"""Tokens while several callers change them at once, answers are lost, and writes come late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.access.tokens import Token, first, make, remove
from chalicelib.core.base.errors import StoreUnavailable, TokenNotFound, Unauthenticated
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.core.store import Read
from chalicelib.core.table.writes import Item, Refused, Write
from local.memory.store import MemoryStore
from tests.support.client import ALL_RIGHTS
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.troubled_store import Trouble, TroubledStore, unavailable, unknown

NEW = {"name": "a", "rights": [ALL_RIGHTS]}


def is_valid(api: Api, token: str) -> bool:
    try:
        api.service.access.callers.holder(token)
    except Unauthenticated:
        return False
    return True


class Meeting(TroubledStore):
    """Between the read and the write of one caller another one acts, once."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def write(self, write: Write) -> Item:
        act, self.meanwhile = self.meanwhile, lambda: None
        act()
        return super().write(write)


@pytest.mark.parametrize(("old_valid_ms", "others_ms"), [*product([0, 5_000], repeat=2)])
def test_of_two_rotations_at_once_both_count_one_after_the_other(old_valid_ms: int, others_ms: int) -> None:
    store, clock = Meeting(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    first = one.make_token(NEW)
    others: list[str] = []
    store.meanwhile = lambda: others.append(other.rotate_token(first["token_id"], {"old_valid_ms": others_ms})["token"])
    last = one.rotate_token(first["token_id"], {"old_valid_ms": old_valid_ms})["token"]
    reader = instance(store, clock, 3)
    assert is_valid(reader, last)
    assert is_valid(reader, others[0]) is bool(old_valid_ms)
    assert is_valid(reader, first["token"]) is bool(old_valid_ms and others_ms)
    assert one.service.access.tokens.get(first["token_id"]).generation == 3


def test_a_rotation_that_meets_a_deletion_brings_nothing_back() -> None:
    store, clock = Meeting(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    token = one.make_token(NEW)
    store.meanwhile = lambda: other.delete_token(token["token_id"])
    with pytest.raises(TokenNotFound):
        one.rotate_token(token["token_id"])
    assert "tokens" not in store._items


def test_a_late_rotation_changes_nothing() -> None:
    """Neither a newer secret, nor a token that was deleted since."""
    store, clock = Meeting(), Clock()
    one = instance(store, clock, 1)
    token = one.make_token(NEW)
    requests = recorded(store)
    lost = one.rotate_token(token["token_id"], {"old_valid_ms": 0})["token"]
    newest = one.rotate_token(token["token_id"], {"old_valid_ms": 0})["token"]
    store.write_each([first_write(requests)])
    assert (is_valid(instance(store, clock, 3), lost), is_valid(instance(store, clock, 3), newest)) == (False, True)
    one.delete_token(token["token_id"])
    store.write_each([first_write(requests)])
    assert "tokens" not in store._items


Requests = list[tuple[str, Any]]


def recorded(store: TroubledStore) -> Requests:
    """The verbs of the requests from now on, and what they are about."""
    requests: Requests = []

    def record(verb: str, about: Any) -> None:
        requests.append((verb, about))

    store.before = record
    return requests


def first_write(requests: Requests) -> Write:
    write: Write = next(about for verb, about in requests if verb == "write")
    return write


def test_a_repeat_of_its_own_rotation_is_recognized() -> None:
    store = TroubledStore()
    api = instance(store, Clock(), 1)
    token = api.make_token(NEW)
    requests = recorded(store)
    api.rotate_token(token["token_id"])
    assert store.write(first_write(requests))["generation"] == 2


def test_a_making_is_recognized_and_no_other_token_gets_its_id() -> None:
    store, token = MemoryStore(), Token("A" * 16, "a", [], None, 0, first("secret"))
    for _ in range(2):
        store.write_together([make(token)])
    with pytest.raises(Refused):
        store.write_together([make(replace(token, secrets=first("other")))])


def test_a_token_whose_making_is_repeated_late_stays_deleted() -> None:
    """It is made in a transaction, which a store carries out once."""
    store = TroubledStore()
    api = instance(store, Clock(), 1)
    requests = recorded(store)
    api.make_token(NEW)
    assert [verb for verb, _ in requests] == ["write_together"]


@pytest.mark.parametrize("trouble", [unavailable("write", "write_together"), unknown("write", "write_together")])
def test_a_store_in_trouble_is_503_and_the_old_secret_stays_valid(trouble: Trouble) -> None:
    store, clock = TroubledStore(), Clock()
    api = instance(store, clock, 1)
    token = api.make_token(NEW)
    store.after = trouble
    for act in (partial(api.make_token, NEW), partial(api.rotate_token, token["token_id"])):
        with pytest.raises(StoreUnavailable) as failed:
            act()
        assert failed.value.outcome_unknown
    store.after = unavailable()
    assert is_valid(api, token["token"])


def test_without_a_store_a_cached_token_is_valid_for_five_seconds_more() -> None:
    store, clock = TroubledStore(), Clock()
    api = instance(store, clock, 1)
    token = api.make_token(NEW)["token"]
    assert is_valid(api, token)
    store.before = unavailable("read")
    clock.ms += METADATA_AGE_MS_MAX
    assert is_valid(api, token)
    clock.ms += 1
    with pytest.raises(StoreUnavailable):
        is_valid(api, token)


class SlowStore(MemoryStore):
    """A read that takes three seconds: what it returns is as old."""

    clock = Clock()

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        items = super().read(reads)
        self.clock.ms += 3_000
        return items


def test_a_revocation_during_a_slow_read_is_heard_in_time() -> None:
    store = SlowStore()
    api = instance(store, store.clock, 1)
    token = api.make_token(NEW)
    assert is_valid(api, token["token"])
    read_began_at_ms = store.clock.ms - 3_000
    store.write(remove(token["token_id"]))
    store.clock.ms = read_began_at_ms + METADATA_AGE_MS_MAX
    assert is_valid(api, token["token"])
    store.clock.ms += 1
    assert not is_valid(api, token["token"])


def test_a_machine_that_was_suspended_looks_again() -> None:
    store, clock = MemoryStore(), Clock()
    api = instance(store, clock, 1)
    token = api.make_token(NEW)
    assert is_valid(api, token["token"])
    instance(store, clock, 2).delete_token(token["token_id"])
    clock.ms += 3_600_000
    assert not is_valid(api, token["token"])
