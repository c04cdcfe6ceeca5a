"""The leases of a consumer: when each is extended, and when it is let go. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from decant.messages import Message
from decant.settling import RECEIPTS_MAX, Verdict

EXTEND_AT = 0.6
"""The part of a lease after which it is extended."""
TOGETHER = 0.1
"""Leases of a queue that are due within this part of a lease are extended in one call."""


class Attempt(NamedTuple):
    """A pop. Its repeat returns those of its messages that are still leased, with their newest receipts."""

    id: str
    message_ids: frozenset[str]


class Lease:
    """A message that this process holds. All times are in seconds by the client's clock."""

    __slots__ = ("attempt", "due", "is_asked", "is_lost", "message", "since", "until", "verdict")

    def __init__(self, message: Message[Any], attempt: Attempt, since: float, until: float, due: float) -> None:
        self.message, self.attempt, self.since, self.until = message, attempt, since, until
        self.due: float | None = due
        """When it is to be extended. None: it is let go."""
        self.is_asked = False
        """A call is under way that extends it, or one was whose outcome is unknown: it may have a new receipt."""
        self.verdict: Verdict | None = None
        """The verdict on the message; it is sent as soon as the receipt is certain."""
        self.is_lost = False


class Leases:
    """All leases of a consumer, until each is settled or lost."""

    def __init__(self, lease_s: float, max_lease_s: float) -> None:
        self.lease_s, self._max_lease_s = lease_s, max_lease_s
        self._held: dict[Lease, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: Sequence[Message[Any]], attempt_id: str, asked: float, now: float) -> list[Lease]:
        """The messages of a pop. If an answer was lost, their leases began with an earlier try, but no earlier than
        `asked`."""
        attempt = Attempt(attempt_id, frozenset(message.id for message in messages))
        due = max(asked + self.lease_s * EXTEND_AT, now + self.lease_s * TOGETHER)
        leases = [Lease(message, attempt, now, now + self.lease_s, due) for message in messages]
        self._held |= dict.fromkeys(leases)
        return leases

    def next_s(self, now: float) -> float | None:
        """How long until there is something to do. None: nothing is held."""
        times = [lease.until if lease.due is None else lease.due for lease in self._held]
        return max(min(times) - now, 0.0) if times else None

    def take(self, now: float) -> list[Lease]:
        """The leases of the next call: those of one queue that are due, or will be soon."""
        due = [lease for lease in self._held if lease.due is not None and lease.due <= now + self.lease_s * TOGETHER]
        first = min(due, key=_due, default=None)
        if first is None or _due(first) > now:
            return []
        taken = [lease for lease in due if lease.message.queue == first.message.queue][:RECEIPTS_MAX]
        for lease in taken:
            lease.is_asked = True
        return taken

    def extended(self, taken: Sequence[Lease], answer: Mapping[str, Any], asked: float) -> list[Lease]:
        """The answer to the call. Returns the leases that are in doubt: lost, unless a call before has extended them
        whose answer is lost. Then a repeat of their pop finds their receipts."""
        extended = {each["receipt"]: each["new_receipt"] for each in answer["extended"]}
        doubtful = []
        for lease in taken:
            new = extended.get(lease.message.receipt)
            if new is None:
                doubtful.append(lease)
            else:
                self._renew(lease, new, asked)
        return doubtful

    def found(self, doubtful: Iterable[Lease], messages: Iterable[Message[Any]], asked: float) -> None:
        """The answer to the repeated pop of leases in doubt."""
        receipts = {message.id: message.receipt for message in messages}
        for lease in doubtful:
            if lease.message.id in receipts:
                self._renew(lease, receipts[lease.message.id], asked)
            else:
                self._lose(lease)

    def failed(self, taken: Iterable[Lease], now: float, pause_s: float, *, is_final: bool) -> None:
        """The call failed: it is repeated after the pause, unless that is in vain."""
        for lease in taken:
            lease.is_asked = not is_final
            lease.due = None if is_final else now + pause_s

    def lapsed(self, now: float) -> list[Lease]:
        """Takes the leases that are lost, and those that were let go and have ended."""
        ended = [lease for lease in self._held if lease.is_lost or (lease.due is None and lease.until <= now)]
        for lease in ended:
            self._lose(lease)
            del self._held[lease]
        return ended

    def judge(self, lease: Lease, verdict: Verdict) -> bool:
        """Whether the verdict can be sent. If not, it waits for the answer that says which receipt counts."""
        lease.verdict = verdict
        return not lease.is_asked

    def judged(self, taken: Iterable[Lease]) -> list[Lease]:
        """Those whose verdict can be sent now."""
        return [lease for lease in taken if lease.verdict and not lease.is_asked and lease in self._held]

    @property
    def is_any_judged(self) -> bool:
        """Whether a verdict waits."""
        return any(lease.verdict for lease in self._held)

    def drop(self, lease: Lease) -> None:
        """The message is settled, or is about to be."""
        self._held.pop(lease, None)

    def _renew(self, lease: Lease, receipt: str, asked: float) -> None:
        lease.is_asked = False
        lease.message.receipt = receipt
        lease.until = asked + self.lease_s
        is_long = asked - lease.since >= self._max_lease_s
        lease.due = None if is_long else asked + self.lease_s * EXTEND_AT

    def _lose(self, lease: Lease) -> None:
        lease.is_lost = lease.message.lost = True


def _due(lease: Lease) -> float:
    return lease.until if lease.due is None else lease.due
