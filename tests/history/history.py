"""A history: the calls, their answers, and the state in the end."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

from chalicelib.core.base.limits import SET_ASIDE_MAX
from tests.history.facts import (
    NEVER_MS,
    Acted,
    AlarmChange,
    Asked,
    Begun,
    Called,
    Cancelled,
    Checked,
    Decision,
    Delivered,
    Fact,
    Fetched,
    Look,
    Moved,
    Paused,
    Place,
    Purge,
    QueueLeft,
    Redrive,
    Replied,
    Reset,
    Resized,
    Sent,
    Settled,
    Shown,
    Tasks,
)

SKEW_MS = 500
OFF_MS = SKEW_MS // 2


@dataclass(slots=True)
class Rules:
    """The settings of a group."""

    max_attempts: int
    """The highest setting at any time."""
    max_in_flight: int
    unwanted_key: str | None = None
    """The key of messages that the group's filter skips."""
    ordered: bool | str = False
    delay_ms: int = 0
    """How long each message waits before the group takes it."""
    alarm_ready: int = 0
    """The number of ready messages that raises its alarm; 0: it has none."""
    settle_by: str = "receipt"
    """Whether its receipts name a lease, a delivery or a message."""
    least_attempts: int = 0
    """The fewest; 0: it never changed."""
    may_outlive: bool = False
    """Whether messages may be delivered more often than `max_attempts`: the topic for dead ones may be gone."""


@dataclass(slots=True)
class History:
    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    redrives: list[Redrive] = field(default_factory=list)
    purges: list[Purge] = field(default_factory=list)
    cancels: list[Cancelled] = field(default_factory=list)
    pops: list[Asked] = field(default_factory=list)
    pauses: list[Paused] = field(default_factory=list)
    skew_ms: int = SKEW_MS
    """Two callers' clocks differ by at most this."""
    off_ms: int = OFF_MS
    """And each by at most this from the clock of the history: an instant that one caller names reaches another so much
    early or late. A duration that starts with a caller's action may be off twice as much."""
    dedup_ms: int = 300_000
    """How long a dedup id is valid."""
    rate: int = 0
    """How many messages a second a group takes; 0: any number."""
    rated_until_ms: dict[str, int] = field(default_factory=dict)
    retention_ms: int = 0
    """How long messages last; 0: longer than the history."""
    expired_kept_ms: int = 0
    """How long expired messages surely stay."""
    looks: list[Look] = field(default_factory=list)
    drained_ms: dict[str, int] = field(default_factory=dict)
    """Group -> when the drain had ended."""
    zones: dict[int, str] = field(default_factory=dict)
    """The zone of each queue that is in one."""
    rules: dict[str, Rules] = field(default_factory=dict)
    """By group; a group without rules has none to break."""
    log: dict[Place, str] = field(default_factory=dict)
    """The messages in the log in the end, or before they expired."""
    stored_ms: dict[Place, int] = field(default_factory=dict)
    """When each was stored."""
    appended_ms: dict[Place, int] = field(default_factory=dict)
    """When each came into the log, where the store remembers that: a delayed message may be appended late."""
    ids: dict[Place, str] = field(default_factory=dict)
    """Their ids; empty: nobody looked."""
    ends: dict[int, int] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    """Cursors that were, at some time, behind the end of their log."""
    overfull: list[str] = field(default_factory=list)
    """Produces into queues that their callers knew to be full, and refusals of others."""
    crowded: list[str] = field(default_factory=list)
    """Claims after which more messages were in flight than allowed."""
    aside_max: int = SET_ASIDE_MAX
    """How many messages of a queue a group ordered by key may set aside."""
    overlooked: list[str] = field(default_factory=list)
    """Queues with more messages set aside than allowed."""
    unappointed: list[str] = field(default_factory=list)
    """Items that waited for a sweep without an appointment."""
    drained: dict[str, set[Place]] = field(default_factory=dict)
    """Group -> the messages delivered in the final drain, after all faults had ceased."""
    left: dict[str, int] = field(default_factory=dict)
    """Group -> the messages that its progress counts after that as ready, in flight or retrying."""
    dead: dict[str, dict[Place, int]] = field(default_factory=dict)
    """Group -> its dead letters in the end, each with its attempts."""
    counted: dict[str, int] = field(default_factory=dict)
    """Group -> how many dead letters its cursors count in the end."""
    reasons: dict[str, dict[Place, str]] = field(default_factory=dict)
    """Group -> why its dead letters are dead."""
    dead_ms: dict[str, dict[Place, int]] = field(default_factory=dict)
    """Group -> when they died."""
    moved: list[Moved] = field(default_factory=list)
    """Dead messages that have moved into a topic; these are in `dead` too, and are `counted`."""
    letters: dict[str, set[Place]] = field(default_factory=dict)
    """Group -> its dead letters, where dead messages move."""
    graves: dict[str, int] = field(default_factory=dict)
    """The incarnations of that topic, and by when each was gone, as far as its remover heard."""
    grave: str = ""
    """The one that stands in the end."""
    exhumed: list[str] = field(default_factory=list)
    """The ids of the messages that came out of it."""
    tasks: Tasks = field(default_factory=Tasks)
    lost: dict[Place, int] = field(default_factory=dict)
    """Messages whose payloads the simulation removed, and when."""
    stale_ms: int | None = None
    """Reads show at least what was stored this long ago; None: nobody knows."""
    are_reads_torn: bool = False
    """A read may show a part of one write."""
    are_all_answered: bool = False
    """Every request to the store was answered in time, except reads of payloads: callers got every message that a pop
    leased and could read."""
    are_others_well: bool = False
    """Whether one log throttles all requests, and nothing else goes wrong."""
    well_from_ms: int = NEVER_MS
    """From then on every request to the store was answered, and reads of payloads too."""
    called: list[Called] = field(default_factory=list)
    concurrency: int = 0
    """The calls that may be under way at once."""
    resized: list[Resized] = field(default_factory=list)
    draining: list[int] = field(default_factory=list)
    """The queues that still drain when all was settled for a while."""
    fetched: list[Fetched] = field(default_factory=list)
    replied: list[Replied] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    open_at_last: set[str] | None = None
    """The transactions that checks returned when all was quiet; None: nobody asked."""
    last_check_ms: int = NEVER_MS
    alarms_changed: dict[str, list[AlarmChange]] = field(default_factory=dict)
    """Group -> each change of its alarm, in their order."""
    alarms_told: dict[str, list[AlarmChange]] = field(default_factory=dict)
    """Group -> the messages in the topic of alarms, in their order."""
    alarms_quiet: dict[str, str | None] = field(default_factory=dict)
    """Group -> the state of its alarm when all was quiet, before the drain."""
    shown: list[Shown] = field(default_factory=list)
    look_ups: list[str] = field(default_factory=list)
    """Answers about single messages that do not match what is stored."""
    given_back: set[tuple[str, Place]] = field(default_factory=set)
    """Group and place of messages that some pop has leased and could not read."""
    acted: list[Acted] = field(default_factory=list)
    queues: dict[str, QueueLeft] = field(default_factory=dict)
    """The queues of SQS clients that stand in the end, by name."""
    torn: list[str] = field(default_factory=list)
    """Parts of such queues without the others, and changes that came in part."""
    defects: list[str] = field(default_factory=list)
    """Exceptions that no caller should see."""

    def copy(self) -> History:
        """An independent copy."""
        return History(**{attribute.name: _copied(getattr(self, attribute.name)) for attribute in fields(self)})

    def begin(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            getattr(self, LISTS[type(fact)]).append(fact)

    def end(self, facts: Sequence[Fact]) -> None:
        """The outcomes of facts that had begun: they are here already."""


LISTS = {
    Sent: "sent",
    Delivered: "delivered",
    Settled: "settled",
    Reset: "resets",
    Cancelled: "cancels",
    Asked: "pops",
    Begun: "begun",
    Decision: "decisions",
    Checked: "checked",
    Fetched: "fetched",
    Replied: "replied",
    Resized: "resized",
    Acted: "acted",
}
"""Where a history has its facts of each kind."""


def _copied(value: Any) -> Any:
    return [copy(fact) for fact in value] if isinstance(value, list) else copy(value)
