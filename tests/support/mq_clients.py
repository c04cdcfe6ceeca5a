"""One round by either SDK of MQ, unchanged: publish, consume, also in order, a delay, acks, a half message."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mq_http_sdk.mq_client import MQClient
from mq_http_sdk.mq_exception import MQServerException
from mq_http_sdk.mq_producer import TopicMessage

from tests.support.emulators import ROOT, absent

NODE_MODULES = ROOT / ".emulators/mq-sdk/node_modules"
NODE_SECONDS_MAX = 30

INSTANCE = "MQ_INST_1"
DELAY_MS = 300

ROUND = {
    "ordered": [["a", "s"], ["b", "s"]],
    "isThatSent": True,
    "taken": ["grüß <&>", "paid", "k", "b"],
    "late": ["later", True],
    "hidden": "MessageNotExist",
    "whole": "half",
    "refused": "SignatureDoesNotMatch",
}
"""The results of a round."""


def puts(topic: str) -> dict[str, Any]:
    """The requests that a round needs first: their bodies, by path."""
    groups = f"/topics/{topic}/groups"
    return {f"/topics/{topic}": {"queues": 1}, f"{groups}/GID_all": {}, f"{groups}/GID_order": {"ordered": True}}


def by_node(endpoint: str, key_id: str, secret: str, topic: str) -> Any:
    """Its SDK connects to this machine for any host name."""
    if not NODE_MODULES.exists():
        absent("the SDK of MQ for Node is not here: `make emulators` installs it")
    command: list[str | Path] = ["node", Path(__file__).parent / "mq_client.cjs", endpoint, key_id, secret, topic]
    environment = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=NODE_SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_python(endpoint: str, key_id: str, secret: str, topic: str) -> Any:
    mq = MQClient(endpoint, key_id, secret)
    producer = mq.get_producer(INSTANCE, topic)
    halves = mq.get_trans_producer(INSTANCE, topic, "GID_all")
    consumer = mq.get_consumer(INSTANCE, topic, "GID_all", "paid||due")
    in_order = mq.get_consumer(INSTANCE, topic, "GID_order")

    for body in ("a", "b"):
        _publish(producer, body, __SHARDINGKEY="s")
    ordered = [_acked(in_order, in_order.consume_message_orderly(1, 5)) for _ in range(2)]

    sent = _publish(producer, "grüß <&>", "paid", KEYS="k", a="b")
    taken = _acked(consumer, consumer.consume_message(16, 5))

    due_ms = time.time_ns() // 1_000_000 + DELAY_MS
    _publish(producer, "later", "due", __STARTDELIVERTIME=str(due_ms))
    late = _acked(consumer, consumer.consume_message(16, 5))
    is_in_time = late.get_start_deliver_time() == due_ms <= time.time_ns() // 1_000_000

    half = _publish(halves, "half", "paid", __TransCheckT="10")
    with pytest.raises(MQServerException) as hidden:
        consumer.consume_message(16)
    halves.commit(half.receipt_handle)
    whole = _acked(consumer, consumer.consume_message(16, 5))

    mq.access_key = "x" * 40
    with pytest.raises(MQServerException) as refused:
        _publish(producer, "c")
    mq.close_connection()
    return {
        "ordered": [[each.message_body, each.get_sharding_key()] for each in ordered],
        "isThatSent": taken.message_id == sent.message_id,
        "taken": [taken.message_body, taken.message_tag, taken.get_message_key(), taken.get_property("a")],
        "late": [late.message_body, is_in_time],
        "hidden": hidden.value.type,
        "whole": whole.message_body,
        "refused": refused.value.type,
    }


def _publish(producer: Any, body: str, tag: str = "", **properties: str) -> Any:
    message = TopicMessage(body, tag)
    message.properties = properties
    return producer.publish_message(message)


def _acked(consumer: Any, messages: Any) -> Any:
    """The only message of an answer."""
    [message] = messages
    consumer.ack_message([message.receipt_handle])
    return message
