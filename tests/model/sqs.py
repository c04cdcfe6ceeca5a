"""The model of queues as clients of SQS see them: what each answer about a queue or a message has to be."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.model.cursor import EXPIRED, Cursor
from tests.model.model import Group, Json
from tests.sqs.client import Refused

ARN = "arn:aws:sqs:us-east-1:000000000000:"
URL = "http://sqs.test/000000000000/"
REDRIVE, ALLOW, POLICY = "RedrivePolicy", "RedriveAllowPolicy", "Policy"
VISIBILITY, RETENTION, DELAY = "VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds"
DEFAULTS = {"MaximumMessageSize": "1048576", "ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true"}
FIFO_DEFAULTS = {"ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
COUNTS = tuple(f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed"))
ID, SENT, SOURCE, ORIGIN, COUNT = "sqs:id", "sqs:sent", "sqs:source", "sqs:origin", "sqs:count"
REASON = "decant.reason"
MOVED = {ID, SENT, SOURCE, ORIGIN, COUNT, REASON}
"""The properties that moves add."""


def refused(code: str, message: str) -> Refused:
    """An error as clients see it. `code`: without prefix, as in the query protocol."""
    shapes = {
        "InvalidParameterValue": "InvalidParameterValueException",
        "MissingParameter": "MissingRequiredParameterException",
        "NonExistentQueue": "QueueDoesNotExist",
        "QueueAlreadyExists": "QueueNameExists",
    }
    status = {"ResourceNotFoundException": 404, "OverLimit": 403}.get(code, 400)
    return Refused(status, shapes.get(code, code), code, message)


def bad_value(value: object, name: str, reason: str) -> Refused:
    return refused("InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {reason}")


NO_QUEUE = refused("NonExistentQueue", "The specified queue does not exist.")


def uuid_of(message_id: str) -> str:
    """The `MessageId` of the message that has this id over JSON."""
    entry, queue, place = int(message_id[:16], 16), int(message_id[16:18], 16), message_id[18:]
    free = f"{entry:064b}{place.startswith('t'):b}{queue:07b}{int(place.removeprefix('t'), 16):050b}"
    return str(uuid.UUID(int=int(f"{free[:48]}1000{free[48:60]}10{free[60:]}", 2)))


def place_in(message_id: str) -> tuple[bool, int, int]:
    """Whether the message with this UUID has waited, its Decant queue, and its offset or its due time."""
    free = uuid.UUID(message_id).int & (1 << 62) - 1
    return bool(free >> 57 & 1), free >> 50 & 127, free & (1 << 50) - 1


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def md5_of(attributes: Json) -> str:
    parts = b""
    for name, each in sorted(attributes.items()):
        is_binary = "BinaryValue" in each
        value = base64.b64decode(each["BinaryValue"]) if is_binary else each["StringValue"].encode()
        for text in (name.encode(), each["DataType"].encode()):
            parts += len(text).to_bytes(4, "big") + text
        parts += bytes([1 + is_binary]) + len(value).to_bytes(4, "big") + value
    return md5(parts)


def bytes_of(body: str, attributes: Json) -> int:
    texts = [
        text for name, each in attributes.items() for text in (name, each["DataType"], each.get("StringValue", ""))
    ]
    binary = [len(base64.b64decode(each.get("BinaryValue", ""))) for each in attributes.values()]
    return len(body.encode()) + sum(len(text.encode()) for text in texts) + sum(binary)


def properties_of(attributes: Json) -> dict[str, str]:
    """What a message with these attributes has over JSON."""
    plain = {name: each for name, each in attributes.items() if name != "decant.tag"}
    types = {name: each["DataType"] for name, each in plain.items() if each["DataType"] != "String"}
    own = {name: each.get("StringValue") or each["BinaryValue"] for name, each in plain.items()}
    return own | ({"sqs:types": json.dumps(types, separators=(",", ":"))} if types else {})


def attributes_of(message: Json) -> Json:
    """The attributes of a message, from what it has over JSON."""
    types = json.loads(message["properties"].get("sqs:types", "{}"))
    shown: Json = {}
    hidden = {REASON} if SOURCE in message["properties"] else set()
    for name, text in message["properties"].items():
        type_ = types.get(name, "String")
        if not name.startswith("sqs:") and name not in hidden:
            shown[name] = {"DataType": type_, "BinaryValue" if type_.startswith("Binary") else "StringValue": text}
    if message["tag"] is not None:
        shown["decant.tag"] = {"DataType": "String", "StringValue": message["tag"]}
    return shown


def selected(attributes: Json, patterns: Iterable[str]) -> Json:
    """Those that a receive asks for."""
    if {"All", ".*", "*"} & {*patterns}:
        return attributes
    begins = tuple(pattern[:-2] for pattern in patterns if pattern.endswith(".*"))
    return {name: each for name, each in attributes.items() if name in patterns or name.startswith(begins)}


# -- topics -----------------------------------------------------------------------------------------------------------


@dataclass
class Pending:
    """A message on its way into the log. `id`: its UUID, if anybody has been told. `due_ms`: when it comes; None: it
    is there at once. `sent_at_ms`: as messages that have waited show it."""

    shown: Json
    id: str | None
    due_ms: int | None
    sent_at_ms: int
    queue: int | None = None

    def is_(self, message: Json) -> bool:
        if self.id is not None:
            return uuid_of(message["message_id"]) == self.id
        return all(message[name] == value for name, value in self.shown.items())


@dataclass
class SqsTopic:
    """`logs`: for each Decant queue its messages, as a look-up answers them. `lives_ms`: how long each lives, by queue
    and offset: a retention that was shorter for a while has counted for all that was there."""

    name: str
    id: int
    logs: list[list[Json]]
    retention_ms: int
    for_sqs: bool = True
    pending: list[Pending] = field(default_factory=list)
    delayed_since_ms: int | None = None
    """When the first message came that had to wait, be it for no time."""
    lives_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    dedup: dict[tuple[Any, ...], tuple[int, str, str]] = field(default_factory=dict)
    """When each deduplication id was first used, and for which message: its id, and its sequence number."""
    groups: dict[str, Group] = field(default_factory=dict)

    @property
    def has_delayed(self) -> bool:
        return self.delayed_since_ms is not None

    def let_wait(self, now: int) -> None:
        self.delayed_since_ms = now if self.delayed_since_ms is None else self.delayed_since_ms

    def meet(self, message: Json, pending: Pending, now: int) -> None:
        """A message that was on its way is in the log: as it was sent, not early, and in its place."""
        self.pending.remove(pending)
        log = self.logs[message["queue"]]
        waited = pending.due_ms is not None
        assert message == {
            **pending.shown,
            "message_id": message["message_id"],
            "topic": self.name,
            "queue": message["queue"] if pending.queue is None else pending.queue,
            "offset": len(log),
            "stored_at_ms": message["stored_at_ms"],
            **({"sent_at_ms": pending.sent_at_ms} if waited else {}),
        }
        assert (pending.due_ms or now) <= message["stored_at_ms"] <= now
        self.add(message)

    def add(self, message: Json) -> None:
        self.lives_ms[message["queue"], message["offset"]] = self.retention_ms
        self.logs[message["queue"]].append(message)

    def retain(self, retention_ms: int, now: int) -> None:
        """A shorter retention counts for all messages, a longer one for those that are stored from then on."""
        is_longer, self.retention_ms = retention_ms > self.retention_ms, retention_ms
        for (queue, offset), life_ms in self.lives_ms.items():
            is_new = is_longer and self.logs[queue][offset]["stored_at_ms"] >= now
            self.lives_ms[queue, offset] = retention_ms if is_new else min(life_ms, retention_ms)

    def has_expired(self, queue: int, offset: int, now: int) -> bool:
        stored_at_ms: int = self.logs[queue][offset]["stored_at_ms"]
        return stored_at_ms <= now - self.lives_ms[queue, offset]

    def due(self, now: int) -> list[Pending]:
        return [pending for pending in self.pending if (pending.due_ms or 0) <= now]


# -- queues -----------------------------------------------------------------------------------------------------------


@dataclass
class Queue:
    """`attributes`: those that the record keeps. `purges` counts."""

    name: str
    id: int
    topic: SqsTopic
    group: Group
    owns_topic: bool
    attributes: dict[str, str]
    tags: dict[str, str]
    created_at_ms: int
    changed_at_ms: int
    purges: int = 0
    first_at_ms: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """When an SQS client first received a message: by Decant queue, epoch and offset."""

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")

    @property
    def keeps_delay(self) -> bool:
        return self.owns_topic and not self.is_fifo

    @property
    def policy(self) -> tuple[str, int] | None:
        """The name of the dead-letter queue, and after how many receives messages move there."""
        dead = self.group.settings["dead_letters"]
        return dead and (dead, self.group.settings["max_attempts"])

    def number(self, name: str) -> int:
        return int(self.settable()[name])

    def settable(self) -> dict[str, str]:
        settings = self.group.settings
        shown = {
            **DEFAULTS,
            **(FIFO_DEFAULTS if self.is_fifo else {}),
            DELAY: str(settings["delay_ms"] // 1_000),
            **self.attributes,
            VISIBILITY: str(settings["invisible_ms"] // 1_000),
            RETENTION: str(self.topic.retention_ms // 1_000),
        }
        if self.attributes.get("KmsMasterKeyId"):
            shown["KmsDataKeyReusePeriodSeconds"] = "300"
        if self.is_fifo:
            shown["FifoQueue"] = "true"
        if self.policy:
            shown[REDRIVE] = policy_text(*self.policy)
        return shown

    def shown(self, now: int) -> dict[str, str]:
        """All attributes."""
        times = {"CreatedTimestamp": self.created_at_ms, "LastModifiedTimestamp": self.changed_at_ms}
        return {
            **self.settable(),
            "QueueArn": ARN + self.name,
            **{name: str(at_ms // 1_000) for name, at_ms in times.items()},
            **dict(zip(COUNTS, map(str, self.counts(now)), strict=True)),
        }

    def counts(self, now: int) -> tuple[int, int, int]:
        """Ready, not visible, and delayed."""
        ready = sum(self.ready_count(queue, now) for queue in range(len(self.group.cursors)))
        held = sum(hold.until_ms > now for cursor in self.group.cursors for hold in cursor.holds.values())
        coming = [each for each in self.topic.pending if each.sent_at_ms > (self.group.purged_at_ms or 0)]
        unripe = [offset for queue in range(len(self.group.cursors)) for offset in self._fresh(queue, now, False)]
        return ready, held, len(coming) + len(unripe)

    def ready_count(self, queue: int, now: int) -> int:
        cursor = self.group.cursors[queue]
        return len(cursor.due(now)) + len(cursor.aside) + len(self._fresh(queue, now, True))

    def _fresh(self, queue: int, now: int, is_ripe: bool) -> list[int]:
        """What was never taken, and lives."""
        offsets = range(self.group.cursors[queue].next, len(self.topic.logs[queue]))
        own = (offset for offset in offsets if not self.topic.has_expired(queue, offset, now))
        return [offset for offset in own if self.is_ripe(queue, offset, now) == is_ripe]

    def is_ripe(self, queue: int, offset: int, now: int) -> bool:
        stored_at_ms: int = self.topic.logs[queue][offset]["stored_at_ms"]
        return stored_at_ms + int(self.group.settings["delay_ms"]) <= now

    def in_turn(self, queue: int, now: int, want: int, max_attempts: int | None) -> list[int]:
        """What a receive can take here, in the order in which it does."""
        cursor, log = self.group.cursors[queue], self.topic.logs[queue]
        besides = {*cursor.doomed(now, max_attempts), *self.passed(queue, now)}
        besides |= {offset for offset in range(cursor.next, len(log)) if not self.is_ripe(queue, offset, now)}
        return cursor.in_turn(now, log, besides, want)

    def passed(self, queue: int, now: int) -> set[int]:
        """What is not delivered, since it was never taken and has expired, or was purged while it waited."""
        cursor, log = self.group.cursors[queue], self.topic.logs[queue]
        ahead = range(cursor.next, len(log))
        purged = self.group.unwanted(queue, log).intersection(ahead)
        return purged | {offset for offset in ahead if self.topic.has_expired(queue, offset, now)}

    # -- messages -----------------------------------------------------------------------------------------------------

    def received(self, message: Json, attempt: int, first_at_ms: int, request: Json) -> Json:
        """A message as a receive shows it, but for its handle."""
        attributes = selected(attributes_of(message), request.get("MessageAttributeNames", ()))
        wanted = {*request.get("AttributeNames", ()), *request.get("MessageSystemAttributeNames", ())}
        known = self._system_attributes(message, attempt, first_at_ms)
        system = {name: text for name, text in known.items() if text and {name, "All"} & wanted}
        return {
            "MessageId": uuid_of(message["properties"].get(ID, message["message_id"])),
            "MD5OfBody": md5(message["body"].encode()),
            "Body": message["body"],
            **({"Attributes": system} if system else {}),
            **({"MessageAttributes": attributes, "MD5OfMessageAttributes": md5_of(attributes)} if attributes else {}),
        }

    def _system_attributes(self, message: Json, attempt: int, first_at_ms: int) -> dict[str, str | None]:
        own = message["properties"]
        known: dict[str, str | None] = {
            "SenderId": "000000000000",
            "SentTimestamp": own.get(SENT, str(message.get("sent_at_ms", message["stored_at_ms"]))),
            "ApproximateReceiveCount": str(attempt + int(own.get(COUNT, 0))),
            "ApproximateFirstReceiveTimestamp": str(first_at_ms),
            "DeadLetterQueueSourceArn": ARN + own[SOURCE] if SOURCE in own else None,
            "MessageGroupId": own.get("sqs:group"),
            "AWSTraceHeader": own.get("sqs:trace"),
        }
        if self.is_fifo:
            known["MessageGroupId"] = message["key"] or uuid_of(message["message_id"])
            known["MessageDeduplicationId"] = own.get("sqs:dedup")
            known["SequenceNumber"] = sequence_number(message["queue"], message["offset"])
        return known


def sequence_number(queue: int, offset: int) -> str:
    return str(10**19 + 128 * offset + queue)


def policy_text(target: str, count: int) -> str:
    policy = {"deadLetterTargetArn": ARN + target, "maxReceiveCount": count}
    return json.dumps(policy, separators=(",", ":"))


def dead(message: Json, source: str, attempt: int, reason: str) -> Json:
    """What a message has over JSON, when its queue has given it up."""
    own = message["properties"]
    sent = {ID: message["message_id"], SENT: str(message.get("sent_at_ms", message["stored_at_ms"]))}
    count = str(attempt + int(own.get(COUNT, 0)))
    origin = f"{message['queue']}:{message['offset']}"
    about = {SOURCE: source, ORIGIN: origin, COUNT: count, **({REASON: reason} if reason else {})}
    kept = {name: text for name, text in own.items() if name != REASON}
    return {**content(message), "properties": {**sent, **kept, **about}}


def as_new(message: Json) -> Json:
    """What it has when a task has moved it."""
    kept = {name: text for name, text in message["properties"].items() if name not in MOVED}
    return {**content(message), "properties": kept}


def content(message: Json) -> Json:
    return {name: message[name] for name in ("body", "key", "tag", "properties")}


# -- everything -------------------------------------------------------------------------------------------------------


@dataclass
class World:
    topics: dict[str, SqsTopic] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    dying: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Messages that were given up in this step, and why: by queue name, Decant queue and offset."""

    def max_attempts(self, queue: Queue) -> int | None:
        """None: its messages never move, for now."""
        policy = queue.policy
        return policy[1] if policy and policy[0] in self.topics else None

    def doomed(self, queue: Queue, now: int) -> set[tuple[str, int, int]]:
        most = self.max_attempts(queue)
        places = enumerate(queue.group.cursors)
        return {(queue.name, number, offset) for number, cursor in places for offset in cursor.doomed(now, most)}

    def next_chance(self, queue: Queue, since: int, until: int) -> int | None:
        """The first instant from which a receive that waits can take something."""
        return next(
            (at for at in sorted({*self._instants(queue, since, until)}) if self.has_any(queue, at, since)), None
        )

    def _instants(self, queue: Queue, since: int, until: int) -> Iterator[int]:
        holds = [hold.until_ms for cursor in queue.group.cursors for hold in cursor.holds.values()]
        delay_ms = queue.group.settings["delay_ms"]
        ripe = [message["stored_at_ms"] + delay_ms for log in queue.topic.logs for message in log] if delay_ms else []
        due = [max(each.due_ms or 0, since) + delay_ms for each in queue.topic.pending]
        yield from (at for at in [since, *holds, *ripe, *due] if since <= at <= until)

    def has_any(self, queue: Queue, now: int, since: int) -> bool:
        """Whether a receive can take something that has looked for it from `since` on: what is due comes into the log
        when somebody looks, and there the group's delay begins."""
        most, purged_at_ms = self.max_attempts(queue), queue.group.purged_at_ms or 0
        delay_ms = queue.group.settings["delay_ms"]
        coming = [each for each in queue.topic.pending if each.sent_at_ms > purged_at_ms]
        if any(max(each.due_ms or 0, since) + delay_ms <= now for each in coming):
            return True
        return any(queue.in_turn(number, now, 10, most) for number in range(len(queue.group.cursors)))

    def explain(self, topic: SqsTopic, message: Json, now: int) -> Pending | None:
        """A message that has come into the topic since another queue gave it up, and is not there any more."""
        source = self.queues.get(message["properties"].get(SOURCE, ""))
        if source is None or source.policy is None or source.policy[0] != topic.name:
            return None
        number, offset = map(int, message["properties"][ORIGIN].split(":"))
        cursor, place = source.group.cursors[number], (source.name, number, offset)
        is_dead = place in self.dying or offset in cursor.doomed(now, self.max_attempts(source))
        if not is_dead:
            return None
        reason, attempt = self.dying.pop(place, EXPIRED), cursor.holds[offset].attempt
        bury(cursor, offset)
        topic.let_wait(now)
        shown = dead(source.topic.logs[number][offset], source.name, attempt, reason)
        found = Pending(shown, None, message["stored_at_ms"], message["sent_at_ms"])
        topic.pending.append(found)
        return found if found.is_(message) else None


def bury(cursor: Cursor, offset: int) -> None:
    """It leaves, with no letter."""
    del cursor.holds[offset]
