"""Other topics, groups, queues and messages make no call dearer, and one writer of a queue pays one unit a message."""

from __future__ import annotations

import os

import pytest

from benchmarks import crowds, many, servers
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.client import open_client
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.service import Service

TRAFFIC = ("produce 1", "pop 1", "pop of nothing")
ALIKE = {
    "topics": (2, 30, ("create a topic", "GET topic", *TRAFFIC, "delete a topic")),
    "groups": (1, 20, ("create a group", "GET topic", "GET group", *TRAFFIC, "delete a group")),
    "messages": (1_500, 6_000, ("pop 10 at start", "pop 10 in middle", "pop 10 near end", "produce 1", "GET group")),
}
"""Few, many, and the calls that must cost the same beside both."""


@pytest.mark.parametrize("what", ALIKE)
def test_a_call_costs_the_same_beside_few_and_beside_many(what: str) -> None:
    few, more, names = ALIKE[what]
    cheap, dear = many.measure(what, few, False).calls, many.measure(what, more, False).calls
    for name in names:
        assert dear[name].write_units <= cheap[name].write_units + 0.5, name
        assert dear[name].read_units <= cheap[name].read_units + 0.5, name


def test_a_writer_that_has_a_queue_to_itself_pays_a_unit_a_message(
    dynoxide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynoxide)
    monkeypatch.setattr(servers, "TABLE", "scale")
    boto.ensure(boto.connect("dynamodb"), servers.TABLE)
    api = Api(Service(DynamoStore(open_client(system(), os.environ), servers.TABLE, system()), system()))
    api.put_topic("t", {"queues": 1})
    written = crowds.write("t", threads=1, keys=1, at_s=0, seconds=0.3)
    assert written.messages > 0
    assert (written.refused, round(written.units / written.messages, 1)) == (0, 1.0)
