"""Leaves something of every kind in a table. Each function returns what its caller would remember across an upgrade."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from unittest.mock import patch

from chalicelib.core.base.limits import DAY_MS, HOUR_MS, MINUTE_MS
from chalicelib.core.cursors.retries import RETRY_PAGE_LEASES
from chalicelib.core.log import payloads
from chalicelib.push.outside import ConsumerResponse
from tests.sqs.client import Sqs
from tests.support.client import Client, Group, Json, Topic, receipts
from tests.support.consumer import Consumer

SOON_MS = 10 * MINUTE_MS
"""When leases end and delayed messages are due: not before everything is there."""
ARN = "arn:aws:sqs:us-east-1:000000000000:"
WEBHOOK = "https://shop.example/"

Part = Callable[[Client], Json]
PARTS: dict[str, Part] = {}


def part(leave: Part) -> Part:
    PARTS[leave.__name__] = leave
    return leave


def everything(topic: Topic) -> Iterator[Json]:
    """All messages in the logs of the topic."""
    page: Json = {"next": None}
    while page:
        page = topic.read(limit=100, **{name: page[name] for name in ("next",) if page[name]})
        yield from page["messages"]
        page = page if page["next"] else {}


def noise(size: int, seed: int = 1) -> str:
    return Random(seed).randbytes(size // 2).hex()


@part
def bodies(client: Client) -> Json:
    """Text and bytes, alone and packed, in segments, in payloads of one and of several items."""
    topic = client.topic("bodies", queues=2)
    topic.group("reader")
    topic.produce({"body_base64": "3q2+7w=="}, {"body": " "}, {"body": 'zwei\n"ü" \U0001f600', "key": "k", "tag": "t"})
    topic.produce(*(f'{{"number": {number}}}' for number in range(100)), properties={"a": "b", "": ""})
    topic.produce(noise(2_000), queue=0)
    client.store.keeps_blobs = False
    with patch.object(payloads, "pieces_of", lambda data: [data[:500], data[500:]]):
        topic.produce(noise(2_000, seed=2), queue=1)
    client.store.keeps_blobs = True
    return {"messages": list(everything(topic))}


@part
def blob(client: Client) -> Json:
    """A payload in S3."""
    topic = client.topic("blob")
    topic.group("reader")
    with patch.object(payloads, "pieces_of", lambda data: [data[:500], data[500:]]):
        topic.produce(noise(2_000))
    return {"messages": list(everything(topic))}


@part
def leased(client: Client) -> Json:
    group = client.topic("leased").group("workers", invisible_ms=SOON_MS)
    group.topic.produce(*"abcde")
    done, *held = group.take(4)
    group.ack(done)
    repeated = group.take_one(attempt_id="once")
    return {"receipts": receipts(*held), "repeated": repeated}


@part
def settled_by(client: Client) -> Json:
    """The receipts of messages whose leases were extended since."""
    topic, kept = client.topic("rules"), {}
    topic.produce("a")
    for rule in ("receipt", "delivery", "message"):
        group = topic.group(f"by-{rule}", settle_by=rule, invisible_ms=SOON_MS)
        message = group.take_one()
        extended = group.extend(message, invisible_ms=2 * SOON_MS)["extended"]
        kept[rule] = {"old": message["receipt"], "new": extended[0]["new_receipt"]}
    return kept


@part
def retrying(client: Client) -> Json:
    """Some wait in the cursor, and a page of others beside it."""
    group = client.topic("retrying").group("slow", backoff_ms=[HOUR_MS])
    group.nack_into_a_page(delay_ms=HOUR_MS)
    group.topic.produce("soon")
    group.nack(group.take_one(), delay_ms=SOON_MS)
    return {"in_page": RETRY_PAGE_LEASES}


@part
def dead(client: Client) -> Json:
    group = client.topic("dead").group("strict", max_attempts=1, backoff_ms=[0])
    group.topic.produce(*"abc")
    given_up = group.take(3)
    client.post(f"{group.path}/bury", receipts=receipts(*given_up[:2]), reason="no <stock>")
    group.nack(given_up[2], reason="failed")
    return {"ids": [message["message_id"] for message in given_up]}


@part
def dead_in_topic(client: Client) -> Json:
    graves = client.topic("graves")
    graves.group("reader")
    group = client.topic("failing").group("worker", dead_letters={"topic": "graves"})
    group.topic.produce("a", {"body": "b", "tag": "t"})
    client.post(f"{group.path}/bury", receipts=receipts(*group.take(2)), reason="no stock")
    return {"messages": list(everything(graves))}


@part
def delayed(client: Client) -> Json:
    """One is delivered, one cancelled, some wait for minutes and one for fifty days."""
    topic = client.topic("delayed", queues=2)
    group = topic.group("late")
    topic.produce("early", delay_ms=100)
    client.clock.sleep(100)
    group.ack(group.take_one())
    soon = topic.produce(*(f"soon {number}" for number in range(20)), delay_ms=SOON_MS)
    topic.produce({"body": noise(2_000), "ttl_ms": DAY_MS}, delay_ms=SOON_MS)
    far = topic.produce("far", delay_ms=50 * DAY_MS)
    assert client.delete(f"{topic.path}/delayed/{soon[0]['message_id']}").status == 200
    return {"soon": [f"soon {number}" for number in range(1, 20)] + [noise(2_000)], "far": far[0]["message_id"]}


@part
def transactions(client: Client) -> Json:
    topic = client.topic("halves", queues=2)
    topic.group("outcome")
    kept: Json = {}
    for name in ("committed", "rolled_back", "open", "open_too"):
        messages = [{"body": f"{name} 1"}, {"body": noise(2_000), "queue": 1}, {"body": f"{name} 2", "ttl_ms": DAY_MS}]
        begun = client.post(f"{topic.path}/transactions", messages=messages, rollback_after_ms=DAY_MS)
        kept[name] = begun.json["transaction_id"]
    kept["placed"] = client.ask("POST", f"{topic.path}/transactions/{kept['committed']}/commit").json
    assert client.ask("POST", f"{topic.path}/transactions/{kept['rolled_back']}/rollback").status == 200
    return kept


@part
def requests(client: Client) -> Json:
    group = client.topic("questions").group("workers", invisible_ms=SOON_MS)
    kept: Json = {}
    for name in ("taken", "replied", "waiting"):
        asked = client.post(f"{group.topic.path}/requests", body=f"{name}?", wait_ms=0, timeout_ms=HOUR_MS)
        kept[name] = asked.json["correlation_id"]
    timed_out = client.post(f"{group.topic.path}/requests", body="gone?", timeout_ms=100)
    kept["timed_out"] = timed_out.json["correlation_id"]
    taken, replied = group.take(2)
    kept["receipt"] = taken["receipt"]
    answer = client.post(f"/requests/{kept['replied']}/reply", body="yes", receipt=replied["receipt"])
    assert answer.status == 201
    return kept


@part
def ordered(client: Client) -> Json:
    topic = client.topic("ordered")
    topic.produce(*({"body": body, "key": body[0]} for body in ("a1", "a2", "b1")))
    kept: Json = {}
    for order in (True, "key"):
        group = topic.group(f"by-{order}".lower(), ordered=order, invisible_ms=SOON_MS)
        kept[group.name] = group.take_one()["receipt"]
    by_key = Group(client, topic, "by-key")
    kept["b1"] = by_key.take_one()["receipt"]
    return kept


@part
def broadcast(client: Client) -> Json:
    """Ann has settled one message and given up one; Bob holds one."""
    group = client.topic("news").group("everyone", mode="broadcast", invisible_ms=SOON_MS)
    group.topic.produce(*"abc")
    first, second = group.take(2, consumer_id="ann")
    group.ack(first)
    client.post(f"{group.path}/bury", receipts=receipts(second), reason="not mine")
    return {"bob": group.take_one(consumer_id="bob")["receipt"]}


@part
def filtered(client: Client) -> Json:
    topic = client.topic("filtered")
    for name, only in {"tags": {"tags": ["paid"]}, "expression": {"expression": "properties.n == '1'"}}.items():
        topic.group(name, filter=only)
    topic.produce({"body": "a"}, {"body": "b", "tag": "paid"}, {"body": "c", "properties": {"n": "1"}})
    topic.produce({"body": "d", "tag": "paid", "ttl_ms": SOON_MS}, {"body": "e", "tag": "paid"})
    Group(client, topic, "tags").ack(Group(client, topic, "tags").take_one())
    return {"tags": ["e"], "expression": ["c"]}


@part
def reset(client: Client) -> Json:
    """One group is back at the beginning, the other has purged all that was there and waited."""
    topic = client.topic("reset")
    again, purged = topic.group("again"), topic.group("purged")
    topic.produce(*"ab")
    topic.produce("waiting", delay_ms=1_000)
    again.ack(*again.take(2))
    old = purged.take_one()["receipt"]
    again.reset("earliest")
    purged.reset("now")
    client.clock.sleep(1_000)
    topic.produce("new")
    return {"again": ["a", "b", "new", "waiting"], "purged": ["new"], "old_receipt": old}


@part
def deduplicated(client: Client) -> Json:
    topic = client.topic("once")
    topic.group("reader")
    stored = topic.produce({"body": "a", "dedup_id": "id"}, {"body": "b", "dedup_id": "later", "delay_ms": 1_000})
    return {"stored": stored}


@part
def indexed(client: Client) -> Json:
    assert client.put("/topics/indexed", queues=3, index_keys=True).status == 201
    topic = Topic(client, "indexed")
    topic.produce(*({"body": str(number), "key": f"k{number % 2}"} for number in range(6)))
    topic.produce({"body": "late", "key": "k0"}, delay_ms=SOON_MS)
    return {"k0": ["0", "2", "4"], "later": "late"}


@part
def limited(client: Client) -> Json:
    """The rate of a group is used up, its alarm raised, and the queue full."""
    assert client.put("/topics/limited", queues=1, max_depth=3).status == 201
    group = Topic(client, "limited").group("slow", rate_limit=0.01, alarm={"ready": 2})
    group.topic.produce(*"abc")
    client.api.service.sweeps.check()
    return {"taken": group.take_one()["receipt"]}


@part
def pushed(client: Client) -> Json:
    """A consumer has failed once."""
    pushing = Client(client.store, client.clock, seed=2, outside=Consumer(otherwise=ConsumerResponse(500)).outside())
    group = pushing.topic("pushed").group("called", push={"url": WEBHOOK}, backoff_ms=[HOUR_MS])
    made = pushing.post(f"{group.path}/push/secrets")
    group.topic.produce(*"ab")
    pushing.api.service.pushing.run("pushed")
    return {"secret": made.json}


@part
def traced(client: Client) -> Json:
    assert client.put("/topics/traced", queues=1, trace=True).status == 201
    group = Topic(client, "traced").group("watched")
    [sent] = group.topic.produce("a")
    group.nack(group.take_one(consumer_id="ann"), reason="no stock", delay_ms=0)
    return {"id": sent["message_id"]}


@part
def draining(client: Client) -> Json:
    """Two queues of three leave, with a message in each."""
    topic = client.topic("draining", queues=3)
    topic.group("slow")
    for queue in range(3):
        topic.produce(str(queue), queue=queue)
    assert client.put(topic.path, queues=1).status == 200
    return {"bodies": ["0", "1", "2"]}


@part
def settings(client: Client) -> Json:
    """All settings, none with its default."""
    topic = {"queues": 2, "retention_ms": DAY_MS, "zones": {"eu": [0], "us": [1]}, "max_depth": 10, "trace": True}
    group: Json = {
        "invisible_ms": 2_000,
        "max_attempts": None,
        "backoff_ms": {"initial_ms": 7, "max_ms": 70, "multiplier": 2},
    }
    group |= {"max_in_flight": 5, "rate_limit": 2.5, "delay_ms": 3, "alarm": {"ready": 9}, "settle_by": "message"}
    group |= {"dead_letters": {"topic": "graves"}, "filter": {"tags": ["paid"]}, "paused": True}
    assert client.put("/topics/settings", **topic).status == 201
    assert client.put("/topics/settings/groups/all", **group).status == 201
    return {"topic": topic, "group": group}


@part
def tokens(client: Client) -> Json:
    right = {"operations": ["read"], "topics": "bodies"}
    made = client.api.make_token({"name": "reader", "rights": [right]})
    rotated = client.api.rotate_token(client.api.make_token({"name": "rotated", "rights": [right]})["token_id"])
    return {"tokens": [made["token"], rotated["token"]]}


@part
def sqs(client: Client) -> Json:
    """A standard queue, a FIFO queue and a dead-letter queue, from which a task moves."""
    clients = Sqs(client)
    one_queue = {"decant:queues": "1"}
    clients.CreateQueue(QueueName="lost", tags=one_queue)
    policy = json.dumps({"deadLetterTargetArn": ARN + "lost", "maxReceiveCount": 1})
    attributes = {"VisibilityTimeout": "600", "DelaySeconds": "0"}
    clients.CreateQueue(QueueName="jobs", Attributes=attributes, tags={**one_queue, "team": "shop"})
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    clients.CreateQueue(QueueName="turns.fifo", Attributes=fifo, tags=one_queue)
    number = {"n": {"DataType": "Number", "StringValue": "7"}}
    ids = [
        clients.SendMessage(QueueUrl="jobs", MessageBody=body, MessageAttributes=number)["MessageId"] for body in "ab"
    ]
    clients.SendMessage(QueueUrl="jobs", MessageBody="later", DelaySeconds=600)
    for body in ("1", "2"):
        clients.SendMessage(QueueUrl="turns.fifo", MessageBody=body, MessageGroupId="g")
    held = {queue: clients.ReceiveMessage(QueueUrl=queue)["Messages"][0] for queue in ("jobs", "turns.fifo")}
    mortal = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    clients.CreateQueue(QueueName="mortal", Attributes=mortal, tags=one_queue)
    for body in "xy":
        clients.SendMessage(QueueUrl="mortal", MessageBody=body)
    while clients.ReceiveMessage(QueueUrl="mortal", MaxNumberOfMessages=10).get("Messages"):
        pass
    task = clients.StartMessageMoveTask(SourceArn=ARN + "lost", MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    return {"ids": ids, "held": {queue: message["ReceiptHandle"] for queue, message in held.items()}, "task": task}


def leave_everything(client: Client) -> Json:
    """Returns what the callers of each part remember, by its name."""
    return {name: leave(client) for name, leave in PARTS.items()}
