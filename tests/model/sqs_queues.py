"""SQS queues: their records and the moves of their messages. Each step asks one of two instances, which learn late of
each other's changes. `tests/sqs` and moto's own tests cover messages themselves."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.sqs.registry import moves_of
from tests.model.administration import one_of
from tests.model.pair import Pair, edges, instances
from tests.model.sqs_records import (
    ALLOW,
    ARN,
    AT_ONCE_MS,
    AT_ONCE_PAUSE_MS,
    MISSING,
    REDRIVE,
    RETENTION,
    RETENTION_DEFAULT,
    SWEEP_MS,
    SWEEP_PAUSE_MS,
    VISIBILITY,
    Message,
    Queue,
    SqsTopic,
    Task,
    Work,
    World,
    bad_value,
    policy_text,
    refused,
)
from tests.model.values import Json
from tests.sqs.client import Refused, Sqs, refusal_in
from tests.sqs.query_client import QuerySqs

URL = "http://sqs.test/000000000000/"
NAMES = ("orders", "dead", "last", "bills", "line.fifo")
"""The queues. `bills` reads the topic of `orders`. The FIFO queue is only named as a destination that does not fit."""
TOPIC = "decant:topic"
DEAD = {"orders": ("dead", "last"), "bills": ("dead", "last"), "dead": ("last",)}
"""The queues to which dead messages of a queue may move."""
STEPS = {
    "send": 3,
    "receive": 6,
    "delete_messages": 2,
    "die_and_come_back": 5,
    "start": 3,
    "work": 3,
    "cancel": 2,
    "change": 4,
    "make": 2,
    "remake": 2,
    "purge": 1,
    "wait": 2,
    "approach": 2,
    "maintain": 2,
}
"""The kinds of steps, and how often each comes."""
WAITS_MS = (1, 499, 1_000, 2_000, 5_001, 29_000, 60_000, 3_600_000)
SHOWN = ("ApproximateReceiveCount", "DeadLetterQueueSourceArn")
ALLOWED = ("", '{"redrivePermission":"denyAll"}', '{"redrivePermission":"allowAll"}')
VALUES: dict[str, list[str]] = {
    VISIBILITY: ["0", "1", "30", "30", " 30 ", "43200"],
    RETENTION: [RETENTION_DEFAULT, "1209600"],
    "MaximumMessageSize": ["1024", "1048576"],
    "ReceiveMessageWaitTimeSeconds": ["0", "3", "20"],
    ALLOW: [*ALLOWED],
}
names = st.sampled_from(NAMES[:4])


class SqsQueues(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ids = itertools.count(1)
        self.steps = 0
        self.handles: dict[str, tuple[Queue, int, Message]] = {}
        """The queue, how often it was purged, and the message that each handle names."""
        self.tasks: list[Task] = []
        """The newest first."""
        self.stale_until_ms: dict[tuple[int, str], int] = {}
        """Until when an instance may not know what became of a queue through the other."""

    @initialize(most=st.sampled_from([1, 2, 3]), visibility=st.sampled_from(["30", "1", "0"]))
    def begin(self, most: int, visibility: str) -> None:
        for name in ("last", "dead", "orders", "bills", "line.fifo"):
            policy = {REDRIVE: policy_text(DEAD[name][0], most)} if name in ("orders", "bills") else {}
            self._make(0, name, {VISIBILITY: visibility, **policy})
        self.send(1, None)

    @rule(kind=one_of(STEPS), instance=instances, data=st.data())
    def step(self, kind: str, instance: int, data: st.DataObject) -> None:
        getattr(self, kind)(instance, data)

    # -- asking -------------------------------------------------------------------------------------------------------

    def ask(self, instance: int, action: str, **members: Any) -> Json | Refused:
        """Sends the request in one of the two encodings."""
        self.steps += 1
        sqs = QuerySqs(self.clients[instance]) if self.steps % 4 == 0 else Sqs(self.clients[instance])
        answer = sqs.ask(action, **members)
        return refusal_in(answer) if answer.status >= 400 else answer.json or {}

    def knowing(self, instance: int, *of: str) -> int:
        """The instance, when it has heard of all that was done to these queues, or the other one."""
        late = [max(self.stale_until_ms.get((each, name), -1) for name in of) for each in (instance, 1 - instance)]
        if self.now > late[1] and self.now <= late[0]:
            return 1 - instance
        self.clock.sleep(max(0, late[0] + 1 - self.now))
        return instance

    def changed(self, name: str, instance: int) -> None:
        """Through this instance. `orders` and `bills` share a topic."""
        for each in {name, *(("orders", "bills") if name in ("orders", "bills") else ())}:
            self.stale_until_ms[1 - instance, each] = self.now + METADATA_AGE_MS_MAX

    # -- records ------------------------------------------------------------------------------------------------------

    def make(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(names)
        self._make(instance, name, data.draw(self._values(name, 2)))

    def _make(self, instance: int, name: str, values: dict[str, str]) -> None:
        given = {"FifoQueue": "true", **values} if name.endswith(".fifo") else values
        tags = {} if name.endswith(".fifo") else {"decant:queues": "1"}
        tags = {TOPIC: "orders", "decant:start": "latest"} if name == "bills" else tags
        known = self.world.queues.get(name)
        answer = self.ask(instance, "CreateQueue", QueueName=name, Attributes=given, tags=tags)
        values = _plain(values)
        wrong = self._differs(known, values) if known else self._bad_policy(name, values)
        if known is None and name == "bills" and "orders" not in self.world.topics:
            wrong = wrong or bad_tag("orders")
        assert answer == (wrong or {"QueueUrl": URL + name}), (answer, wrong)
        if wrong is None and known is None:
            self._begin(name, values, tags)
            self.changed(name, instance)

    def _begin(self, name: str, values: dict[str, str], tags: dict[str, str]) -> None:
        """A new queue. Where others have kept its topic, it has what is sent from now on."""
        topic = self.world.topics.setdefault(tags.get(TOPIC, name), SqsTopic(name, ""))
        queue = Queue(name, next(self.ids), topic, TOPIC not in tags, {}, dict(tags), self.now, self.now)
        queue.change({RETENTION: RETENTION_DEFAULT, **values} if queue.owns_topic else values)
        topic.queues.append(queue)
        self.world.queues[name] = queue

    def _values(self, name: str, most: int) -> st.SearchStrategy[dict[str, str]]:
        own = {**VALUES}
        if name == "bills":
            del own[RETENTION]
        policies = ["", *(policy_text(dead, count) for dead in DEAD.get(name, ()) for count in (1, 1, 2, 1_000))]
        own[REDRIVE] = [*policies, *policies, policy_text("none", 1)]
        likely = st.sampled_from([VISIBILITY, REDRIVE, REDRIVE, *own, *own.keys() & {RETENTION}])
        chosen = st.lists(likely, min_size=1, max_size=most, unique=True)
        return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: st.sampled_from(own[key]) for key in keys}))

    def _differs(self, known: Queue, values: dict[str, str]) -> Refused | None:
        """The refusal to make an existing queue with other attributes."""
        shown = known.attributes()
        for key, text in values.items():
            if shown.get(key, "") != text:
                about = f"the same name and a different value for attribute {key}"
                return refused("QueueAlreadyExists", f"A queue already exists with {about}")
        return None

    def _bad_policy(self, name: str, values: dict[str, str]) -> Refused | None:
        text = values.get(REDRIVE)
        if not text:
            return None
        dead = json.loads(text)["deadLetterTargetArn"].removeprefix(ARN)
        target = self.world.queues.get(dead)
        if target is None:
            return bad_value(text, REDRIVE, "Dead letter target does not exist.")
        if target.values.get(ALLOW) == ALLOWED[1]:
            return bad_value(text, REDRIVE, f"The {ALLOW} of queue '{dead}' does not allow this source.")
        return None

    def change(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(names)
        self._change(instance, name, data.draw(self._values(name, 3)))

    def _change(self, instance: int, name: str, values: dict[str, str]) -> None:
        answer = self.ask(instance, "SetQueueAttributes", QueueUrl=URL + name, Attributes=values)
        queue, values = self.world.queues.get(name), _plain(values)
        if queue is None:
            assert answer == MISSING
        else:
            wrong = self._bad_policy(name, values)
            assert answer == (wrong or {}), (answer, wrong)
            if wrong is None:
                queue.change(values)
                queue.changed_at_ms = self.now
                self.changed(name, instance)

    def remake(self, instance: int, data: st.DataObject) -> None:
        """Deletes a queue, and mostly makes it again, or the rest of the steps would be about a missing one."""
        self._remake(instance, data.draw(names), data)

    def _remake(self, instance: int, name: str, data: st.DataObject) -> None:
        also = {"orders": "bills", "bills": "orders"}.get(name) if data.draw(st.booleans()) else None
        for each in (name, *([also] if also else [])):
            self._delete(instance, each)
        for each in ("orders", "bills", name):
            if each not in self.world.queues and data.draw(st.integers(0, 5)):
                policy = {REDRIVE: policy_text(DEAD[each][0], 1)} if each in DEAD and data.draw(st.booleans()) else {}
                values = {VISIBILITY: data.draw(st.sampled_from(["0", "1", "30"])), **policy}
                self._make(data.draw(instances), each, values)

    def _delete(self, instance: int, name: str) -> None:
        answer, queue = self.ask(instance, "DeleteQueue", QueueUrl=URL + name), self.world.queues.pop(name, None)
        assert answer == ({} if queue else MISSING)
        if queue:
            queue.topic.queues.remove(queue)
            if not queue.topic.queues:
                del self.world.topics[queue.topic.name]
            self.changed(name, instance)

    def purge(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(names)
        answer, queue = self.ask(instance, "PurgeQueue", QueueUrl=URL + name), self.world.queues.get(name)
        assert answer == ({} if queue else MISSING)
        if queue:
            queue.items.clear()
            queue.purges += 1
            self.changed(name, instance)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, instance: int, _: st.DataObject | None) -> None:
        self._send(instance, "orders")

    def _send(self, instance: int, name: str) -> None:
        """One message, so that it is clear which of two is the first."""
        instance, body, queue = self.knowing(instance, name), f"body {self.steps}", self.world.queues.get(name)
        answer = self.ask(instance, "SendMessage", QueueUrl=URL + name, MessageBody=body)
        if queue is None:
            assert answer == MISSING
        else:
            assert isinstance(answer, dict), answer
            self.world.send(queue.topic, body, answer["MessageId"])

    def receive(self, instance: int, data: st.DataObject) -> None:
        self._receive(instance, data.draw(names), data.draw(st.sampled_from([None, 0, 0, 1, 30])))

    def _receive(self, instance: int, name: str, seconds: int | None) -> None:
        """Up to ten messages, after those that were received often enough have moved away."""
        instance, queue = self.knowing(instance, name, *DEAD.get(name, ())), self.world.queues.get(name)
        own: Json = {"QueueUrl": URL + name, "WaitTimeSeconds": 0, "MaxNumberOfMessages": 10, "AttributeNames": SHOWN}
        answer = self.ask(
            instance, "ReceiveMessage", **own, **({} if seconds is None else {"VisibilityTimeout": seconds})
        )
        if queue is None:
            assert answer == MISSING
            return
        assert isinstance(answer, dict), answer
        self.world.bury(queue, self.now)
        ready, messages = queue.ready(self.now), answer.get("Messages", [])
        assert len(messages) == min(10, len(ready)), (queue, messages)
        seconds = int(queue.attributes()[VISIBILITY]) if seconds is None else seconds
        for item, seen in zip(ready, messages, strict=False):
            message, handle = item.message, seen["ReceiptHandle"]
            item.attempt, item.until_ms = item.attempt + 1, self.now + 1_000 * seconds
            message.id = message.id or seen["MessageId"]
            source = {} if message.source is None else {SHOWN[1]: ARN + message.source}
            attributes = {SHOWN[0]: str(message.count + item.attempt), **source}
            shown = {"MessageId": message.id, "Body": message.body, "Attributes": attributes}
            assert {field: seen[field] for field in shown} == shown, (messages, ready)
            assert handle not in self.handles
            self.handles[handle] = queue, queue.purges, message

    def delete_messages(self, instance: int, data: st.DataObject) -> None:
        """By any handle that the queue has given out. Another one names no message."""
        handle = data.draw(st.sampled_from([*list(self.handles)[-6:], "x"]))
        queue, purges, message = self.handles.get(handle, (None, 0, None))
        name = queue.name if queue and data.draw(st.integers(0, 5)) else data.draw(names)
        there = self.world.queues.get(name)
        answer = self.ask(self.knowing(instance, name), "DeleteMessage", QueueUrl=URL + name, ReceiptHandle=handle)
        if there is None or there is not queue:
            text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            assert answer == (MISSING if there is None else refused("ReceiptHandleIsInvalid", text))
            return
        assert answer == {}
        item = queue.item(message)
        if item and purges == queue.purges:
            queue.items.remove(item)

    # -- moves --------------------------------------------------------------------------------------------------------

    def die_and_come_back(self, instance: int, data: st.DataObject) -> None:
        """Messages are received until they move to the dead-letter queue, and a task moves them back. In between, the
        queue may change."""
        name = data.draw(st.sampled_from(["orders", "bills", "bills", "dead"]))
        self._send(instance, {"bills": "orders"}.get(name, name))
        for _ in range(data.draw(st.sampled_from([2, 3, 4]))):
            self._receive(instance, name, 0)
        source = self.world.queues.get(name)
        if source and source.policy:
            dead = source.policy[0]
            kind = data.draw(st.sampled_from(["nothing", "nothing", "remake", "policy", "direct"]))
            if kind == "remake":
                self._remake(instance, name, data)
            elif kind == "policy":
                self._change(instance, name, {REDRIVE: data.draw(st.sampled_from(["", policy_text("last", 1)]))})
            elif kind == "direct":
                self._send(instance, dead)
            self._start(1 - instance, dead, data.draw(st.sampled_from([None, None, "orders", "last"])), data)
            running = [task.to.name for task in self.tasks[:1] if task.to and task.state == "RUNNING"]
            for each in running[: data.draw(st.integers(0, 1))]:
                self._remake(instance, each, data)
            self.work(instance, data)
            self._receive(instance, data.draw(st.sampled_from([dead, name])), 0)

    def start(self, instance: int, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from([*3 * [None], "orders", "last", "dead", "line.fifo", "none"]))
        self._start(instance, data.draw(st.sampled_from(["dead", "dead", "last", "none"])), to, data)

    def _start(self, instance: int, name: str, to: str | None, data: st.DataObject) -> None:
        instance, rate = self.knowing(instance, *NAMES), data.draw(st.sampled_from([None, 1, 1, 2, 10]))
        asked = {"DestinationArn": to and ARN + to, "MaxNumberOfMessagesPerSecond": rate}
        given = {member: value for member, value in asked.items() if value is not None}
        source, began_ms = self.world.queues.get(name), self.now
        count = len(source.ready(began_ms)) if source else 0
        answer = self.ask(instance, "StartMessageMoveTask", SourceArn=ARN + name, **given)
        wrong = self._unstartable(source, to)
        if wrong or source is None:
            assert answer == wrong
            return
        assert isinstance(answer, dict), answer
        task_id = json.loads(base64.b64decode(answer["TaskHandle"]))["taskId"]
        task = Task(task_id, source, self.world.queues[to] if to else None, rate, count, began_ms)
        assert answer == {"TaskHandle": task.handle}
        self.tasks.insert(0, task)
        ended_ms = Work(self.world, began_ms, began_ms + AT_ONCE_MS, AT_ONCE_PAUSE_MS, [task]).run()
        assert ended_ms == self.now, (ended_ms, self.now, task.shown())

    def _unstartable(self, source: Queue | None, to: str | None) -> Refused | None:
        missing, queues = "The resource that you specified for the {} parameter doesn't exist.", self.world.queues
        if source is None:
            return refused("ResourceNotFoundException", missing.format("SourceArn"))
        if not any(queue.policy and queue.policy[0] == source.name for queue in queues.values()):
            return refused("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
        if to and to not in queues:
            return refused("ResourceNotFoundException", missing.format("DestinationArn"))
        if to == source.name:
            return bad_value(ARN + to, "DestinationArn", "The destination must be another queue than the source.")
        if to and queues[to].is_fifo != source.is_fifo:
            return bad_value(ARN + to, "DestinationArn", "The destination must be same type of queue as the source.")
        if any(task.state == "RUNNING" for task in self._tasks_of(source)):
            only = "Only one active task is allowed for a source queue arn at a given time."
            return refused("InvalidParameterValue", f"There is already a task running. {only}")
        return None

    def _tasks_of(self, queue: Queue | None) -> list[Task]:
        return [task for task in self.tasks if task.source is queue]

    def work(self, instance: int, _: st.DataObject) -> None:
        """The sweep that goes on with tasks."""
        instance = self.knowing(instance, *NAMES)
        newest = [task for queue in self.world.queues.values() for task in self._tasks_of(queue)[:1]]
        going = [task for task in newest if task.state == "RUNNING"]
        began_ms, service = self.now, self.clients[instance].api.service
        service.sweeps.move(moves_of(service))
        ended_ms = Work(self.world, began_ms, began_ms + SWEEP_MS, SWEEP_PAUSE_MS, [*going]).run()
        assert ended_ms == self.now, (ended_ms, self.now, [task.shown() for task in going])

    def cancel(self, instance: int, data: st.DataObject) -> None:
        """A task that runs; or one of those before it, which cannot be cancelled."""
        tasks = [task for task in self.tasks if task.source in self.world.queues.values()][:3]
        task = data.draw(st.sampled_from([*tasks, None]))
        if task in self._tasks_of(task.source if task else None)[:10] and task:
            answer = self.ask(instance, "CancelMessageMoveTask", TaskHandle=task.handle)
            if task.state in ("RUNNING", "CANCELLED"):
                task.state = "CANCELLED"
                assert answer == {"ApproximateNumberOfMessagesMoved": task.moved}
            else:
                assert answer == refused("ResourceNotFoundException", "Task does not exist.")

    # -- time and maintenance -----------------------------------------------------------------------------------------

    def wait(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from(WAITS_MS)))

    def approach(self, _: int, data: st.DataObject) -> None:
        """Waits for a message to be visible again, or nearly."""
        ahead = sorted({at_ms for at_ms in self._limits() if at_ms > self.now})
        if ahead:
            self.clock.sleep(max(0, data.draw(st.sampled_from(ahead[:3])) + data.draw(edges) - self.now))

    def _limits(self) -> Iterator[int]:
        for queue in self.world.queues.values():
            yield from (item.until_ms for item in queue.items)

    def maintain(self, instance: int, data: st.DataObject) -> None:
        """Only messages that were received too often show it: they move. If two queues have such messages, either may
        be first."""
        kind = data.draw(st.sampled_from(["forward", "revive", "revive", "expire", "ttl", "check"]))
        if kind == "ttl":
            self.clients[instance].store.drop_expired(self.now)
        elif kind != "revive":
            getattr(self.clients[instance].api.service.sweeps, kind)()
        elif sum(bool(self.world.doomed(queue, self.now)) for queue in self.world.queues.values()) < 2:
            self.clients[instance].api.service.sweeps.revive()
            for queue in self.world.queues.values():
                self.world.bury(queue, self.now)

    # -- comparing ----------------------------------------------------------------------------------------------------

    @invariant()
    def queues_are_as_the_model_has_them(self) -> None:
        for queue in self.world.queues.values():
            answer = Sqs(self.observer).ask("GetQueueAttributes", QueueUrl=queue.name, AttributeNames=["All"])
            seen, known = answer.json["Attributes"], queue.shown(self.now)
            wrong = {key: (seen.get(key), known.get(key)) for key in {*seen, *known} if seen.get(key) != known.get(key)}
            assert not wrong, f"{queue.name}, answered and expected: {wrong}"

    @invariant()
    def tasks_are_as_the_model_has_them(self) -> None:
        for name in ("dead", "last"):
            answer = Sqs(self.observer).ask("ListMessageMoveTasks", SourceArn=ARN + name, MaxResults=10)
            if queue := self.world.queues.get(name):
                shown = [task.shown() for task in self._tasks_of(queue)[:10]]
                assert (answer.json or {}) == ({"Results": shown} if shown else {}), shown
            else:
                assert refusal_in(answer) == self._unstartable(None, None)


def _plain(values: dict[str, str]) -> dict[str, str]:
    """Values as they are kept."""
    return {key: text.strip() for key, text in values.items()}


def bad_tag(topic: str) -> Refused:
    reason = f"Value {topic} for tag {TOPIC} is invalid. Reason: There is no such topic."
    return refused("InvalidParameterValue", reason)
