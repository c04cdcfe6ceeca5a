"""Queues of SQS clients: made, changed, listed, deleted, and sent to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from chalicelib.core.base.limits import CLOCKS_APART_MS, DAY_MS, DEDUP_MS, HOUR_MS, IN_FLIGHT_MAX, METADATA_AGE_MS_MAX
from tests.model.cursor import Cursor, Ticket
from tests.model.model import DEFAULTS, NEVER_MS, Group, Json
from tests.model.pair import Pair
from tests.model.sqs import (
    ALLOW,
    ARN,
    DELAY,
    NO_QUEUE,
    POLICY,
    REDRIVE,
    RETENTION,
    URL,
    VISIBILITY,
    Queue,
    SqsTopic,
    World,
    bad_value,
    policy_text,
    refused,
)
from tests.sqs.client import Refused, Sqs, refusal_in
from tests.sqs.query_client import QuerySqs

KEEPS = ("orders", "dead", "last", "bills", "line.fifo", "dead.fifo")
"""The queues. `bills` reads the topic of `orders`."""
TOPIC = "decant:topic"
DEAD = {"orders": ("dead", "last"), "bills": ("dead", "last"), "dead": ("last",), "line.fifo": ("dead.fifo",)}
"""To where the messages of a queue may move when they are dead."""
SINGLE = ("dead", "last")
"""They have one Decant queue."""
NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
NOT_OF_QUEUE = "The request include parameter that is not valid for this queue type."
ID_RULE = "can only include alphanumeric and punctuation characters. 1 to 128 in length."
CHORES = (*4 * ["set"], *2 * ["make"], "delete", "purge", "purge", "tag", "list", "unfit")
WAITS_MS = (1, 499, 1_000, 2_000, 5_001, 29_000, 60_000, 3_600_000)
SWEEPS = ("forward", "revive", "revive", "expire", "ttl", "check")
ALLOWED = (
    "",
    '{"redrivePermission":"denyAll"}',
    '{"redrivePermission": "allowAll"}',
    f'{{"redrivePermission":"byQueue","sourceQueueArns":["{ARN}orders"]}}',
)

instances = st.sampled_from([0, 1])
edges = st.sampled_from([-1, 0, 0, 0, 1])
"""How far from a limit."""
attribute_values: dict[str, list[str]] = {
    VISIBILITY: ["0", "1", "30", "30", " 30 ", "43200"],
    RETENTION: ["60", "120", "345600", "345600", "345600", "1209600"],
    DELAY: ["0", "0", "2", "900"],
    "MaximumMessageSize": ["1024", "1048576"],
    "ReceiveMessageWaitTimeSeconds": ["0", "3", "20"],
    ALLOW: [*ALLOWED],
    POLICY: ["", '{"Version": "2012-10-17"}'],
    "KmsMasterKeyId": ["", "alias/a"],
    "SqsManagedSseEnabled": ["true", "FALSE"],
}
fifo_values = {
    "ContentBasedDeduplication": ["true", "True", "false"],
    "DeduplicationScope": ["queue", "messageGroup"],
}
wrong_values = {
    VISIBILITY: "43201",
    RETENTION: "59",
    DELAY: "901",
    "MaximumMessageSize": "1023",
    "ReceiveMessageWaitTimeSeconds": "21",
    "SqsManagedSseEnabled": "x",
    ALLOW: '{"redrivePermission":"byQueue"}',
}
tags_given = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "1", "2"]), min_size=1)


class Queueing(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ids = itertools.count(1)
        self.tickets: dict[str, Ticket] = {}
        """Every handle that was ever given out, in order."""
        self.believed_until_ms: dict[tuple[int, str], int] = {}
        """Until when an instance may not know what became of a queue through another."""
        self.sent = self.steps = 0

    # -- asking -------------------------------------------------------------------------------------------------------

    def ask(self, instance: int, action: str, **members: Any) -> Json | Refused:
        """In one of the two encodings."""
        self.steps += 1
        sqs = QuerySqs(self.clients[instance]) if self.steps % 4 == 0 else Sqs(self.clients[instance])
        answer = sqs.ask(action, **members)
        return refusal_in(answer) if answer.status >= 400 else answer.json or {}

    def about(self, instance: int, name: str) -> int:
        """The instance, or one that has heard of everything that was done to the queue."""
        knowing = [each for each in (instance, 1 - instance) if self.now > self._believed(each, name)]
        if not knowing:
            until_ms = self._believed(instance, name)
            self.clock.sleep(until_ms + 1 - self.now)
        return (knowing or [instance])[0]

    def _believed(self, instance: int, name: str) -> int:
        return self.believed_until_ms.get((instance, name), -1)

    def outdated(self, name: str, *instances: int) -> None:
        """These may not know of the change, nor what it did to the topic that others read too."""
        topic = "orders" if name == "bills" else name
        for instance in instances:
            for each in {name, topic, *(["bills"] if topic == "orders" else [])}:
                self.believed_until_ms[instance, each] = self.now + METADATA_AGE_MS_MAX

    def name(self, data: st.DataObject, *preferred: str) -> str:
        """Mostly one of these, or of a queue that there is."""
        there = [*self.world.queues] * 4
        name: str = data.draw(st.sampled_from([*(preferred * (80 // max(len(preferred), 1))), *there, *KEEPS]))
        return name

    # -- made and changed ---------------------------------------------------------------------------------------------

    @rule(instance=instances, kind=st.sampled_from(CHORES), data=st.data())
    def administer(self, instance: int, kind: str, data: st.DataObject) -> None:
        name = self.name(data)
        if kind == "make":
            given = data.draw(self._values(name, 2))
            self.make(instance, name, self._fit(name, given), self._tags_again(name, data))
        elif kind == "delete":
            self._delete_and_make(instance, name, data)
        elif kind == "tag":
            self._tag(instance, name, data)
        elif kind == "list":
            self._list(instance, data)
        elif kind == "unfit":
            self._be_refused(instance, name, data)
        elif kind == "set":
            self.change(instance, name, data.draw(self._values(name, 3)))
        else:
            self.purge(instance, name)

    def _values(self, name: str, most: int) -> st.SearchStrategy[dict[str, str]]:
        own = {**attribute_values, **(fifo_values if name.endswith(".fifo") else {})}
        if name == "bills":
            own = {key: texts for key, texts in own.items() if key != RETENTION}
        policies = ["", *(policy_text(dead, count) for dead in DEAD.get(name, ()) for count in (1, 1, 2, 1_000))]
        own = {**own, REDRIVE: [*policies, *policies, policy_text("none", 1)]}
        likely = [VISIBILITY, VISIBILITY, DELAY, REDRIVE, REDRIVE, "SqsManagedSseEnabled", *own]
        names = st.lists(st.sampled_from(likely), min_size=1, max_size=most, unique=True)
        return names.flatmap(
            lambda chosen: st.fixed_dictionaries({each: st.sampled_from(own[each]) for each in chosen})
        )

    def _fit(self, name: str, given: dict[str, str]) -> dict[str, str]:
        return {"FifoQueue": "true", **given} if name.endswith(".fifo") else given

    def _tags_again(self, name: str, data: st.DataObject) -> dict[str, str]:
        if name == "bills":
            start = data.draw(st.sampled_from(["earliest", "latest"]))
            known = self.world.queues.get(name)
            return {TOPIC: "orders", "decant:start": known.tags["decant:start"] if known else start}
        if name.endswith(".fifo"):
            return {}
        topic = self.world.topics.get(name)
        return {"decant:queues": str(len(topic.logs)) if topic else "1"}

    def make(self, instance: int, name: str, given: dict[str, str], tags: dict[str, str]) -> None:
        began_ms = self.now
        answer = self.ask(instance, "CreateQueue", QueueName=name, Attributes=given, tags=tags)
        values = {key: text.strip() for key, text in given.items() if key != "FifoQueue"}
        values = {key: text.lower() if text in ("True", "FALSE") else text for key, text in values.items()}
        if values.get("KmsMasterKeyId") and values.get("SqsManagedSseEnabled") == "true":
            assert isinstance(answer, Refused)
            assert answer.code == "InvalidAttributeName"
            return
        known = self.world.queues.get(name)
        wrong = self._differs(known, values) if known else self._bad_policy(name, values)
        if wrong is None and known is None and name == "bills" and "orders" not in self.world.topics:
            wrong = refused(
                "InvalidParameterValue",
                "Value orders for tag decant:topic is invalid. Reason: There is no such topic.",
            )
        assert answer == (wrong or {"QueueUrl": URL + name}), (answer, wrong)
        if wrong is None and known is None:
            self._begin(name, values, tags, began_ms)
            self.outdated(name, 1 - instance)

    def _differs(self, known: Queue, values: dict[str, str]) -> Refused | None:
        """The refusal to make a queue that there is, with other attributes."""
        shown = known.settable()
        for key, text in with_encryption(values).items():
            is_same = shown.get(key, "") == text
            if key in (POLICY, ALLOW) and text and key in shown:
                is_same = json.loads(shown[key]) == json.loads(text)
            if not is_same:
                about = f"the same name and a different value for attribute {key}"
                return refused("QueueAlreadyExists", f"A queue already exists with {about}")
        return None

    def _bad_policy(self, name: str, values: dict[str, str]) -> Refused | None:
        text = values.get(REDRIVE)
        if not text:
            return None
        dead = json.loads(text)["deadLetterTargetArn"].rpartition(":")[2]
        target = self.world.queues.get(dead)
        if target is None:
            return bad_value(text, REDRIVE, "Dead letter target does not exist.")
        allowed = json.loads(target.attributes.get(ALLOW, "{}"))
        kind = allowed.get("redrivePermission")
        if kind == "denyAll" or (kind == "byQueue" and ARN + name not in allowed["sourceQueueArns"]):
            return bad_value(text, REDRIVE, f"The {ALLOW} of queue '{dead}' does not allow this source.")
        return None

    def _begin(self, name: str, values: dict[str, str], tags: dict[str, str], began_ms: int) -> None:
        """The topic and the group of a new queue, from `latest` on where others have kept the topic."""
        world, is_own = self.world, TOPIC not in tags
        stood = world.topics.get(name if is_own else tags[TOPIC])
        retention_ms = int(values.get(RETENTION, "345600")) * 1_000
        queues = int(tags.get("decant:queues", "1"))
        topic = stood or SqsTopic(name, next(self.ids), [[] for _ in range(queues)], retention_ms)
        world.topics[topic.name] = topic
        if is_own and topic.retention_ms != retention_ms:
            topic.retain(retention_ms, self.now)
        is_late = stood is not None and (is_own or tags["decant:start"] == "latest")
        starts = [len(log) if is_late else 0 for log in topic.logs]
        purged_at_ms = began_ms + CLOCKS_APART_MS if is_late and topic.has_delayed else None
        is_fifo = name.endswith(".fifo")
        settles, order = ("delivery", "key") if is_fifo else ("message", False)
        settings = {**DEFAULTS, "max_attempts": None, "max_in_flight": IN_FLIGHT_MAX, "settle_by": settles}
        cursors = [Cursor(start, settles, order, purged_at_ms=purged_at_ms) for start in starts]
        group = Group(next(self.ids), {**settings, "ordered": order}, cursors, purged_at_ms)
        topic.groups[name] = group
        queue = Queue(name, group.id, topic, group, is_own, {}, dict(tags), self.now, self.now)
        world.queues[name] = queue
        self._apply(queue, values)

    def _apply(self, queue: Queue, values: dict[str, str]) -> None:
        settings = queue.group.settings
        for key, text in with_encryption(values).items():
            if key == VISIBILITY:
                settings["invisible_ms"] = int(text) * 1_000
            elif key == RETENTION:
                queue.topic.retain(int(text) * 1_000, self.now)
            elif key == DELAY and not queue.keeps_delay:
                settings["delay_ms"] = int(text) * 1_000
            elif key == REDRIVE:
                policy = json.loads(text or "{}")
                target = policy.get("deadLetterTargetArn", "").rpartition(":")[2]
                settings["dead_letters"] = target or None
                settings["max_attempts"] = policy.get("maxReceiveCount")
            elif text:
                queue.attributes[key] = text
            else:
                queue.attributes.pop(key, None)

    def change(self, instance: int, name: str, values: dict[str, str]) -> None:
        answer = self.ask(instance, "SetQueueAttributes", QueueUrl=URL + name, Attributes=values)
        queue = self.world.queues.get(name)
        if queue is None:
            assert answer == NO_QUEUE
            return
        values = {key: text.strip() for key, text in values.items()}
        values = {key: text.lower() if text in ("True", "FALSE") else text for key, text in values.items()}
        if values.get("KmsMasterKeyId") and values.get("SqsManagedSseEnabled") == "true":
            assert isinstance(answer, Refused)
            assert answer.code == "InvalidAttributeName"
            return
        wrong = self._bad_policy(name, values)
        assert answer == (wrong or {}), (answer, wrong)
        if wrong is None:
            self._apply(queue, values)
            queue.changed_at_ms = self.now
            self.outdated(name, 1 - instance)

    def _delete_and_make(self, instance: int, name: str, data: st.DataObject) -> None:
        """Mostly at once, or the rest of the steps would be about what is not there."""
        also = {"orders": "bills", "bills": "orders"}.get(name)
        self.delete(instance, name)
        if also and data.draw(st.integers(0, 2)) == 0:
            self.delete(1 - instance, also)
            self._make_again(1 - instance, also, data)
        self._make_again(instance, name, data)

    def _make_again(self, instance: int, name: str, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 5)):
            given = {VISIBILITY: data.draw(st.sampled_from(["0", "1", "30"]))}
            if name != "bills" and data.draw(st.booleans()):
                given[RETENTION] = data.draw(st.sampled_from(["120", "120", "1209600"]))
            if name.endswith(".fifo"):
                given["ContentBasedDeduplication"] = "true"
            if (
                name in DEAD
                and data.draw(st.booleans())
                and self._bad_policy(name, {REDRIVE: policy_text(DEAD[name][0], 1)}) is None
            ):
                given[REDRIVE] = policy_text(DEAD[name][0], 1)
            self.make(data.draw(instances), name, self._fit(name, given), self._tags_again(name, data))

    def delete(self, instance: int, name: str) -> None:
        answer = self.ask(instance, "DeleteQueue", QueueUrl=URL + name)
        queue = self.world.queues.pop(name, None)
        assert answer == ({} if queue else NO_QUEUE)
        if queue:
            del queue.topic.groups[name]
            if not queue.topic.groups:
                del self.world.topics[queue.topic.name]
            self.outdated(name, 1 - instance)

    def purge(self, instance: int, name: str) -> None:
        began_ms = self.now
        answer = self.ask(instance, "PurgeQueue", QueueUrl=URL + name)
        queue = self.world.queues.get(name)
        assert answer == ({} if queue else NO_QUEUE)
        if queue:
            self.purged(queue, began_ms)
            self.outdated(name, 1 - instance)

    def purged(self, queue: Queue, began_ms: int) -> None:
        group = queue.group
        group.purged_at_ms = group.purged_by(began_ms, queue.topic.has_delayed)
        queue.purges += 1
        for cursor, log in zip(group.cursors, queue.topic.logs, strict=True):
            cursor.reset(len(log), group.purged_at_ms)

    def _tag(self, instance: int, name: str, data: st.DataObject) -> None:
        queue, own = self.world.queues.get(name), {"QueueUrl": URL + name}
        change: dict[str, str | None]
        if data.draw(st.booleans()):
            tags = data.draw(tags_given)
            answer, change = self.ask(instance, "TagQueue", **own, Tags=tags), {**tags}
        else:
            keys = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1))
            answer, change = self.ask(instance, "UntagQueue", **own, TagKeys=keys), dict.fromkeys(keys)
        assert answer == ({} if queue else NO_QUEUE)
        if queue:
            queue.tags = {key: text for key, text in {**queue.tags, **change}.items() if text is not None}
            queue.changed_at_ms = self.now
            self.outdated(name, 1 - instance)
        expected = ({"Tags": queue.tags} if queue.tags else {}) if queue else NO_QUEUE
        assert self.ask(1 - instance, "ListQueueTags", **own) == expected

    def _list(self, instance: int, data: st.DataObject) -> None:
        prefix, most = (
            data.draw(st.sampled_from(["", "", "d", "dead.", "x"])),
            data.draw(st.sampled_from([None, 1, 2, 3])),
        )
        expected = sorted(name for name in self.world.queues if name.startswith(prefix))
        assert self._pages(instance, "ListQueues", "QueueUrls", most, QueueNamePrefix=prefix) == expected
        name = data.draw(st.sampled_from(["dead", "last", "dead.fifo", "orders"]))
        if name in self.world.queues:
            sources = sorted(
                queue.name for queue in self.world.queues.values() if queue.policy and queue.policy[0] == name
            )
            asked = {"QueueUrl": URL + name}
            assert self._pages(instance, "ListDeadLetterSourceQueues", "queueUrls", most, **asked) == sources
        instance, queue = self.about(instance, name), self.world.queues.get(name)
        assert self.ask(instance, "GetQueueUrl", QueueName=name) == ({"QueueUrl": URL + name} if queue else NO_QUEUE)

    def _pages(self, instance: int, action: str, member: str, most: int | None, **asked: Any) -> list[str]:
        """The names of all pages."""
        limit = {} if most is None else {"MaxResults": most}
        urls: list[str] = []
        token: Json = {}
        while True:
            page = self.ask(instance, action, **asked, **limit, **token)
            assert isinstance(page, dict), page
            own = page.get(member, [])
            assert len(own) == most if "NextToken" in page else len(own) <= (most or 1_000)
            urls += own
            if "NextToken" not in page:
                return [url.removeprefix(URL) for url in urls]
            token = {"NextToken": page["NextToken"]}

    def _be_refused(self, instance: int, name: str, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*wrong_values]))
        own = {"QueueUrl": URL + name, "Attributes": {key: wrong_values[key]}}
        wrong = refused("InvalidAttributeValue", f"Invalid value for the parameter {key}.")
        there = name in self.world.queues
        instance = self.about(instance, name)
        assert self.ask(instance, "SetQueueAttributes", **own) == (wrong if there else NO_QUEUE)
        unknown = refused("InvalidAttributeName", "Unknown Attribute X.")
        own = {"QueueUrl": URL + name, "AttributeNames": ["X"]}
        assert self.ask(instance, "GetQueueAttributes", **own) == (unknown if there else NO_QUEUE)
        assert self.ask(instance, "CreateQueue", QueueName="a.b") == refused("InvalidParameterValue", NAME_RULE)
        wrong = bad_value(
            text := policy_text("orders", 1), REDRIVE, "Dead-letter queue must be same type of queue as the source."
        )
        if "orders" in self.world.queues and "line.fifo" in self.world.queues:
            answer = self.ask(instance, "SetQueueAttributes", QueueUrl="line.fifo", Attributes={REDRIVE: text})
            assert answer == wrong

    # -- time and maintenance -----------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(["wait", "approach", "approach", "sweep", "sweep"]), data=st.data())
    def let_pass(self, kind: str, data: st.DataObject) -> None:
        """Time, or maintenance."""
        if kind == "wait":
            self.sleep(data.draw(st.sampled_from(WAITS_MS)))
        elif kind == "approach":
            self.approach(data)
        else:
            self._sweep(data.draw(instances), data.draw(st.sampled_from(SWEEPS)))

    def approach(self, data: st.DataObject) -> None:
        """Waits for something to end, or nearly."""
        ahead = sorted({limit for limit in self.limits() if limit > self.now})
        if ahead:
            self.sleep(max(0, data.draw(st.sampled_from(ahead[:6])) + data.draw(edges) - self.now))

    def limits(self) -> Iterator[int]:
        for queue in self.world.queues.values():
            yield from (hold.until_ms for cursor in queue.group.cursors for hold in cursor.holds.values())
            delay_ms = queue.group.settings["delay_ms"]
            for number, offset in self._fresh(queue) if delay_ms else []:
                yield queue.topic.logs[number][offset]["stored_at_ms"] + delay_ms
        for topic in self.world.topics.values():
            yield from (pending.due_ms for pending in topic.pending if pending.due_ms)
            yield from (at_ms + DEDUP_MS for at_ms, *_ in topic.dedup.values())
            if topic.retention_ms < 1_000_000:
                yield from (message["stored_at_ms"] + topic.retention_ms for log in topic.logs for message in log)

    def _fresh(self, queue: Queue) -> list[tuple[int, int]]:
        cursors, logs = queue.group.cursors, queue.topic.logs
        return [(number, at) for number, cursor in enumerate(cursors) for at in range(cursor.next, len(logs[number]))]

    def _sweep(self, instance: int, kind: str) -> None:
        """Maintenance. It moves what was received often enough; nobody notices the rest."""
        client = self.clients[instance]
        doomed = {place for queue in self.world.queues.values() for place in self.world.doomed(queue, self.now)}
        if kind == "ttl":
            client.store.drop_expired(self.now)
        else:
            getattr(client.api.service.sweeps, kind)()
        self._learn()
        if kind == "revive":
            self.demand_moved(doomed)
        for topic in self.world.topics.values():
            assert kind != "forward" or not topic.due(self.now)

    def demand_moved(self, doomed: set[tuple[str, int, int]]) -> None:
        """All of these are with their dead-letter queues now."""
        for name, number, offset in doomed:
            assert offset not in self.world.queues[name].group.cursors[number].holds, f"{name} still has {offset}"

    # -- comparing ----------------------------------------------------------------------------------------------------

    def _learn(self, about: Queue | None = None) -> None:
        """What has come into the logs since: what was sent, was due, or has moved. `about`: where that can be; None:
        everywhere."""
        names = (
            [about.topic.name, *about.policy[:1]] if about and about.policy else [about.topic.name] if about else None
        )
        for topic in (topic for topic in self.world.topics.values() if names is None or topic.name in names):
            path = f"/topics/{topic.name}"
            for queue in self.observer.get(path).json["queue_offsets"]:
                number, known = queue["queue"], len(topic.logs[queue["queue"]])
                if queue["end_offset"] > known:
                    query = {"queue": number, "offset": known, "limit": 1_000}
                    for message in self.observer.get(f"{path}/messages", **query).json["messages"]:
                        self._meet(topic, message)
            assert not [pending for pending in topic.pending if pending.due_ms is None], "it did not come"

    def _meet(self, topic: SqsTopic, message: Json) -> None:
        pending = next((each for each in topic.pending if each.is_(message)), None)
        pending = pending or self.world.explain(topic, message, self.now)
        assert pending is not None, f"where is it from? {message}"
        topic.meet(message, pending, self.now)

    @invariant()
    def queues_are_as_the_model_has_them(self) -> None:
        """Two of them after each step."""
        self._learn()
        assert not self.world.dying
        names = [*self.world.queues]
        for place in range(min(2, len(names))):
            self.compare(self.world.queues[names[(self.steps + place) % len(names)]])

    def compare(self, queue: Queue) -> None:
        self.settle_doubt(queue)
        answer = Sqs(self.observer).ask("GetQueueAttributes", QueueUrl=queue.name, AttributeNames=["All"])
        seen, known = answer.json["Attributes"], queue.shown(self.now)
        wrong = {key: (seen.get(key), known.get(key)) for key in {*seen, *known} if seen.get(key) != known.get(key)}
        assert not wrong, f"{queue.name}, answered and expected: {wrong}"

    def settle_doubt(self, queue: Queue) -> None:
        """What does not come, receives pass as far as they look, which only the group's progress tells."""
        doubtful = [queue.passed(number, self.now) for number in range(len(queue.group.cursors))]
        if any(doubtful):
            seen = self.observer.get(f"/topics/{queue.topic.name}/groups/{queue.name}").json["queues"]
            for number, cursor in enumerate(queue.group.cursors):
                passed = range(cursor.next, seen[number]["next_offset"])
                assert doubtful[number].issuperset(passed)
                cursor.next = max(cursor.next, seen[number]["next_offset"])

    def sleep(self, ms: int) -> None:
        """Unless messages that were taken and have expired would be removed under the hands of their consumers."""
        owed = (
            queue.topic.logs[number][offset]["stored_at_ms"] + queue.topic.lives_ms[number, offset]
            for queue in self.world.queues.values()
            for number, cursor in enumerate(queue.group.cursors)
            for offset in (*cursor.holds, *cursor.aside)
        )
        if self.now + ms < min(owed, default=NEVER_MS) + DAY_MS - HOUR_MS:
            self.clock.sleep(ms)


def with_encryption(values: dict[str, str]) -> dict[str, str]:
    """Of two kinds of encryption, the later one counts."""
    if values.get("SqsManagedSseEnabled") == "true":
        return {"KmsMasterKeyId": "", **values}
    return {**values, "SqsManagedSseEnabled": "false"} if values.get("KmsMasterKeyId") else values
