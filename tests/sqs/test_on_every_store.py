"""Queues come, change and go on each store, by the transactions that it has."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from chalicelib import wiring
from chalicelib.core.store import Store
from tests.sqs.client import Sqs
from tests.store.conftest import dynoxide_store, memory_store, moto_store, store
from tests.support.client import Client

__all__ = ["dynoxide_store", "memory_store", "moto_store", "store"]

TAGS = {"ü # . $": "", "k" * 128: "v" * 256}


@pytest.fixture
def sqs(store: Store) -> Iterator[Sqs]:
    """Tests share a store, and must not draw the same ids."""
    yield Sqs(Client(store, seed=uuid4().int))  # type: ignore[arg-type]
    wiring.use(None)


@pytest.fixture
def name() -> str:
    return f"q{uuid4().hex}"


def attributes(sqs: Sqs, name: str) -> dict[str, str]:
    shown: dict[str, str] = sqs.GetQueueAttributes(QueueUrl=name, AttributeNames=["All"])["Attributes"]
    return shown


def test_a_queue_comes_changes_and_goes(sqs: Sqs, name: str) -> None:
    for _ in range(2):
        sqs.CreateQueue(QueueName=name, Attributes={"DelaySeconds": "3"}, tags=TAGS)
    assert sqs.ListQueueTags(QueueUrl=name)["Tags"] == TAGS
    sqs.SetQueueAttributes(QueueUrl=name, Attributes={"VisibilityTimeout": "0", "MessageRetentionPeriod": "60"})
    sqs.UntagQueue(QueueUrl=name, TagKeys=[*TAGS])
    shown = attributes(sqs, name)
    assert [shown[each] for each in ("VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds")] == ["0", "60", "3"]
    assert sqs.ListQueueTags(QueueUrl=name) == {}
    sqs.DeleteQueue(QueueUrl=name)
    assert sqs.refused("DeleteQueue", QueueUrl=name).shape == "QueueDoesNotExist"


def test_a_topic_goes_with_the_last_of_its_queues(sqs: Sqs, name: str) -> None:
    sqs.CreateQueue(QueueName=name)
    sqs.CreateQueue(QueueName=f"{name}-2", tags={"decant:topic": name})
    sqs.SendMessage(QueueUrl=name, MessageBody="old")
    sqs.DeleteQueue(QueueUrl=name)
    sqs.CreateQueue(QueueName=name)
    ready = [attributes(sqs, each)["ApproximateNumberOfMessages"] for each in (name, f"{name}-2")]
    assert ready == ["0", "1"], "what the other one is owed"
    for each in (name, f"{name}-2"):
        assert sqs.client.get(f"/topics/{name}").status == 200
        sqs.DeleteQueue(QueueUrl=each)
    assert sqs.client.get(f"/topics/{name}").status == 404


def test_a_page_after_all_names_with_the_prefix_is_empty(sqs: Sqs, name: str) -> None:
    for each in ("1", "2"):
        sqs.CreateQueue(QueueName=name + each)
    token = sqs.ListQueues(QueueNamePrefix=name, MaxResults=1)["NextToken"]
    assert sqs.ListQueues(QueueNamePrefix="a", NextToken=token) == {}


def test_a_topic_over_json_is_told_from_a_queue(sqs: Sqs, name: str) -> None:
    sqs.client.topic(name)
    assert sqs.refused("CreateQueue", QueueName=name).shape == "QueueNameExists"
    assert sqs.refused("GetQueueUrl", QueueName=name).shape == "QueueDoesNotExist"
