"""Queues of SQS clients beside everything else: move tasks, and callers that know topics and groups by their names."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.sqs.registry import moves_of
from tests.model.cursor import BACKOFF_MS, INVALID, Cursor, Hold
from tests.model.model import DEFAULTS, Group, Json
from tests.model.moving import AT_ONCE_MS, AT_ONCE_PAUSE_MS, SWEEP_MS, SWEEP_PAUSE_MS, Moving, Task
from tests.model.queueing import ALLOWED, DEAD, instances
from tests.model.receiving import Receiving, requests
from tests.model.sqs import (
    ALLOW,
    ARN,
    REDRIVE,
    Pending,
    Queue,
    SqsTopic,
    bad_value,
    policy_text,
    refused,
    uuid_of,
)
from tests.sqs.client import Refused

DESTINATIONS = (*6 * [None], "orders", "orders", "last", "dead", "line.fifo", "none")
SLOW = ("orders", "orders", "last", "line.fifo")
RATES = (None, None, 1, 1, 2, 10)
OTHERS = (
    *3 * ["produce"],
    *4 * ["pop"],
    "ack",
    "nack",
    "nack",
    "bury",
    "extend",
    "reset",
    "put",
    *2 * ["audit"],
    "vanish",
)


BETWEEN = (*3 * ["nothing"], "remake", "policy", "policy", "purge", "direct", "direct")
CHANGES = (*2 * ["remake"], "policy", "purge", *2 * ["set"], *2 * ["reset"], *2 * ["allow"], "encrypt")
ALL = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
PROPERTIES: list[Json] = [{"s": "t"}, {"sqs:trace": "Root=2"}, {"n": "7", "sqs:types": '{"n":"Number"}'}]


class Queues(Receiving):
    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[int, list[Task]] = {}
        """Of each queue, by its incarnation, the newest first."""

    # -- move tasks ---------------------------------------------------------------------------------------------------

    @rule(
        instance=instances,
        kind=st.sampled_from(["start", "start", "start", "list", "sweep", "sweep", "cancel"]),
        name=st.sampled_from(["dead", "dead", "dead", "last", "dead.fifo", "dead.fifo", "orders", "none"]),
        data=st.data(),
    )
    def move(self, instance: int, kind: str, name: str, data: st.DataObject) -> None:
        if kind == "sweep":
            self._sweep_tasks(instance)
        elif kind == "start" and name != "orders":
            self._start(instance, name, data)
        elif kind == "cancel":
            self._cancel(instance, name, data)
        self._list_tasks(1 - instance, name, data.draw(st.sampled_from([None, 1, 2, 10])))

    def _start(self, instance: int, name: str, data: st.DataObject, is_slow: bool = False) -> None:
        """`is_slow`: so that the destination can change before all has moved."""
        to, rate = data.draw(st.sampled_from(SLOW if is_slow else DESTINATIONS)), data.draw(st.sampled_from(RATES))
        rate = 1 if is_slow else rate
        self._hear_all(instance)
        source = self.world.queues.get(name)
        if source and source.topic.pending:  # what comes while a task works on it would be another matter
            return
        for queue in self.world.queues.values():
            self.settle_doubt(queue)
        asked = {"DestinationArn": to and ARN + to, "MaxNumberOfMessagesPerSecond": rate}
        given = {member: value for member, value in asked.items() if value is not None}
        began_ms = self.now
        count = source.counts(began_ms)[0] if source else 0
        answer = self.ask(instance, "StartMessageMoveTask", SourceArn=ARN + name, **given)
        wrong = self._unstartable(source, to)
        if wrong or source is None:
            assert answer == wrong
            return
        assert isinstance(answer, dict), answer
        task_id = json.loads(base64.b64decode(answer["TaskHandle"]))["taskId"]
        target = (to, self.world.queues[to].id) if to else None
        task = Task(task_id, source, target, rate, count, began_ms)
        assert answer == {"TaskHandle": task.handle}
        self.tasks.setdefault(source.id, []).insert(0, task)
        self._work(Moving(self.world, began_ms, began_ms + AT_ONCE_MS, AT_ONCE_PAUSE_MS, [task]))

    def _unstartable(self, source: Queue | None, to: str | None) -> Refused | None:
        missing = "The resource that you specified for the {} parameter doesn't exist."
        queues = self.world.queues
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
        if any(task.state == "RUNNING" for task in self.tasks.get(source.id, ())):
            only = "Only one active task is allowed for a source queue arn at a given time."
            return refused("InvalidParameterValue", f"There is already a task running. {only}")
        return None

    def _sweep_tasks(self, instance: int) -> None:
        self._hear_all(instance)
        going = [task for task in self._newest_tasks() if task.state == "RUNNING"]
        if any(task.source.topic.pending for task in going):
            return
        for queue in self.world.queues.values():
            self.settle_doubt(queue)
        began_ms, service = self.now, self.clients[instance].api.service
        service.sweeps.move(moves_of(service))
        self._work(Moving(self.world, began_ms, began_ms + SWEEP_MS, SWEEP_PAUSE_MS, going))

    def _newest_tasks(self) -> Iterator[Task]:
        for queue in self.world.queues.values():
            yield from self.tasks.get(queue.id, [])[:1]

    def _work(self, moving: Moving) -> None:
        tasks = [*moving.going]
        moving.run()
        assert moving.now == self.now, (moving.now, self.now, tasks)
        self._learn()
        assert not [each for topic in self.world.topics.values() for each in topic.pending if each.id is None]

    def _hear_all(self, instance: int) -> None:
        """An instance that works on tasks knows what became of all queues."""
        until_ms = max((at_ms for (own, _), at_ms in self.believed_until_ms.items() if own == instance), default=-1)
        self.clock.sleep(max(0, until_ms + 1 - self.now))

    def _list_tasks(self, instance: int, name: str, most: int | None) -> None:
        given = {} if most is None else {"MaxResults": most}
        answer = self.ask(instance, "ListMessageMoveTasks", SourceArn=ARN + name, **given)
        queue = self.world.queues.get(name)
        if queue is None:
            assert answer == self._unstartable(None, None)
            return
        shown = [task.shown() for task in self.tasks.get(queue.id, [])][: most or 1]
        assert answer == ({"Results": shown} if shown else {}), (answer, shown)

    def _cancel(self, instance: int, name: str, data: st.DataObject) -> None:
        queue = self.world.queues.get(name)
        tasks = self.tasks.get(queue.id, [])[:10] if queue else []
        if not tasks or not queue:
            return
        task = data.draw(st.sampled_from(tasks[:2]))
        answer = self.ask(instance, "CancelMessageMoveTask", TaskHandle=task.handle)
        if task.state in ("RUNNING", "CANCELLED"):
            task.state = "CANCELLED"
            assert answer == {"ApproximateNumberOfMessagesMoved": task.moved}
        else:
            assert answer == refused("ResourceNotFoundException", "Task does not exist.")

    # -- one thing after another --------------------------------------------------------------------------------------

    @rule(
        instance=instances,
        name=st.sampled_from(["orders", "bills", "bills", "line.fifo", "dead"]),
        between=st.sampled_from(BETWEEN),
        data=st.data(),
    )
    def die_and_come_back(self, instance: int, name: str, between: str, data: st.DataObject) -> None:
        """Messages are received until they move to the dead-letter queue, and a task moves them back."""
        self._die(instance, name, data)
        source = self.world.queues.get(name)
        if source is None or source.policy is None:
            return
        dead = source.policy[0]
        also: str | None = {"orders": "bills", "bills": "orders"}.get(name)
        is_one_of_two: bool = data.draw(st.booleans())
        if also and is_one_of_two:
            self._die(instance, also, data)
        self._do(between, instance, dead if between == "direct" else name, data)
        self._start(1 - instance, dead, data, data.draw(st.integers(0, 2)) == 0)
        running = [task.to[0] for task in self._newest_tasks() if task.to and task.state == "RUNNING"]
        is_remade: bool = data.draw(st.booleans())
        if running and is_remade:
            self._delete_and_make(instance, running[0], data)
        self._sweep_tasks(instance)
        self._list_tasks(instance, dead, 10)
        self.receive(instance, data.draw(st.sampled_from([dead, name])), {**ALL, "MaxNumberOfMessages": 10})

    def _die(self, instance: int, name: str, data: st.DataObject) -> None:
        to = "orders" if name == "bills" else name
        self.send(instance, to, [self._message(to, data) for _ in range(data.draw(st.sampled_from([1, 2])))], data)
        for _ in range(data.draw(st.sampled_from([2, 3, 4]))):
            request = {**ALL, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
            self.receive(instance, name, request)

    def _do(self, kind: str, instance: int, name: str, data: st.DataObject) -> None:
        if kind == "remake":
            self._delete_and_make(instance, name, data)
            self.send(instance, "orders", [self._message("orders", data) for _ in range(3)], data)
        elif kind == "direct":
            self.send(instance, name, [self._message(name, data)], data)
        elif kind == "allow" and name in DEAD:
            self.change(instance, DEAD[name][0], {ALLOW: data.draw(st.sampled_from(ALLOWED))})
            self.change(instance, name, {REDRIVE: policy_text(DEAD[name][0], 1)})
        elif kind == "policy" and name in DEAD:
            values = st.sampled_from(["", *(policy_text(dead, 1) for dead in DEAD[name])])
            self.change(instance, name, {REDRIVE: data.draw(values)})
        elif kind == "purge":
            self.purge(instance, name)
        elif kind == "encrypt":
            self.change(instance, name, {"KmsMasterKeyId": "alias/a"})
            self.change(instance, name, {"SqsManagedSseEnabled": "true"})
        elif kind == "set":
            self.change(instance, name, data.draw(self._values(name, 2)))
        elif kind == "reset" and (queue := self.world.queues.get(name)):
            instance = self.about(instance, name)
            self.settle_doubt(queue)
            self._reset(instance, queue, data)

    @rule(
        instance=instances,
        name=st.sampled_from(["orders", "orders", "bills", "line.fifo", "line.fifo", "dead"]),
        kind=st.sampled_from(CHANGES),
        request=requests,
        data=st.data(),
    )
    def change_and_go_on(self, instance: int, name: str, kind: str, request: Json, data: st.DataObject) -> None:
        """A queue changes under the eyes of another instance, which goes on with it when it must have heard of it."""
        to, other = "orders" if name == "bills" else name, 1 - instance
        self.send(other, to, [self._message(to, data)], data)
        self.receive(other, name, {"MaxNumberOfMessages": 2})
        self._do(kind, instance, name, data)
        if data.draw(st.booleans()):
            self.sleep(data.draw(st.sampled_from([METADATA_AGE_MS_MAX + 1, METADATA_AGE_MS_MAX + 1, 2_000])))
        self._delete(other, name, 2, data)
        self.send(other, to, [self._message(to, data) for _ in range(2)], data)
        self.receive(other, name, request)
        if kind in ("policy", "set"):
            self._die(other, name, data)

    @rule(instance=instances, name=st.sampled_from(["orders", "bills", "dead", "line.fifo"]), data=st.data())
    def hold_for_long(self, instance: int, name: str, data: st.DataObject) -> None:
        self.receive(instance, name, {"MaxNumberOfMessages": 1, "VisibilityTimeout": 43_200})
        self._change_near_the_limit(data)
        for _ in range(2):
            self.receive(instance, name, {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 0})

    # -- other callers ------------------------------------------------------------------------------------------------

    @rule(instance=instances, kind=st.sampled_from(OTHERS), data=st.data())
    def call_over_json(self, instance: int, kind: str, data: st.DataObject) -> None:
        name = self.name(data, "orders", "bills", "line.fifo", "dead")
        queue = self.world.queues.get(name)
        if queue:
            instance = self.about(instance, name)
            self.settle_doubt(queue)
            getattr(self, f"_{kind}")(instance, queue, data)

    def _post(self, instance: int, queue: Queue, verb: str, **body: Any) -> Json:
        path = f"/topics/{queue.topic.name}/groups/{queue.name}/{verb}"
        answer = self.clients[instance].post(path, **body)
        assert answer.status == 200, answer
        told: Json = answer.json
        return told

    def _produce(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        self.sent += 1
        optional = {
            "key": st.sampled_from(["a", "b"]),
            "tag": st.just("x"),
            "properties": st.sampled_from(
                [{"s": "t"}, {"sqs:trace": "Root=2"}, {"n": "7", "sqs:types": '{"n":"Number"}'}]
            ),
        }
        given = data.draw(st.fixed_dictionaries({"body": st.just(f"body {self.sent}")}, optional=optional))
        answer = self.clients[instance].post(f"/topics/{queue.topic.name}/messages", messages=[given])
        [place] = answer.json["messages"]
        shown = {"key": None, "tag": None, "properties": {}, **given}
        queue.topic.pending.append(Pending(shown, uuid_of(place["message_id"]), None, self.now, place["queue"]))
        self._learn(queue)

    def _pop(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        most, invisible_ms = data.draw(st.sampled_from([1, 2, 10])), data.draw(st.sampled_from([0, 1_500, 30_000]))
        is_there = self.world.has_any(queue, self.now, self.now)
        answer = self._post(instance, queue, "pop", max_messages=most, invisible_ms=invisible_ms)
        self._learn(queue)
        messages = answer["messages"]
        assert bool(messages) == is_there
        for number in {message["queue"] for message in messages}:
            ready = queue.in_turn(number, self.now, most, self.world.max_attempts(queue))[:most]
            assert [message["offset"] for message in messages] == (ready if queue.is_fifo else sorted(ready))
        for message in messages:
            number, offset = message["queue"], message["offset"]
            cursor, handle = queue.group.cursors[number], message["receipt"]
            hold = Hold(self.now + invisible_ms, cursor.attempts_of(offset) + 1, handle, None, handle)
            lease = {"attempt": hold.attempt, "invisible_until_ms": hold.until_ms, "receipt": handle}
            assert message == {**queue.topic.logs[number][offset], **lease}
            cursor.take(offset, hold, queue.passed(number, self.now))
            self.note(queue, number, cursor, offset, hold)
            self.taken_at_ms[handle] = self.now
        self.settle_doubt(queue)

    def _ack(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        handles = [data.draw(self.handles(queue.name)) for _ in range(2)]
        places = {handle: self._standing(queue, handle) for handle in handles}
        answer = self._post(instance, queue, "ack", receipts=handles)
        for handle, place in places.items():
            if place:
                place[1].ack(place[0], handle, self.now)
        worths = [place[1].worth(place[0], handle, self.now) if place else INVALID for handle, place in places.items()]
        failed = dict(zip(places, worths, strict=True))
        expected = [{"receipt": handle, "code": failed[handle]} for handle in handles if failed[handle] != "counts"]
        assert answer["acked"] == 2 - len(expected)
        assert sorted(map(str, answer["failed"])) == sorted(map(str, expected))

    def _nack(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        self._give_up(
            instance, queue, "nack", data.draw(self.handles(queue.name)), data.draw(st.sampled_from([None, 0, 2_000]))
        )

    def _bury(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        if self.world.max_attempts(queue) is not None:  # otherwise there would be letters
            self._give_up(instance, queue, "bury", data.draw(self.handles(queue.name)), None)

    def _give_up(self, instance: int, queue: Queue, verb: str, handle: str, delay_ms: int | None) -> None:
        place, most = self._standing(queue, handle), self.world.max_attempts(queue)
        delay = {"delay_ms": delay_ms} if verb == "nack" else {}
        answer = self._post(instance, queue, verb, receipts=[handle], reason="no stock", **delay)
        is_held = place is not None and place[1].is_held(place[0], handle, self.now)
        code = "LeaseLost" if place else INVALID
        failed = [] if is_held else [{"receipt": handle, "code": code}]
        assert answer == {"nacked" if verb == "nack" else "buried": int(is_held), "failed": failed}
        if place and is_held:
            ticket, cursor = place
            hold = cursor.holds[ticket.offset]
            if most is not None and (verb == "bury" or hold.attempt >= most):
                self.world.dying[queue.name, ticket.queue, ticket.offset] = "no stock"
            else:
                wait_ms = BACKOFF_MS[min(max(hold.attempt, 1), len(BACKOFF_MS)) - 1] if delay_ms is None else delay_ms
                cursor.take(ticket.offset, Hold(self.now + wait_ms, hold.attempt))
        self._learn(queue)

    def _extend(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        handle, ms = data.draw(self.handles(queue.name)), data.draw(st.sampled_from([1, 2_500]))
        place = self._standing(queue, handle)
        is_held = place is not None and place[1].is_held(place[0], handle, self.now)
        answer = self._post(instance, queue, "extend", receipts=[handle], invisible_ms=ms)
        assert len(answer["extended"]) == is_held
        if place and is_held:
            [lease] = answer["extended"]
            ticket, cursor = place
            hold = cursor.holds[ticket.offset]
            cursor.extend(ticket.offset, hold.receipt or "changed", self.now + ms)
            assert lease["invisible_until_ms"] == self.now + ms

    def _reset(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        to, began_ms = data.draw(st.sampled_from(["earliest", "earliest", "latest", "now"])), self.now
        self._post(instance, queue, "reset", to=to)
        if to == "now":
            self.purged(queue, began_ms)
            self.outdated(queue.name, 0, 1)
            return
        queue.group.purged_at_ms = None
        for cursor, log in zip(queue.group.cursors, queue.topic.logs, strict=True):
            cursor.reset(0 if to == "earliest" else len(log))

    def _put(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        ms = data.draw(st.sampled_from([1_000, 5_000, 30_000]))
        path = f"/topics/{queue.topic.name}/groups/{queue.name}"
        assert self.clients[instance].put(path, invisible_ms=ms).status == 200
        queue.group.settings["invisible_ms"] = ms
        self.outdated(queue.name, 1 - instance)

    def _audit(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        """A second group gets all, whatever becomes of it in the first."""
        topic, path = queue.topic, f"/topics/{queue.topic.name}/groups/audit"
        if "audit" not in topic.groups:
            assert self.clients[instance].put(path).status == 201
            topic.groups["audit"] = Group(next(self.ids), {**DEFAULTS}, [Cursor(0) for _ in topic.logs])
            return
        came: list[Json] = []
        while messages := self.clients[instance].post(f"{path}/pop", max_messages=100).json["messages"]:
            receipts = [message["receipt"] for message in messages]
            assert self.clients[instance].post(f"{path}/ack", receipts=receipts).json["failed"] == []
            came += messages
        self._learn(queue)
        cursors, lease = topic.groups["audit"].cursors, ("attempt", "invisible_until_ms", "receipt")
        seen = [{field: value for field, value in message.items() if field not in lease} for message in came]
        for number, cursor in enumerate(cursors):
            left = [message for message in topic.logs[number][cursor.next :] if self._lives(topic, message)]
            assert [message for message in seen if message["queue"] == number] == left
            cursor.next = len(topic.logs[number])

    def _lives(self, topic: SqsTopic, message: Json) -> bool:
        return not topic.has_expired(message["queue"], message["offset"], self.now)

    def _vanish(self, instance: int, queue: Queue, data: st.DataObject) -> None:
        """Over JSON its group is deleted, or its topic. The first that looks for the queue finds that it is gone."""
        is_whole = data.draw(st.booleans())
        if data.draw(st.booleans()):  # it is rare
            return
        path = f"/topics/{queue.topic.name}" + ("" if is_whole else f"/groups/{queue.name}")
        assert self.clients[instance].delete(path).status == 204
        gone = [
            each.name
            for each in self.world.queues.values()
            if each.topic is queue.topic and (is_whole or each is queue)
        ]
        del queue.topic.groups[queue.name]
        if is_whole:
            del self.world.topics[queue.topic.name]
        for name in gone:
            del self.world.queues[name]
            self.outdated(name, 1 - instance)
            answer = self.ask(instance, "GetQueueAttributes", QueueUrl=name, AttributeNames=["QueueArn"])
            assert isinstance(answer, Refused)
            assert answer.code == "NonExistentQueue"
