"""The real service at work, so that its table holds items of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from chalicelib.core.base.limits import ENTRY_LATE_MS, HEARD_MS, HOUR_MS
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.group_forms import DeadLetterTopic
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item
from chalicelib.doors.sqs.registry import NewQueue, moves_of, queues_of
from chalicelib.push.outside import ConsumerResponse
from local.memory.store import MemoryStore
from tests.http.test_dead_letters import bury, redrive
from tests.http.test_requests import asked, fetch, reply
from tests.http.test_transactions import begin, commit, roll_back
from tests.support.client import ALL_RIGHTS, Client, Group, Json, Topic
from tests.support.consumer import Consumer

DAY_MS = 86_400_000


@dataclass(frozen=True)
class World:
    client: Client
    topics: list[Topic]

    @property
    def items(self) -> list[Item]:
        return [item for part in self.client.store._items.values() for item in part.values()]

    @property
    def blobs(self) -> dict[str, bytes]:
        return self.client.store._blobs

    def messages(self) -> list[Json]:
        """All that the logs have, as the service itself reads them."""
        return [message for topic in self.topics for message in _read_all(topic)]


def _read_all(topic: Topic) -> list[Json]:
    messages: list[Json] = []
    after: dict[str, str] = {}
    while True:
        page = topic.read(limit=100, **after)
        messages += page["messages"]
        if page["next"] is None:
            return messages
        after = {"next": page["next"]}


def busy_world(store: MemoryStore | None = None) -> World:
    """Every feature that leaves something in the table has been used."""
    client = Client(store or MemoryStore(keeps_blobs=True))
    made = [_orders(client), _retried(client), _delayed(client), _ahead(client), _broadcast(client), _bodies(client)]
    made += [_held(client), _shrunk(client), _questions(client), _called(client), *_moved(client), *_moved_back(client)]
    made.append(_wide(client))
    sweeps = client.api.service.sweeps
    for sweep in (sweeps.revive, sweeps.forward, sweeps.expire, sweeps.check):
        sweep()
    unfinished = {**keys.sweep("revive")._asdict(), "after": "news", "at": client.clock.now()}
    client.store.put_all([unfinished])  # left by a sweep that ran out of time among more than a hundred topics
    _half_deleted(client)
    token = {"name": "reader", "rights": [ALL_RIGHTS], "expires_at_ms": client.clock.ms + DAY_MS}
    client.api.rotate_token(client.api.make_token(token)["token_id"])
    queues_of(client.api.service).make(
        NewQueue("jobs", "jobs", {}, "jobs", {}, {"DelaySeconds": "5"}, {"team": "shop"})
    )
    return World(client, [*made, _traced(client), Topic(client, "decant.alarms")])


def _traced(client: Client) -> Topic:
    """A message whose pop is noted."""
    assert client.put("/topics/seen", queues=1, trace=True).status == 201
    topic = Topic(client, "seen")
    group = topic.group("watched")
    topic.produce("seen")
    group.take_one()
    return topic


def _wide(client: Client) -> Topic:
    """Cursors in two pages."""
    topic = client.topic("wide", queues=17)
    topic.group("everyone", mode="broadcast")
    group = topic.group("shared")
    for queue in (0, 16):
        topic.produce("a", queue=queue)
        topic.produce("b", queue=queue)
        group.take_one()
        Group(client, topic, "everyone").take_one(consumer_id="ann")
    return topic


def _orders(client: Client) -> Topic:
    assert client.put("/topics/orders", queues=3, index_keys=True).status == 201
    topic = Topic(client, "orders")
    billing = topic.group("billing", rate_limit=1000, max_attempts=None)
    topic.group("tagged", filter={"tags": ["paid"]}, backoff_ms=[1000, 2000])
    for number in range(20):
        topic.produce(
            f"order {number}", key=f"k{number % 3}", tag=["paid", "new"][number % 2], properties={"n": str(number)}
        )
        client.clock.sleep(DAY_MS // 10)
    topic.produce({"body": "once", "dedup_id": "a"}, {"body": "twice", "dedup_id": "b"})
    topic.produce({"body": "once", "dedup_id": "a"})
    billing.take(5)
    by_key = topic.group("by-key", ordered="key")
    by_key.take_one()  # the next ones of its key are set aside
    by_key.take(3)
    by_key.change(delay_ms=1_000)
    return topic


def _retried(client: Client) -> Topic:
    topic = client.topic("retried")
    group, ordered = topic.group("slow", max_attempts=2), topic.group("ordered", ordered=True)
    topic.produce(*(f"message {number}" for number in range(100)))
    for message in group.take(90):
        group.nack(message, delay_ms=3_600_000)
        client.clock.sleep(1)
    taken = group.take(5)
    group.ack(*taken[:2])
    bury(group, *taken[2:4], reason="no such <customer>")
    redrive(group, taken[3]["message_id"])
    ordered.take(3)
    return topic


def _moved(client: Client) -> tuple[Topic, Topic]:
    """Dead messages have moved from one topic to the other, one of them with a payload."""
    graves, topic = client.topic("graves", queues=2), client.topic("failing")
    group = topic.group("worker", dead_letters={"topic": "graves"})
    topic.produce("small", "large" * 1000, "fine")
    bury(group, *group.take(2), reason="no such customer")
    return topic, graves


def _moved_back(client: Client) -> tuple[Topic, Topic]:
    """A move task has brought dead messages back to a queue that reads the topic of another. One that no queue has
    given up has failed the next task."""
    service = client.api.service
    queues, tasks = queues_of(service), moves_of(service).tasks
    dead = DeadLetterTopic({"topic": "returns", "source": "clerk"})
    for own in ("returns", "wares"):
        queues.make(NewQueue(own, own, {"queues": 1}, own, {}, {}, {}))
    queues.make(NewQueue("clerk", "wares", None, "clerk", {"dead_letters": dead}, {}, {}))
    topic = Topic(client, "wares")
    group = Group(client, topic, "clerk")
    topic.produce("small", "large" * 1000, "fine")
    bury(group, *group.take(2), reason="out of stock")
    tasks.start(queues.current("returns"), None, None, "first")
    group.take_one()
    Topic(client, "returns").produce("of no queue")
    tasks.start(queues.current("returns"), queues.current("clerk"), 100, "second")
    return topic, Topic(client, "returns")


def _delayed(client: Client) -> Topic:
    topic = client.topic("delayed", queues=2)
    group = topic.group("late", alarm={"ready": 3})
    sent = topic.produce(*(f"soon {number}" for number in range(40)), delay_ms=1000)
    topic.produce("never early", {"body_base64": "AAEC"}, delay_ms=50 * DAY_MS)
    assert client.delete(f"{topic.path}/delayed/{sent[0]['message_id']}").status == 200
    cancelled = topic.produce("not this one", delay_ms=20 * DAY_MS)
    assert client.delete(f"{topic.path}/delayed/{cancelled[0]['message_id']}").status == 200
    client.clock.sleep(2000)
    client.api.service.sweeps.forward()
    group.pop(max_messages=10)
    return topic


def _ahead(client: Client) -> Topic:
    """A message is delivered after the clock was set back by an hour."""
    topic = client.topic("ahead")
    for back_ms in (0, HOUR_MS):
        client.clock.set_back_ms = back_ms
        topic.produce("soon", delay_ms=1000)
        client.clock.sleep(1000)
        client.api.service.sweeps.forward()
    client.clock.set_back_ms = 0
    return topic


def _broadcast(client: Client) -> Topic:
    topic = client.topic("news")
    group = topic.group("everyone", mode="broadcast", max_attempts=1)
    topic.produce("extra", "extra 2")
    for consumer in ("a", "b#ü"):
        bury(group, group.take_one(consumer_id=consumer), reason="not mine")
    return topic


def _bodies(client: Client) -> Topic:
    """All codecs, in segments, payloads of one and several pieces, and in S3."""
    topic = client.topic("bodies")
    noise = Random(7)
    topic.produce(
        {"body_base64": "3q2+7w=="}, {"body": " "}, {"body": 'zwei\nZeilen "ü" \U0001f600', "key": "k", "tag": "t"}
    )
    topic.produce(*(f'{{"number": {number}}}' for number in range(100)))
    topic.produce(*({"body": noise.randbytes(500).hex(), "properties": {"a": "b", "": ""}} for _ in range(30)))
    topic.produce(noise.randbytes(300_000).hex())
    topic.client.store.keeps_blobs = False
    topic.produce(noise.randbytes(400_000).hex())
    topic.client.store.keeps_blobs = True
    return topic


def _held(client: Client) -> Topic:
    """Transactions that are undecided, committed and rolled back."""
    topic = client.topic("held", queues=2)
    topic.group("outcome")
    large = {"body": Random(7).randbytes(1000).hex(), "queue": 1}
    begun = [begin(topic, "one", "two") for _ in range(3)] + [begin(topic, large, "small")]
    commit(topic, begun[0])
    roll_back(topic, begun[1])
    commit(topic, begin(topic, large, {"body": "brief", "ttl_ms": DAY_MS}))
    return topic


def _questions(client: Client) -> Topic:
    """Six requests: three have a reply, one timed out while its caller waited, one when nobody did, and one waits."""
    topic = client.topic("questions")
    group = topic.group("answers")
    taken, bare, large, waited, *_ = [asked(topic, timeout_ms=5000) for _ in range(5)]
    client.clock.sleep(40)
    message = group.take_one()
    client.clock.sleep(60)
    assert reply(client, taken, receipt=message["receipt"]).status == 201
    assert reply(client, bare).status == 201
    assert reply(client, large, Random(7).randbytes(300_000).hex()).status == 201
    assert fetch(client, waited, wait_ms=5000).status == 504
    client.clock.sleep(120_000)
    asked(topic, timeout_ms=3_600_000)
    return topic


def _shrunk(client: Client) -> Topic:
    """Two queues have left, one of them with messages, and one drains."""
    topic = client.topic("shrunk", queues=4)
    group = topic.group("slow")
    topic.produce("settled", queue=2)
    group.ack(group.take_one())
    topic.produce("not yet", queue=1)
    assert client.put(topic.path, queues=1).status == 200
    client.clock.sleep(HEARD_MS + ENTRY_LATE_MS)
    for _ in range(3):
        client.api.service.sweeps.check()
    return topic


def _called(client: Client) -> Topic:
    """A group that is pushed, and fails."""
    pushing = Client(client.store, client.clock, seed=2, outside=Consumer(otherwise=ConsumerResponse(500)).outside())
    topic = pushing.topic("called")
    topic.group("webhook", push={"url": "https://shop.example/"}, backoff_ms=[1000])
    topic.produce("call")
    pushing.api.service.pushing.run("called")
    return topic


def _half_deleted(client: Client) -> None:
    """The caller died after the topic was deleted, and before its log was."""
    deleted = client.topic("gone")
    deleted.group("left")
    deleted.produce("rest", "of it")
    item = client.store._items["topic#gone"]["settings"]
    topic = topics.Topic.of(item)
    client.store.write_together(topics.remove(topic))
