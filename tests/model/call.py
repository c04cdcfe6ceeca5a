"""The model of requests and of transactions: the stored state of each, and the answers to their callers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.values import Json

FETCHED_MS = 3_600_000
"""How long after the deadline a reply can be fetched."""
WAIT_MS_MAX = 25_000
PAUSE_MS_MIN, PAUSE_MS_MAX, PAUSE_PART = 5, 200, 10
"""A waiting call gets a reply that another instance stored after a tenth of the time since the request, within these
bounds."""

UNDECIDED, COMMITTED, ROLLED_BACK = "undecided", "committed", "rolled back"
POLL_MS_MAX = 1_000
"""How late a waiting check sees transactions of other callers, at most."""


@dataclass
class Call:
    """A request. `topic_id` names one incarnation of the topic. `reply`: as a caller gets it, or None. `stored_at_ms`,
    `stored_by`: when it was stored, and through which instance."""

    id: str
    topic: str
    topic_id: int
    asked_at_ms: int
    timeout_ms: int
    reply: Json | None = None
    stored_at_ms: int = 0
    stored_by: int = -1
    has_timed_out: bool = False

    @property
    def reply_by_ms(self) -> int:
        return self.asked_at_ms + self.timeout_ms

    def refuses(self, content: Json, now: int) -> tuple[int, str] | None:
        """Why a reply with this content is refused at this instant. None: it is stored, or was before."""
        if self._has(content):
            return None
        if self.has_timed_out or now >= self.reply_by_ms:
            return 410, "RequestExpired"
        return None if self.reply is None else (409, "AlreadyReplied")

    def answer(self, content: Json, now: int, behind_ms: int, instance: int) -> None:
        """Stores a reply that is not refused, unless it was before. `behind_ms`: as much is the replier's clock."""
        if self.reply is None:
            self.reply = {"properties": {}, **content, "replied_at_ms": now - behind_ms}
            self.stored_at_ms, self.stored_by = now, instance

    def late_ms(self, heard_of_ms: int) -> int:
        """How late a caller may hear of a reply that another instance stored then."""
        return max(PAUSE_MS_MIN, min((heard_of_ms - self.asked_at_ms) // PAUSE_PART, PAUSE_MS_MAX))

    def _has(self, content: Json) -> bool:
        kept = {**(self.reply or {})}
        kept.pop("replied_at_ms", None)
        return kept == {"properties": {}, **content}


@dataclass
class Half:
    """A transaction. `messages`: as a check returns them. `places`: what a commit has answered, once there was one."""

    id: str
    topic_id: int
    messages: list[Json]
    created_at_ms: int
    check_after_ms: int
    rollback_at_ms: int
    check_at_ms: int
    checks: int = 0
    state: str = UNDECIDED
    decided_at_ms: int | None = None
    places: list[Json] = field(default_factory=list)

    def is_open(self, now: int) -> bool:
        return self.state == UNDECIDED and now < self.rollback_at_ms

    def is_due(self, now: int) -> bool:
        return self.is_open(now) and self.check_at_ms <= now

    def decide(self, wanted: str, now: int) -> None:
        """The given decision; but after its rollback time a transaction is rolled back, perhaps by an earlier sweep."""
        is_open = self.is_open(now)
        self.state = wanted if is_open else ROLLED_BACK
        self.decided_at_ms = now if is_open else None

    def may_be_decided_at(self, at_ms: int, now: int) -> bool:
        """Whether an answer may say so. From the first one on it is known."""
        if self.decided_at_ms is None and self.rollback_at_ms <= at_ms <= now:
            self.decided_at_ms = at_ms
        return self.decided_at_ms == at_ms

    def due_between(self, began_ms: int, end_ms: int) -> int | None:
        """When a check that waits meanwhile would have found it due first."""
        at_ms = max(began_ms, self.check_at_ms)
        over_ms = min(self.rollback_at_ms, end_ms + 1 if self.decided_at_ms is None else self.decided_at_ms)
        return at_ms if at_ms < over_ms else None

    def as_json(self, topic: str) -> Json:
        return {
            "topic": topic,
            "transaction_id": self.id,
            "messages": self.messages,
            "checks": self.checks,
            "created_at_ms": self.created_at_ms,
            "rollback_at_ms": self.rollback_at_ms,
        }


def as_shown(sent: Json) -> Json:
    """A half message as a check returns it."""
    return {"key": None, "tag": None, "properties": {}, **sent}
