"""A group takes the first filter that is wanted, however many are wanted at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable
from chalicelib.core.catalogue.group_forms import Filter, parse_filter
from tests.support.client import Client
from tests.support.troubled_store import TroubledStore, unavailable, unknown

Instance = Callable[[], Api]

WANTED = [parse_filter({"tags": [f"tag{number}"]}) for number in range(6)]


def adopt(instance: Instance, topic: str, wanted: Filter, gate: threading.Barrier) -> object:
    service = instance().service
    found = service.env.catalogue.topic(topic)
    gate.wait()
    adopted = service.admin.groups.adopt_filter(found, "billing", wanted).filter
    return adopted and adopted.given


def test_of_several_at_once_one_is_taken(instance: Instance, topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "billing", {})
    gate = threading.Barrier(len(WANTED))
    with ThreadPoolExecutor(len(WANTED)) as pool:
        adopted = list(pool.map(lambda wanted: adopt(instance, topic, wanted, gate), WANTED))
    assert adopted[0] in [wanted.given for wanted in WANTED]
    assert adopted == [adopted[0]] * len(WANTED)
    assert instance().get_group(topic, "billing")["filter"] == adopted[0]


def test_a_filter_that_stands_is_kept() -> None:
    client = Client()
    group = client.topic("orders").group("billing", filter={"tags": ["mine"]})
    service = client.api.service
    found = service.env.catalogue.topic("orders")
    assert service.admin.groups.adopt_filter(found, "billing", WANTED[0]).filter == parse_filter({"tags": ["mine"]})
    group.delete()
    with pytest.raises(GroupNotFound):
        service.admin.groups.adopt_filter(found, "billing", WANTED[0])


def test_a_lost_answer_leaves_the_filter_to_the_next_call() -> None:
    store = TroubledStore()
    client = Client(store)
    client.topic("orders").group("billing")
    groups, topic = client.api.service.admin.groups, client.api.service.env.catalogue.topic("orders")
    store.after = unknown("write")
    with pytest.raises(StoreUnavailable):
        groups.adopt_filter(topic, "billing", WANTED[0])
    store.after = unavailable()
    assert groups.adopt_filter(topic, "billing", WANTED[1]).filter == WANTED[0]
