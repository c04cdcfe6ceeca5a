"""Fixtures of the tests of pushed groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.client import Client, Group, Topic
from tests.support.consumer import Consumer
from tests.support.troubled_store import TroubledStore

URL = "https://shop.example/hooks"


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def client(store: TroubledStore, consumer: Consumer, caplog: pytest.LogCaptureFixture) -> Iterator[Client]:
    yield Client(store, outside=consumer.outside())
    assert [line.getMessage() for line in caplog.get_records("call") if line.levelno >= logging.ERROR] == []


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", push={"url": URL})


def run(group: Group, is_staying: bool = False) -> None:
    group.client.api.service.pushing.run(group.topic.name, is_staying)
