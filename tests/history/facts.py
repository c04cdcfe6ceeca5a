"""Events as callers saw them: facts for the checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

NEVER_MS = 10**15

LATE_MS = 3_200
"""A late request to the store is carried out within this time."""

Place = tuple[int, int]
"""Queue and offset."""

Taken = tuple[str, Place, int, int]
"""A message that a pop took, and that each repeat shows: group, place, when its attempt id was first used, and the
attempt of the message."""


@dataclass(slots=True)
class Sent:
    """A produce of one message. `place` None: it waits until `due_ms`; or it failed; or, if `is_unknown`, its answer
    was lost."""

    body: str
    key: str | None
    began_ms: int
    place: Place | None = None
    is_unknown: bool = False
    dedup_id: str | None = None
    """Another message with the same one may be stored in its place."""
    due_ms: int = 0
    """When it should come at the earliest."""
    message_id: str | None = None
    """The id in the answer. None: the produce failed, or its outcome is unknown."""
    told_due_ms: int = 0
    """The due time in the answer. 0: the message is not delayed."""
    ttl_ms: int | None = None
    at_ms: int = NEVER_MS
    """When it was answered or given up; never, if its caller died."""
    is_refused: bool = False
    """Its queue was full."""
    zone: str | None = None
    """The zone that it asked for."""


@dataclass(slots=True)
class Cancelled:
    """A cancel of a delayed message. `outcome`: "ok", "AlreadyDelivered", "MessageNotFound" or "unknown"."""

    message_id: str
    began_ms: int
    at_ms: int = NEVER_MS
    outcome: str = "unknown"


@dataclass(slots=True)
class Delivered:
    group: str
    place: Place
    body: str
    message_id: str
    attempt: int
    began_ms: int
    """When the pop was called; the lease began no earlier."""
    at_ms: int
    """When the pop answered, or when the lease ended if that was before: it was held then."""
    until_ms: int
    receipt: str
    answered_ms: int = 0
    """When the pop answered; the lease began no later."""
    number: int = 0
    """Its place among the messages of its queue in the answer."""
    asked_ms: int = 0
    """The earliest end of the lease that the pop asks for; 0: the group decides."""
    first_ms: int = 0
    """When a pop with this attempt id was first called; without one, when this was."""
    correlation_id: str = ""
    """The correlation id of a request."""
    reply_by_ms: int = 0
    zone: str | None = None
    """The zone that the pop named."""
    told_first_ms: int = 0
    """The time of the first delivery, as the pop's answer says. 0: the pop did not ask."""

    @property
    def taken(self) -> Taken:
        return self.group, self.place, self.first_ms, self.attempt


@dataclass(slots=True)
class Shown:
    """A message that a caller read without leasing it."""

    place: Place
    body: str
    message_id: str


@dataclass(slots=True)
class Asked:
    """A pop, with any outcome."""

    group: str
    began_ms: int
    lease_ms: int
    at_ms: int = NEVER_MS
    """When it was answered or failed, or when its caller died."""
    is_empty: bool = False
    """It was answered without messages, and named no reason, such as a pause or a cap."""
    is_short: bool = False
    """With `fill` it was answered with fewer messages than it asked for, and named no reason."""
    surplus: int = 0
    """How many messages its answer has too many."""
    wait_ms: int = 0
    """How long it should wait for messages."""
    is_troubled: bool = True
    """It got no answer, or one of its requests to the store failed."""
    zone: str | None = None
    """The zone that it named."""
    attempt_id: str | None = None
    receipts: list[str] | None = None
    """In its answer, if it has an `attempt_id`. None: it was not answered."""


@dataclass(slots=True)
class Begun:
    """A transaction. `id` None: it was not answered, and perhaps not stored."""

    bodies: list[str]
    check_after_ms: int
    rollback_after_ms: int
    began_ms: int
    at_ms: int = NEVER_MS
    id: str | None = None


@dataclass(slots=True)
class Decision:
    """A commit or a rollback. `outcome`: "ok", "TransactionEnded", "TransactionNotFound" or "unknown"."""

    id: str
    verb: str
    began_ms: int
    at_ms: int = NEVER_MS
    outcome: str = "unknown"
    places: list[tuple[str | None, int, int | None]] = field(default_factory=list)
    """The id, queue and offset of each message of a commit."""


@dataclass(slots=True)
class Checked:
    """A transaction that a check returned, for the time of this number."""

    id: str
    bodies: list[str]
    number: int
    began_ms: int
    at_ms: int


@dataclass(slots=True)
class Fetched:
    """A call that asks for a reply: the request itself, or a later one. `id` None: its caller never learned it.
    `outcome`: "reply", "waiting", "ReplyTimeout", "RequestNotFound" or "unknown"."""

    id: str | None
    body: str
    """The body of the request."""
    began_ms: int
    at_ms: int = NEVER_MS
    outcome: str = "unknown"
    reply: str | None = None


@dataclass(slots=True)
class Replied:
    """A sent reply. `outcome`: "ok", "AlreadyReplied", "RequestExpired" or "unknown"."""

    id: str
    reply: str
    began_ms: int
    reply_by_ms: int
    at_ms: int = NEVER_MS
    outcome: str = "unknown"


@dataclass(slots=True)
class Resized:
    """A request to change the number of queues."""

    queues: int
    began_ms: int


@dataclass(slots=True)
class Called:
    """A call of the consumer of a pushed group, with the messages at these places."""

    bodies: dict[Place, str]
    began_ms: int
    at_ms: int = NEVER_MS
    """When it was answered, or given up."""
    succeeded: set[Place] = field(default_factory=set)


@dataclass(slots=True)
class Paused:
    """A request to pause a group, or to resume it."""

    group: str
    is_paused: bool
    began_ms: int
    at_ms: int = NEVER_MS
    is_answered: bool = False


@dataclass(slots=True)
class Settled:
    """An ack, nack or extend of one receipt. `outcome`: "ok", "LeaseLost", "ReceiptInvalid" or "unknown"."""

    verb: str
    group: str
    place: Place
    receipt: str
    began_ms: int
    at_ms: int
    outcome: str
    until_ms: int = 0
    """Until when the message stays away: extended, or waiting for its retry."""
    new_receipt: str = ""
    asked_ms: int = 0
    """For an extend: the earliest end that it asks for."""
    is_troubled: bool = False
    """One of its requests to the store failed; or nobody counts failures."""


@dataclass(slots=True)
class Reset:
    group: str
    began_ms: int
    at_ms: int
    """When it was answered; never, if it was not: it may be carried out in part, or later."""
    to: str | int | Place = "earliest"
    """"earliest", "latest", "now", an instant in ms, or one queue and its offset."""


@dataclass(slots=True)
class Redrive:
    """A redrive of all dead letters of a group; perhaps carried out, if it was not answered. `is_whole`: no letter was
    left after it."""

    group: str
    began_ms: int
    at_ms: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """A dead message as it was stored in the incarnation of the topic that it moved to, and when."""

    group: str
    place: Place
    topic_id: str
    message_id: str
    at_ms: int
    attempts: int
    reason: str


@dataclass(slots=True)
class Tasks:
    """The work of move tasks, by the bodies of messages: how many were `dead`, and of these how many are `left`, or
    went `back` to a topic; how often each was `seen` by the group that gets back what its own topic has, when first,
    and when that group was last drained. `moved`: the destination of each task, and how many messages it has counted.
    `cancelled`: how many it had when its cancel was answered."""

    dead: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    back: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    drained_ms: dict[str, int] = field(default_factory=dict)
    last_drain_ms: int = 0
    moved: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Purge:
    """A purge of all dead letters of a group; perhaps carried out, if it was not answered."""

    group: str
    began_ms: int
    at_ms: int = NEVER_MS


@dataclass(frozen=True, slots=True, order=True)
class AlarmChange:
    """The alarm of a group was raised or cleared."""

    at_ms: int
    state: str


@dataclass(frozen=True, slots=True)
class Look:
    """The messages found by one reading of the whole log."""

    at_ms: int
    places: set[Place]


@dataclass(slots=True)
class Acted:
    """A call of a client of SQS to a queue. `verb`: "make", "change", "tag", "purge", "delete", or, about one message,
    "send", "receive" and "settle". `about`: the body, or the key of the tag. `outcome`: "ok", "gone", when there was no
    such queue, "unknown", or the name of another error."""

    queue: str
    verb: str
    about: str
    began_ms: int
    at_ms: int = NEVER_MS
    """When it was answered or given up; never, if its caller died."""
    outcome: str = "unknown"


@dataclass(frozen=True, slots=True)
class QueueLeft:
    """A queue that stands in the end, and since when. `owns_topic`: what is sent is sent to it."""

    since_ms: int
    owns_topic: bool
    tags: frozenset[str]


Fact = (
    Sent
    | Delivered
    | Settled
    | Reset
    | Cancelled
    | Asked
    | Begun
    | Decision
    | Checked
    | Fetched
    | Replied
    | Resized
    | Acted
)
