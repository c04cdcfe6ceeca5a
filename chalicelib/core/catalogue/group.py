"""A consumer group: its settings, and the writes that create, change and delete it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from typing import Any

from chalicelib.core.base import limits
from chalicelib.core.base.fields import (
    Label,
    check,
    defaults,
    flag,
    instant,
    integer,
    nullable,
    one_of,
    optional,
    string,
)
from chalicelib.core.base.records import record
from chalicelib.core.catalogue import push, settings
from chalicelib.core.catalogue.group_forms import (
    BACKOFF,
    DEAD_LETTERS,
    RATE,
    Alarm,
    Backoff,
    DeadLetterTopic,
    Filter,
    FilterForms,
    Rate,
    Thresholds,
    parse_alarm,
    parse_backoff,
    parse_dead_letters,
    parse_filter,
    parse_rate,
)
from chalicelib.core.catalogue.push import Push, PushSecret, PushTarget
from chalicelib.core.catalogue.settings import AsGiven
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Equals, Item, Key, RemoveItem, Set, Write

CLUSTERING, BROADCAST = "clustering", "broadcast"

EARLIEST, LATEST = "earliest", "latest"
NOW = "now"
"""A target of resets only: the ends of all queues, without messages that were sent before and still wait."""

BY_RECEIPT, BY_DELIVERY, BY_MESSAGE = "receipt", "delivery", "message"

BY_KEY = "key"


ENDLESS = 2**31 - 1
"""The `max_attempts` of a group with endless attempts, null to clients. No attempt reaches this number, so an older
release never takes an attempt for the last."""
_MAX_ATTEMPTS = nullable(integer(1, limits.ATTEMPTS_MAX, default=limits.ATTEMPTS_DEFAULT, examples=[5]))


def _max_attempts(value: object, label: Label) -> int:
    given: int | None = check(_MAX_ATTEMPTS, value, label)
    return ENDLESS if given is None else given


@record
class GroupSettings:
    """The settings of a group. A setting that is not given gets its default when the group is created, and keeps its
    value when the group is changed.

    start: Where the group begins: `earliest`: with the first message that can be read. `latest`: with messages stored
        from now on. An instant, in milliseconds since the Unix epoch: with messages stored at or after it. Applies at
        creation only.
    mode: `clustering`: the consumers of the group share its messages. `broadcast`: every `consumer_id` gets every
        message. A new consumer begins at the group's `start`; the group drops a consumer that has not popped for 7
        days. The totals are sums over the consumers; before the first pop, they show where the first consumer will
        begin. `reset` moves all consumers; dead letters are shared. Cannot be changed once the group exists.
    invisible_ms: How long a lease lasts when a pop does not say, in milliseconds. 0: messages can be delivered again at
        once. A `push` does not use it: it leases messages for as long as a call may take.
    max_attempts: How often a message is delivered before it goes to the dead letters. An explicit null: without limit;
        only `bury` makes a message a dead letter.
    dead_letters: Null: a message that the group gives up becomes a dead letter of the group. With a `topic`: the
        message moves to that topic instead. It keeps its body, key, tag and properties, and gets the properties
        `sqs:id` and `sqs:sent` (its first id, and when it was first sent), `sqs:source` (the group's name),
        `sqs:origin` (its queue and offset), `sqs:count` (how often it was delivered) and `decant.reason`. The topic
        must exist and must not be the group's own. If it has been deleted, the group redelivers messages as if
        `max_attempts` were null, and `bury` is a nack.
    max_in_flight: How many messages of one queue may be leased at a time.
    backoff_ms: How long a message waits after its n-th attempt was nacked without a `delay_ms`: the n-th of a list,
        whose last one repeats, or a wait that grows. A message whose lease expired comes back at once.
    paused: Whether pops deliver no messages. Acks in a pop still count.
    ordered: `true`: a queue delivers no more messages until those of the last pop are settled or due again, so later
        messages do not overtake a failed one. `"key"`: the same for each key by itself. A message waits for earlier
        messages of its key; keys do not wait for each other, and a message without a key does not wait. A pop takes as
        many messages as it can of the key that has been ready longest, then of the next key. It skips at most
        {SET_ASIDE_MAX} waiting messages of a queue. Cannot be changed once the group exists.
    delay_ms: How long each message waits after it was stored before its first delivery, in milliseconds. A change
        applies at once, also to stored messages.
    settle_by: How long a receipt is valid. `receipt`: until another pop takes the message, or an extend returns a new
        receipt. `delivery`: through every extend, until the lease ends. `message`: until a reset, also after later
        pops.
    rate_limit: How many messages a second the group receives at most, over all queues and consumers, including
        redeliveries. All messages of a second may come at once. Once set, it can be changed but not removed."""

    _: KW_ONLY
    start: str | int = optional(one_of({"type": "string", "enum": [EARLIEST, LATEST]}, instant(), default=EARLIEST))
    mode: str = optional(string(enum=[CLUSTERING, BROADCAST], default=CLUSTERING))
    invisible_ms: int = optional(
        integer(0, limits.INVISIBLE_MS_MAX, default=limits.INVISIBLE_MS_DEFAULT, examples=[60000])
    )
    max_attempts: int = optional(_MAX_ATTEMPTS, _max_attempts)
    dead_letters: DeadLetterTopic | None = optional(DEAD_LETTERS, parse_dead_letters)
    max_in_flight: int = optional(integer(1, limits.IN_FLIGHT_MAX, default=limits.IN_FLIGHT_DEFAULT))
    backoff_ms: Backoff = optional(BACKOFF, parse_backoff)
    paused: bool = optional(flag(default=False))
    ordered: bool | str = optional(one_of(flag(), {"type": "string", "enum": [BY_KEY]}, default=False))
    delay_ms: int = optional(integer(most=limits.GROUP_DELAY_MS_MAX, default=0))
    settle_by: str = optional(string(enum=[BY_RECEIPT, BY_DELIVERY, BY_MESSAGE], default=BY_RECEIPT))
    rate_limit: Rate | None = optional(RATE, parse_rate)
    filter: Filter | None = optional(FilterForms, parse_filter)
    alarm: Alarm | None = optional(Thresholds, parse_alarm)
    push: Push | None = optional(PushTarget, push.parse)


DEFAULTS = defaults(GroupSettings)
FIXED = ("mode", "ordered")
"""Settings that cannot be changed after creation, since existing leases depend on them."""

_TEXTS: dict[str, type[AsGiven]] = {
    "backoff_ms": Backoff,
    "rate_limit": Rate,
    "filter": Filter,
    "alarm": Alarm,
    "push": Push,
    "dead_letters": DeadLetterTopic,
}
"""Settings stored as JSON text."""


@record
class Group(GroupSettings):
    """`id`: the incarnation, part of its cursors' keys. `starts`: where new cursors begin. `version` counts changes.
    `secrets`: those that sign pushed messages, the oldest first. `purged_at_ms`: new cursors do not deliver messages
    that were sent by then and waited. `purges`: counts resets to `now`. `last_purge_ms`: the `purged_at_ms` of the last
    one, even if another reset has undone it since; 0: there was none."""

    topic_id: str
    name: str
    id: str
    starts: list[int]
    created_at_ms: int
    version: int = 0
    secrets: tuple[PushSecret, ...] = ()
    purged_at_ms: int | None = None
    purges: int = 0
    last_purge_ms: int = 0

    @classmethod
    def of(cls, topic_id: str, name: str, item: Item) -> Group:
        given = {field: item[field] for field in DEFAULTS if field in item}
        given |= {field: kind.of(given[field]) for field, kind in _TEXTS.items() if field in given}
        about = (item["id"], item["starts"], item["created_at_ms"], item["version"])
        secrets = push.of_stored(item.get("secrets", ()))
        stored_ms = item.get("purged_at_ms") or 0
        purged = (stored_ms if stored_ms > 0 else None, item.get("purges", 0), abs(stored_ms))
        return cls(topic_id, name, *about, secrets, *purged, **given)

    def as_json(self) -> dict[str, Any]:
        values = {field: getattr(self, field) for field in DEFAULTS}
        given = {field: values[field].given or None for field in _TEXTS if values[field] is not None}
        attempts = {"max_attempts": None if self.max_attempts == ENDLESS else self.max_attempts}
        times = {"created_at_ms": self.created_at_ms, "purged_at_ms": self.purged_at_ms}
        return {"group": self.name, **values, **given, **attempts, **times}

    @cached_property
    def key(self) -> Key:
        return keys.group(self.topic_id, self.name)

    @cached_property
    def window_key(self) -> Key:
        return keys.window(self.topic_id, self.name, self.id)

    @cached_property
    def alarm_key(self) -> Key:
        return keys.alarm(self.topic_id, self.name, self.id)

    @cached_property
    def is_by_key(self) -> bool:
        """Whether the group is ordered by key."""
        return self.ordered == BY_KEY

    @cached_property
    def is_broadcast(self) -> bool:
        """Whether every consumer gets every message and has its own cursors."""
        return self.mode == BROADCAST

    @property
    def has_alarm(self) -> bool:
        return self.alarm is not None and bool(self.alarm.given)

    @cached_property
    def is_pushed(self) -> bool:
        """Whether the queue calls the consumer and refuses pops."""
        return self.push is not None and bool(self.push.given)

    @property
    def dead_topic(self) -> str | None:
        """The name of the topic that dead messages move to. None: they become letters."""
        return self.dead_letters.topic if self.dead_letters else None

    @property
    def dead_source(self) -> str:
        """The source that moved messages name."""
        return (self.dead_letters.source if self.dead_letters else None) or self.name

    def cursor_key(self, queue: int, consumer: str = "") -> Key:
        return keys.cursor(self.topic_id, self.name, self.id, queue, consumer)

    def start_of(self, queue: int) -> int:
        """The start of a queue. One added after the group was created is read from its beginning."""
        return self.starts[queue] if queue < len(self.starts) else 0


def create(group: Group) -> list[Write]:
    """Creates the group and lists it in the topic's directory, unless one of this name exists: then the rejected write
    returns it. A transaction."""
    made = {field: getattr(group, field) for field in ("starts", "created_at_ms", "version", "purged_at_ms", *DEFAULTS)}
    listing = Write(keys.directory(group.topic_id, group.name), (), (Set(("listed",), group.id),))
    return [settings.create(group.key, group.id, made), listing]


def change(group: Group, given: Mapping[str, Any]) -> Write:
    """Changes the given settings. `start` counts at creation only."""
    new = {field: value for field, value in given.items() if field != "start"}
    return settings.change(group.key, group.id, group.version, new)


def stands(group: Group) -> Write:
    """Changes nothing. Send it in a transaction that demands that the group exists."""
    return Write(group.key, (Equals(("id",), group.id),), (Set(("id",), group.id),))


def purge(group: Group, purged_at_ms: int) -> Write:
    """Records a purge of messages sent by then, unless a setting has changed since."""
    new = {"purged_at_ms": purged_at_ms, "purges": group.purges + 1}
    return settings.change(group.key, group.id, group.version, new)


def lift_purge(group: Group) -> Write:
    """Keeps the instant as a negative number, so that the next purge gets a later one whatever its clock says."""
    return settings.change(group.key, group.id, group.version, {"purged_at_ms": -group.last_purge_ms})


def keep_secrets(group: Group, secrets: Sequence[PushSecret]) -> Write:
    """Replaces the secrets, unless a setting or a secret has changed since."""
    return settings.change(group.key, group.id, group.version, {"secrets": push.as_stored(secrets)})


def remove(group: Group) -> list[Write]:
    """Deletes the group and its directory item. A transaction."""
    unlisting = Write(keys.directory(group.topic_id, group.name), (), (RemoveItem(),))
    return [settings.remove(group.key, group.id), unlisting]
