"""SQS clients in a simulated world, by the actions of the door.

Some make, change, purge and delete two queues of one topic; others send to the one that owns it and receive from both.
`over_json`: another caller removes the topic, or a group, without its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.store import Keys, Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key
from chalicelib.doors.sqs import queue_tags
from chalicelib.doors.sqs import registry as sqs_queues
from chalicelib.doors.sqs.action import Call, Context
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.errors import SqsError
from chalicelib.doors.sqs.json_wire import JsonWire
from chalicelib.doors.sqs.queue import FIFO_SUFFIX
from chalicelib.doors.sqs.queue_attributes import RETENTION, SIZE, VISIBILITY
from chalicelib.doors.sqs.registry import QueueGone, queues_of
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Acted, QueueLeft
from tests.history.history import History
from tests.history.sqs_queues import ENDS, KNOWN_MS
from tests.simulation.faulty_store import PastStore

if TYPE_CHECKING:
    from tests.simulation.world import World

_CONTEXT = Context("https", "localhost", "", "000000000000", "us-east-1", {}, None)
_SIZE_LEAST, _RETENTION_LEAST_S = 1_024, 4_000
_TAKEN_AT_LAST_S = 60
_SENDS = 0.4
"""The share of sends among the calls of a client."""
_REPEATS = 0.3
"""The share of these that send to a FIFO queue the same as other clients."""
_BESIDE = 0.4
"""The probability that an owner acts at two instances at once."""

OTHERS = "audit"
"""A group that no SQS client has made."""
CHORES = ("make",) * 5 + ("delete",) * 3 + ("change", "change", "tag", "tag", "purge", "audit")
ROUGH_CHORES = ("remove the topic", "remove a group") * 2


@contextmanager
def quick_news() -> Iterator[None]:
    """Instances read queues again sooner."""
    with patch.object(sqs_queues, "METADATA_AGE_MS_MAX", KNOWN_MS):
        yield


class Names:
    """`own`: the queue that owns the topic of its name. `other`: one that reads it."""

    def __init__(self, is_fifo: bool) -> None:
        suffix = FIFO_SUFFIX if is_fifo else ""
        self.own, self.other = f"orders{suffix}", f"billing{suffix}"
        self.is_fifo = is_fifo


class QueueCaller:
    def __init__(self, world: World, service: Service) -> None:
        self._service, self._history = service, world.history
        self._now: Callable[[], int] = lambda: world.now
        self._names = world.queue_names

    def make(self, queue: str) -> None:
        tags = {} if queue == self._names.own else {queue_tags.TOPIC: self._names.own}
        attributes = {"FifoQueue": "true"} if self._names.is_fifo else {}
        self._ask(queue, "make", "", "CreateQueue", {"QueueName": queue, "Attributes": attributes, "tags": tags})

    def change(self, queue: str, number: int) -> None:
        """Settings of the record, the group and the topic that show the number."""
        attributes = {SIZE: str(_SIZE_LEAST + number), VISIBILITY: str(number)}
        if queue == self._names.own:
            attributes[RETENTION] = str(_RETENTION_LEAST_S + number)
        self._ask(queue, "change", "", "SetQueueAttributes", {"Attributes": attributes})

    def tag(self, queue: str, tag: str) -> None:
        self._ask(queue, "tag", tag, "TagQueue", {"Tags": {tag: ""}})

    def end(self, queue: str, chore: str) -> None:
        self._ask(queue, chore, "", {"purge": "PurgeQueue", "delete": "DeleteQueue"}[chore], {})

    def send(self, body: str, delay_seconds: int) -> None:
        """To a FIFO queue, each body under an id of its own."""
        fifo = {"MessageGroupId": body[-1], "MessageDeduplicationId": body}
        about = fifo if self._names.is_fifo else {"DelaySeconds": delay_seconds}
        self._ask(self._names.own, "send", body, "SendMessage", {"MessageBody": body, **about})

    def receive(self, queue: str, most: int, visibility_seconds: int) -> list[Any]:
        began_ms = self._now()
        asked = {"MaxNumberOfMessages": most, "VisibilityTimeout": visibility_seconds}
        got: list[Any] = (self._ask(queue, "look", "", "ReceiveMessage", asked) or {}).get("Messages", [])
        bodies = [message["Body"] for message in got]
        self._history.acted += [Acted(queue, "receive", body, began_ms, self._now(), "ok") for body in bodies]
        return got

    def settle(self, queue: str, message: Any) -> None:
        self._ask(queue, "settle", message["Body"], "DeleteMessage", {"ReceiptHandle": message["ReceiptHandle"]})

    def _ask(self, queue: str, verb: str, about: str, action: str, members: dict[str, Any]) -> Any:
        """The answer; None: there was an error, or none."""
        self._history.acted.append(fact := Acted(queue, verb, about, self._now()))
        answer = None
        try:
            answer = self._carried_out(queue, action, members)
            fact.outcome = "ok"
        except QueueGone:
            fact.outcome = "gone"
        except StoreUnavailable:
            pass
        except (SqsError, DecantError) as error:
            fact.outcome = str(error)
        fact.at_ms = self._now()
        return answer

    def _carried_out(self, queue: str, action_name: str, members: dict[str, Any]) -> Any:
        action = ACTIONS[action_name]
        call = Call(self._service, action, members, _CONTEXT, JsonWire(action_name, b"", at_queue=False))
        if not action.is_on_queue:
            return action.run(call)
        return queues_of(self._service).serve(queue, lambda found: action.run(replace(call, found=found)))


class Owner:
    """Makes the queues, changes and deletes them, and makes and removes another group of their topic: now and then
    while another instance does the same or something else."""

    def __init__(self, world: World, number: int, random: Random) -> None:
        self._world, self._number, self._random = world, number, random
        self._left = world.plan.queue_calls
        self._acts = 0
        self._chores = CHORES + ROUGH_CHORES * world.plan.over_json

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(self._random.choice((60, 1_200))))
            chore = self._random.choice(self._chores)
            if self._random.random() < _BESIDE:
                other = self._random.choice((chore, self._random.choice(self._chores)))
                self._world.beside(partial(self._act, chore=other))
            self._act(service, chore)

    def _act(self, service: Service, chore: str) -> None:
        self._acts += 1
        names = self._world.queue_names
        queue = self._random.choice((names.own, names.own, names.other))
        caller = QueueCaller(self._world, service)
        if chore == "change":
            caller.change(queue, self._number * 1_000 + self._acts)
        elif chore == "tag":
            caller.tag(queue, f"{self._number}-{self._acts}")
        elif chore == "make":
            caller.make(queue)
        elif chore in ENDS:
            caller.end(queue, chore)
        else:
            self._act_over_json(service, chore, queue)

    def _act_over_json(self, service: Service, chore: str, group: str) -> None:
        try:
            topic = service.env.catalogue.current_topic(self._world.queue_names.own)
            if chore == "remove the topic":
                service.admin.topics.delete(topic)
            elif chore == "remove a group":
                service.admin.groups.delete(topic, group)
            else:
                service.admin.groups.put(topic, OTHERS, {})
                self._world.sleep(self._random.randrange(1_500))
                service.admin.groups.delete(topic, OTHERS)
        except DecantError:
            pass


class Client:
    """Sends, and receives and deletes some."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._left = 2 * world.plan.queue_calls

    def work(self, service: Service) -> None:
        random, names, caller = self._random, self._world.queue_names, QueueCaller(self._world, service)
        while self._left:
            self._left -= 1
            self._world.sleep(random.randrange(600))
            if random.random() < _SENDS:
                caller.send(self._body(), random.choice((0, 0, 0, 1)))
                continue
            queue = random.choice((names.own, names.other))
            for message in caller.receive(queue, random.choice((1, 10)), random.choice((0, 1, 3))):
                if random.random() < 0.7:
                    caller.settle(queue, message)

    def _body(self) -> str:
        if self._world.queue_names.is_fifo and self._random.random() < _REPEATS:
            return f"r-{self._random.randrange(3)}"
        return f"{self._name}-{self._left}.{self._random.randrange(3)}"


def empty_queues(world: World, service: Service) -> None:
    """Receives and deletes all messages, and so meets the records of queues that are gone."""
    caller = QueueCaller(world, service)
    for name in (world.queue_names.own, world.queue_names.other):
        while got := caller.receive(name, 10, _TAKEN_AT_LAST_S):
            for message in got:
                caller.settle(name, message)


def note_queues(store: PastStore, names: Names, over_json: bool, history: History) -> None:
    """Records the queues that exist in the end, and those that ever existed in part."""
    lives = [life for life in store.lives(keys.subscriptions()) if life[0].pk == keys.subscriptions()]
    for key, _, until, item in lives:
        if until == inf:
            since_ms = min(since for of, since, _, other in lives if of == key and other["id"] == item["id"])
            history.queues[key.sk] = QueueLeft(since_ms, item["owns_topic"], frozenset(item["tags"]))
    topics = [life for life in store.lives(keys.topic(names.own).pk) if life[0] == keys.topic(names.own)]
    instants = {since for _, since, _, _ in [*lives, *topics]} | {int(until) for *_, until, _ in lives if until < inf}
    for ms in [NEVER_MS] if over_json else [*sorted(instants), NEVER_MS]:
        history.torn += [f"{wrong} at {ms}" for wrong in _torn(store, names, ms, over_json)]
    for *_, until, topic in [] if over_json else topics:
        is_gone = until < inf and _then(store, keys.topic(names.own), int(until)) is None
        if is_gone and (listed := _listed(store, topic, int(until))):
            history.torn.append(f"the topic went with {listed} at {until}")


def _torn(store: PastStore, names: Names, ms: int, over_json: bool) -> Iterator[str]:
    topic = _then(store, keys.topic(names.own), ms)
    for name in (names.own, names.other):
        record = _then(store, keys.subscription(name), ms)
        group = _then(store, keys.group(topic["id"], name), ms) if topic else None
        is_whole = record and topic and group and (record["tid"], record["gid"]) == (topic["id"], group["id"])
        if bool(record or group) and not is_whole:
            yield f"of {name} there are {record}, {group} and {topic}"
        elif record and topic and group and SIZE in record["attributes"]:
            yield from _unlike(name, record, group, topic if name == names.own else None)
    is_left = topic and "for_sqs" in topic and not _listed(store, topic, ms)
    if topic and is_left and not over_json and not _had_others(store, topic):
        yield f"{names.own} is a topic without a group"


def _listed(store: PastStore, topic: Item, ms: int) -> list[str]:
    """The groups of the topic then."""
    return [item["sk"] for item in store.read_past(Range(keys.groups(topic["id"]), keys.FIRST, keys.LAST), ms)]


def _had_others(store: PastStore, topic: Item) -> bool:
    """Whether the last queue of the topic left it to a group of others."""
    return any(key.sk == OTHERS for key, *_ in store.lives(keys.groups(topic["id"])))


def _unlike(name: str, record: Item, group: Item, topic: Item | None) -> Iterator[str]:
    number = int(record["attributes"][SIZE]) - _SIZE_LEAST
    shown = {group["invisible_ms"] // SECOND_MS}
    if topic:
        shown.add(topic["retention_ms"] // SECOND_MS - _RETENTION_LEAST_S)
    if shown != {number}:
        yield f"of {name} a change has come in part: {number}, {sorted(shown)}"


def _then(store: PastStore, key: Key, ms: int) -> Item | None:
    items = store.read_past(Keys([key]), ms)
    return items[0] if items else None
