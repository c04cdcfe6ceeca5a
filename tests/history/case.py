"""A history, indexed for its judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chalicelib.core.catalogue.group import BY_KEY
from tests.history import settle_by
from tests.history.facts import NEVER_MS, Delivered, Place, Reset, Settled
from tests.history.history import History

PURGE_APART_MS = 500
"""A purge allows for clocks that differ by this much. A message from a sender whose clock is ahead may come though it
was sent before the purge, and a delayed one from a sender whose clock is behind may not come though it was sent after
it."""

Message = tuple[str, Place]
"""A message as a group sees it: the group, and the place in the log."""


class Case:
    """A history, sorted for the checks."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.delivered: dict[Message, list[Delivered]] = defaultdict(list)
        self.settled: dict[Message, list[Settled]] = defaultdict(list)
        self.resets: dict[str, list[Reset]] = defaultdict(list)
        self.keys = {sent.body: sent.key for sent in history.sent}
        self.began = {sent.body: sent.began_ms for sent in history.sent}
        self.sent = {sent.body: sent for sent in history.sent}
        self.waiting = {sent.body for sent in history.sent if sent.due_ms}
        self.waiting.update(body for begun in history.begun for body in begun.bodies)
        """Messages that wait for their time or for a decision before they enter the log."""
        self.ids_seen: dict[str, int] = {}
        """When a message was first delivered to any group."""
        for delivery in history.delivered:
            self.ids_seen[delivery.message_id] = min(
                delivery.answered_ms, self.ids_seen.get(delivery.message_id, NEVER_MS)
            )
        for reset in history.resets:
            self.resets[reset.group].append(reset)
        for delivered in history.delivered:
            self.delivered[delivered.group, delivered.place].append(delivered)
        for settled in history.settled:
            self.settled[settled.group, settled.place].append(settled)
        self.extended_unheard = settle_by.extended_unheard(history)
        for (group, _), deliveries in self.delivered.items():
            begins_anew = group in self.resets or self.redriven_after(group, 0)
            deliveries.sort(key=lambda lease: (0 if begins_anew else lease.attempt, lease.at_ms))

    @property
    def skew_ms(self) -> int:
        return self.history.skew_ms

    @property
    def off_ms(self) -> int:
        return self.history.off_ms

    @property
    def purge_unsure_ms(self) -> int:
        """How long before and after a purge it is unsure whether messages come."""
        return max(0, self.skew_ms - PURGE_APART_MS)

    def leases(self) -> Iterator[tuple[Message, list[Delivered]]]:
        """For each message the leases it was delivered in, each as it was first seen: a repeated attempt shows one
        again, perhaps when the next is known already."""
        for message, deliveries in self.delivered.items():
            first: dict[str, Delivered] = {}
            for delivered in deliveries:
                first.setdefault(delivered.receipt, delivered)
            yield message, list(first.values())

    def wants(self, group: str, body: str) -> bool:
        rules = self.history.rules.get(group)
        return rules is None or rules.unwanted_key is None or self.keys.get(body) != rules.unwanted_key

    def is_behind(self, group: str, body: str, earlier: str) -> bool:
        """Whether the message waits for an earlier one of its queue."""
        rules = self.history.rules.get(group)
        if rules is None or not rules.ordered:
            return False
        key = self.keys.get(body)
        return rules.ordered != BY_KEY or (key is not None and key == self.keys.get(earlier))

    def is_lost(self, place: Place, by_ms: int) -> bool:
        """Whether its payload was gone by then: a pop may not know the message's key, though a cache or a late read
        shows it."""
        return self.history.lost.get(place, NEVER_MS) <= by_ms

    def redriven_after(self, group: str, ms: int) -> bool:
        return any(redrive.group == group and redrive.at_ms >= ms for redrive in self.history.redrives)

    def comes_back(self, group: str) -> bool:
        """Whether settled or dead messages may return."""
        return group in self.resets or self.redriven_after(group, 0)

    def sent_ms(self, place: Place) -> int:
        """When its produce began; it is stored later."""
        return self.began.get(self.history.log[place], 0)

    def expires_ms(self, place: Place) -> int:
        """The earliest time at which the message can have expired; a delayed one was stored when it was due."""
        if not self.history.retention_ms:
            return NEVER_MS
        sent = self.sent.get(self.history.log.get(place, ""))
        return (max(sent.began_ms, sent.due_ms) if sent else 0) + self.history.retention_ms

    def gone_ms(self, place: Place) -> int:
        """The earliest time at which a call may no longer show the message: its own time to live is over, or it is
        removed because it had expired."""
        return min(self.spent_ms(place), self.removed_ms(place))

    def removed_ms(self, place: Place) -> int:
        """The earliest time at which the message can be removed because it had expired."""
        return self.expires_ms(place) + self.history.expired_kept_ms

    def spent_ms(self, place: Place) -> int:
        """The earliest time at which the message's own time to live can have been over."""
        sent = self.sent.get(self.history.log.get(place, ""))
        return NEVER_MS if sent is None or sent.ttl_ms is None else max(sent.began_ms, sent.due_ms) + sent.ttl_ms

    def is_perhaps_purged(self, group: str, place: Place) -> bool:
        """Whether the message may have died before the last purge. Deaths after attempts without a known answer leave
        no trace, so only where attempts have no end it is certain that a message did not die."""
        purges = [purge for purge in self.history.purges if purge.group == group]
        if not purges or (rules := self.history.rules.get(group)) is None:
            return bool(purges)
        last_ms = max(purge.at_ms for purge in purges)
        buried = [settled for settled in self.settled.get((group, place), ()) if settled.verb == "bury"]
        is_buried = any(burial.outcome in ("ok", "unknown") and burial.began_ms <= last_ms for burial in buried)
        takes = max(len(self.history.delivered), len(self.history.pops))
        return is_buried or place in self.history.lost or rules.max_attempts <= takes

    def may_skip(self, reset: Reset, place: Place) -> bool:
        """Whether the message may lie before the place that the reset moved to. The times of sending and of the reset
        only bound it."""
        match reset.to:
            case "earliest":
                return False
            case (queue, offset):
                return place[0] == queue and place[1] < offset
            case int(instant):
                return self.sent_ms(place) < instant + self.off_ms
        waits = reset.to == "now" and self.history.log[place] in self.waiting
        return self.sent_ms(place) <= reset.at_ms + self.purge_unsure_ms * waits

    def renewed(self, group: str, place: Place) -> set[str]:
        """The receipts with which extends replaced others. A repeated extend returns them again."""
        settled = self.settled.get((group, place), ())
        return {extend.new_receipt for extend in settled if extend.new_receipt != extend.receipt}

    def popped(self) -> Iterator[tuple[Message, list[Delivered]]]:
        """These leases without those that an extend made of others."""
        for message, leases in self.leases():
            renewed = self.renewed(*message)
            yield message, [delivered for delivered in leases if delivered.receipt not in renewed]

    def reset_between(self, group: str, from_ms: int, to_ms: int) -> bool:
        return any(reset.at_ms >= from_ms and reset.began_ms <= to_ms for reset in self.resets.get(group, ()))

    def may_be_expired(self, group: str, place: Place) -> bool:
        """By the end of the drain."""
        drained_ms = self.history.drained_ms.get(group, 0)
        return min(self.expires_ms(place), self.spent_ms(place)) <= drained_ms + self.skew_ms

    def may_have_died_unseen(self, group: str, place: Place) -> bool:
        """Whether its dead letter may have been removed with the message when that expired."""
        if not self.history.retention_ms or not self.may_be_expired(group, place):
            return False
        rules = self.history.rules.get(group)
        is_buried = any(settled.verb == "bury" for settled in self.settled.get((group, place), ()))
        return is_buried or rules is None or rules.max_attempts <= len(self.history.delivered)

    def may_be_dead(self, group: str, place: Place) -> bool:
        is_dead = place in self.history.dead.get(group, {})
        return is_dead or self.is_perhaps_purged(group, place) or self.may_have_died_unseen(group, place)

    def made_by_ms(self, delivered: Delivered) -> int:
        """The latest time at which its lease can have been made: when the answer came, if the lease may have ended
        before the pop began by our clock."""
        is_short = delivered.until_ms - self.off_ms <= delivered.began_ms
        return max(delivered.at_ms, delivered.answered_ms) if is_short else delivered.at_ms
