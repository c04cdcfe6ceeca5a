"""Judges a history. Each check is a sentence about the product, and says what breaks it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from chalicelib.core.base import base64url
from chalicelib.core.base.limits import DEAD_MS
from chalicelib.core.catalogue.group import BY_KEY
from chalicelib.core.cursors.cursor_writes import WITNESS_MS, WITNESSES_MAX
from tests.history import (
    alarms,
    deaths,
    expiry,
    firsts,
    lateness,
    moves,
    naming,
    outages,
    pops,
    purges,
    pushes,
    queues,
    requests,
    transactions,
    zones,
)
from tests.history.facts import NEVER_MS, Delivered, History, Place, Reset, Sent, Settled

SKEW_MS = 500
"""Two callers' clocks differ by at most this."""
OFF_MS = SKEW_MS // 2
"""And each by at most this from the clock of the history: an instant that one caller has named comes to another so much
early or late. One that is counted from when a caller did something, twice as much."""

Message = tuple[str, Place]
"""A message as a group sees it: the group, and the place in the log."""


class Case:
    """A history, sorted by what the checks ask for."""

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
        """What waits before it enters the log, for its time or for a decision."""
        self.ids_seen: dict[str, int] = {}
        """When a message was first delivered to anybody."""
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
        self.extended_unheard = pops.extended_unheard(history)
        for (group, _), deliveries in self.delivered.items():
            begins_anew = group in self.resets or self.redriven_after(group, 0)
            deliveries.sort(key=lambda lease: (0 if begins_anew else lease.attempt, lease.at_ms))

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
        """Whether its payload was gone by then: a pop may not know its key, though a cache or a late read shows it."""
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
        """The earliest that the message can have expired; what waited was stored when it was due."""
        if not self.history.retention_ms:
            return NEVER_MS
        sent = self.sent.get(self.history.log.get(place, ""))
        return (max(sent.began_ms, sent.due_ms) if sent else 0) + self.history.retention_ms

    def gone_ms(self, place: Place) -> int:
        """The earliest that a call may not show the message any more: its own time to live is over, or it is removed
        because it had expired."""
        return min(self.spent_ms(place), self.removed_ms(place))

    def removed_ms(self, place: Place) -> int:
        """The earliest that the message can be removed because it had expired."""
        return self.expires_ms(place) + self.history.expired_kept_ms

    def spent_ms(self, place: Place) -> int:
        """The earliest that the message's own time to live can have been over."""
        sent = self.sent.get(self.history.log.get(place, ""))
        return NEVER_MS if sent is None or sent.ttl_ms is None else max(sent.began_ms, sent.due_ms) + sent.ttl_ms

    def is_perhaps_purged(self, group: str, place: Place) -> bool:
        """Whether the message may have died before what was dead was forgotten. Deaths after attempts that no caller
        heard of leave no trace, so only where attempts have no end it is known that a message did not die."""
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
                return self.sent_ms(place) < instant + OFF_MS
        waits = reset.to == "now" and self.history.log[place] in self.waiting
        return self.sent_ms(place) <= reset.at_ms + purges.unsure_ms(SKEW_MS) * waits

    def renewed(self, group: str, place: Place) -> set[str]:
        """The receipts that extends gave in place of others: shown to who asks again."""
        settled = self.settled.get((group, place), ())
        return {extend.new_receipt for extend in settled if extend.new_receipt != extend.receipt}

    def popped(self) -> Iterator[tuple[Message, list[Delivered]]]:
        """These leases without those that an extend made of others."""
        for message, leases in self.leases():
            renewed = self.renewed(*message)
            yield message, [delivered for delivered in leases if delivered.receipt not in renewed]

    def reset_between(self, group: str, from_ms: int, to_ms: int) -> bool:
        return any(reset.at_ms >= from_ms and reset.began_ms <= to_ms for reset in self.resets.get(group, ()))


def violations(history: History) -> list[str]:
    case = Case(history)
    return [f"{check.__name__.strip('_')}: {violation}" for check in CHECKS for violation in check(case)]


def _no_caller_meets_a_defect(case: Case) -> Iterator[str]:
    yield from case.history.defects


def _all_is_answered_where_the_store_answers(case: Case) -> Iterator[str]:
    yield from outages.all_is_answered_where_the_store_answers(case.history)


def _one_log_that_throttles_fails_no_call(case: Case) -> Iterator[str]:
    yield from outages.one_log_that_throttles_fails_no_call(case.history)


def _offsets_are_dense(case: Case) -> Iterator[str]:
    for queue, end in case.history.ends.items():
        held = {offset for of, offset in case.history.log if of == queue}
        if held != set(range(end)):
            yield f"queue {queue} ends at {end} and holds {sorted(held)}"


def _cursors_stay_within_the_log(case: Case) -> Iterator[str]:
    """A message that is taken before it is there would first come when its lease has run out."""
    yield from case.history.passed


def _acknowledged_messages_are_stored(case: Case) -> Iterator[str]:
    ids = case.history.ids
    for sent in case.history.sent:
        if sent.place is None:
            continue
        body = case.history.log.get(sent.place)
        if body != sent.body and not (body in case.sent and _may_stand_for(case.sent[body], sent)):
            yield f"{sent.body} was stored at {sent.place}, where now lies {body}"
        elif ids and sent.message_id and ids[sent.place] != sent.message_id:
            yield f"{sent.body} was stored as {sent.message_id}, and is {ids[sent.place]} now"


def _may_stand_for(stored: Sent, sent: Sent) -> bool:
    return sent.dedup_id is not None and stored.dedup_id == sent.dedup_id and stored.began_ms <= sent.at_ms


def _a_dedup_id_is_stored_once(case: Case) -> Iterator[str]:
    """Two messages with one dedup id are in the log only if the second was sent so late that the id was free again."""
    stored = defaultdict(list)
    for body in case.history.log.values():
        if body in case.sent and (dedup_id := case.sent[body].dedup_id) is not None:
            stored[dedup_id].append(case.sent[body])
    for dedup_id, several in stored.items():
        for first, second in pairwise(sorted(several, key=_ended_ms)):
            if not _is_free_again(case, [first, second]):
                yield f"{dedup_id} is in the log as {first.body} and as {second.body}"


def _ended_ms(sent: Sent) -> int:
    return min(sent.at_ms, sent.began_ms + _CALL_MS_MAX)


def _is_free_again(case: Case, several: list[Sent]) -> bool:
    """Whether a dedup id used by all of these may have stood first for one message and then for another."""
    lasted_ms = max(map(_ended_ms, several)) - min(sent.began_ms for sent in several)
    return lasted_ms + SKEW_MS >= case.history.dedup_ms


def _a_repeat_gets_the_same_answer(case: Case) -> Iterator[str]:
    """While a dedup id is valid, all its users get the same id, queue and offset, and the same due time if the message
    is delayed."""
    users = defaultdict(list)
    for sent in case.history.sent:
        if sent.dedup_id is not None:
            users[sent.dedup_id].append(sent)
    for dedup_id, several in users.items():
        told = {
            (message.message_id, message.place, message.told_due_ms)
            for message in several
            if message.message_id is not None
        }
        if len(told) > 1 and not _is_free_again(case, several):
            yield f"{dedup_id} was told to be {sorted(told, key=str)}"


def _look_ups_match_the_log(case: Case) -> Iterator[str]:
    """Messages are shown as they lie in the log, and found by their ids and keys. When all is quiet, none waits."""
    yield from case.history.look_ups
    for shown in case.history.shown:
        place, ids = shown.place, case.history.ids
        if case.history.log.get(place) != shown.body or (ids and ids.get(place) != shown.message_id):
            lies = f"{case.history.log.get(place)} as {ids.get(place)}"
            yield f"{shown.body} was shown at {place} as {shown.message_id}, where lies {lies}"


def _a_delayed_message_comes_once_or_is_cancelled(case: Case) -> Iterator[str]:
    """Once a delivered message has expired and is removed, nobody knows of it any more."""
    there = set(case.history.ids.values())
    gone_ms = {message_id: case.removed_ms(place) - SKEW_MS for place, message_id in case.history.ids.items()}
    judged = [
        cancel
        for cancel in case.history.cancels
        if cancel.outcome != "MessageNotFound" or cancel.at_ms < gone_ms.get(cancel.message_id, NEVER_MS)
    ]
    for message_id in {sent.message_id for sent in case.history.sent if sent.message_id and sent.told_due_ms}:
        told = [cancel.outcome for cancel in judged if cancel.message_id == message_id]
        if message_id in there and {"ok", "MessageNotFound"} & set(told):
            yield f"{message_id} was delivered, and cancelling it was answered {told}"
        if message_id not in there and "AlreadyDelivered" in told:
            yield f"{message_id} was not delivered, and cancelling it was answered {told}"
        if message_id not in there and not {"ok", "unknown"} & set(told):
            yield f"{message_id} was to be delivered and never was; cancelling it was answered {told}"
        if told.count("ok") > 1:
            yield f"{message_id} was cancelled twice"
    for cancel in judged:
        known = case.ids_seen.get(cancel.message_id, NEVER_MS)
        if cancel.began_ms > known and cancel.outcome not in ("AlreadyDelivered", "unknown"):
            yield f"{cancel.message_id} came at {known}, and cancelling it was answered {cancel.outcome} later"


def _no_message_comes_before_it_is_due(case: Case) -> Iterator[str]:
    for delivered in case.history.delivered:
        due_ms = case.sent[delivered.body].due_ms if delivered.body in case.sent else 0
        if delivered.answered_ms + OFF_MS < due_ms:
            yield f"{delivered.group} got {delivered.body} at {delivered.answered_ms}, due at {due_ms}"


def _no_message_is_stored_twice_or_unsent(case: Case) -> Iterator[str]:
    known = {sent.body: sent for sent in case.history.sent}
    for body, count in Counter(case.history.log.values()).items():
        if body not in known:
            yield f"{body} is in the log and was never sent"
        elif count > 1:
            yield f"{body} is {count} times in the log"
        elif known[body].place is None and known[body].message_id is None and not known[body].is_unknown:
            yield f"{body} is in the log although its produce failed"


def _keys_keep_their_order(case: Case) -> Iterator[str]:
    """Messages of a key lie in one queue, those of one producer in the order in which they were acknowledged. Where the
    number of queues changes, they lie in one queue for each number, and in order in each queue. A promotion that sees a
    part of a commit delivers this part first."""
    split = {body for begun in case.history.begun for body in begun.bodies if case.history.are_reads_torn}
    counts = {resized.queues for resized in case.history.resized}
    by_producer: dict[str, list[Place]] = defaultdict(list)
    queues: dict[str, set[int]] = defaultdict(set)
    for sent in case.history.sent:
        is_stored = sent.place is not None and case.history.log.get(sent.place) == sent.body
        if sent.key is not None and sent.place is not None and is_stored and sent.body not in split:
            queue = sent.place[0] if counts else "all"
            by_producer[f"{sent.body.split('-')[0]} {sent.key} in queue {queue}"].append(sent.place)
    for (queue, _), body in case.history.log.items():
        if key := case.keys.get(body):
            queues[key].add(queue)
    for producer, places in by_producer.items():
        if places != sorted(places):
            yield f"{producer} lies at {places}"
    for key, spread in queues.items():
        if len(spread) > 1 + len(counts):
            yield f"{key} lies in the queues {sorted(spread)}"


def _an_answer_keeps_the_order_of_a_queue(case: Case) -> Iterator[str]:
    """New messages in one answer have ascending offsets in each queue, unless there is a reset: a pop that meets lost
    messages claims once more. In a group ordered by key, all of a key do."""
    last: dict[tuple[int, str | int | None], int] = {}
    for delivered in case.history.delivered:
        if delivered.number == 0:
            last = {}
        queue, offset = delivered.place
        rules = case.history.rules.get(delivered.group)
        is_by_key = rules is not None and rules.ordered == BY_KEY
        key = case.keys.get(delivered.body) or offset
        place = (queue, key if is_by_key else None)
        if delivered.attempt == 1 or is_by_key:
            is_reset = case.reset_between(delivered.group, delivered.began_ms, delivered.answered_ms)
            if offset <= last.get(place, -1) and not is_reset:
                answer = f"the answer of {delivered.answered_ms}"
                yield f"{delivered.group} got {delivered.place} after offset {last[place]} in {answer}"
            last[place] = offset


def _deliveries_are_what_is_stored(case: Case) -> Iterator[str]:
    ids: dict[Place, str] = {}
    for delivered in case.history.delivered:
        body = case.history.log.get(delivered.place)
        if body != delivered.body:
            yield f"{delivered.group} got {delivered.body} at {delivered.place}, where lies {body}"
        if ids.setdefault(delivered.place, delivered.message_id) != delivered.message_id:
            yield f"{delivered.place} had the ids {ids[delivered.place]} and {delivered.message_id}"


def _no_message_is_lost(case: Case) -> Iterator[str]:
    """Every message in the log that a group wants was acked, became a dead letter, or is delivered in the final drain.
    A message that a reset makes ready again counts as new: no earlier ack settles it."""
    for group, drained in case.history.drained.items():
        wanted = {place for place, body in case.history.log.items() if case.wants(group, body)}
        for place in sorted(wanted - drained - case.history.dead.get(group, {}).keys()):
            resets = case.resets.get(group, ())
            since = max((reset.began_ms for reset in resets if _surely_returns(case, reset, place)), default=0)
            acks = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "ack"]
            is_settled = any(naming.may_have_acked(case, ack) and ack.at_ms >= since for ack in acks)
            if is_settled or case.is_perhaps_purged(group, place) or _may_be_expired(case, group, place):
                continue
            if not any(reset.at_ms >= since and case.may_skip(reset, place) for reset in resets):
                yield f"{group} never gets {place}; its acks were {[ack.outcome for ack in acks]}, new from {since}"


def _may_be_expired(case: Case, group: str, place: Place) -> bool:
    """By the end of the drain."""
    return min(case.expires_ms(place), case.spent_ms(place)) <= case.history.drained_ms.get(group, 0) + SKEW_MS


def _may_have_died_unseen(case: Case, group: str, place: Place) -> bool:
    """Whether its dead letter may have been removed with it when it expired."""
    if not case.history.retention_ms or not _may_be_expired(case, group, place):
        return False
    rules = case.history.rules.get(group)
    is_buried = any(settled.verb == "bury" for settled in case.settled.get((group, place), ()))
    return is_buried or rules is None or rules.max_attempts <= len(case.history.delivered)


def _unexpired_messages_stay(case: Case) -> Iterator[str]:
    yield from expiry.unexpired_messages_stay(case.history, case.expires_ms, SKEW_MS)


def _expired_messages_are_not_delivered(case: Case) -> Iterator[str]:
    yield from expiry.expired_messages_are_not_delivered(case.history, SKEW_MS)


def _no_message_outlives_its_ttl(case: Case) -> Iterator[str]:
    """Counted from when it was stored, for a delayed message from when it came into the log."""
    for delivered in case.history.delivered:
        sent, stored_ms = case.sent.get(delivered.body), case.history.stored_ms.get(delivered.place)
        if sent and sent.ttl_ms is not None and stored_ms is not None:
            until_ms = (stored_ms if sent.due_ms else min(stored_ms, sent.at_ms)) + sent.ttl_ms
            if until_ms + SKEW_MS < delivered.began_ms:
                yield f"{delivered.group} got {delivered.place} at {delivered.began_ms}, which lived until {until_ms}"


def _a_drained_group_has_nothing_left(case: Case) -> Iterator[str]:
    """What it was not given is settled too, be it expired or unwanted."""
    for group, left in case.history.left.items():
        if left:
            yield f"{group} is drained, and counts {left} messages that it has still to get"


def _purged_dead_letters_are_gone(case: Case) -> Iterator[str]:
    for purge in case.history.purges:
        if case.comes_back(purge.group) or purge.at_ms - purge.began_ms > DEAD_MS:
            continue  # it removes letters while there is time, and says how many
        for place in case.history.dead.get(purge.group, ()):
            burials = [settled for settled in case.settled.get((purge.group, place), ()) if settled.verb == "bury"]
            was_dead = any(burial.outcome == "ok" and burial.at_ms < purge.began_ms for burial in burials)
            is_letter = not moves.had_moved(case.history, purge.group, place, NEVER_MS)
            if purge.at_ms < NEVER_MS and was_dead and is_letter:
                yield f"{purge.group} {place} was dead when all was purged at {purge.began_ms}, and is dead still"


def _surely_returns(case: Case, reset: Reset, place: Place) -> bool:
    """An answered one, to before the message."""
    is_elsewhere = isinstance(reset.to, tuple) and reset.to[0] != place[0]
    is_done = reset.at_ms < _FOR_EVER_MS and reset.to not in ("latest", "now") and not is_elsewhere
    return is_done and not case.may_skip(reset, place)


def _nothing_sent_before_a_purge_comes_after_it(case: Case) -> Iterator[str]:
    yield from purges.nothing_sent_before_a_purge_comes_after_it(case.history, SKEW_MS)


def _a_filter_holds_back_unwanted_messages(case: Case) -> Iterator[str]:
    """A message that has lost its payload cannot be filtered."""
    for delivered in case.history.delivered:
        is_wanted = case.wants(delivered.group, delivered.body)
        if not is_wanted and not case.is_lost(delivered.place, delivered.at_ms):
            yield f"{delivered.group} got {delivered.body} at {delivered.place}, which it does not want"


def _an_ordered_queue_waits_for_unsettled_messages(case: Case) -> Iterator[str]:
    """Nothing is delivered past a message, of its key where keys have an order each, that was neither acked, dead, nor
    in the same answer. Messages that have lost their payloads have no key. A repeated attempt shows once more what it
    holds, though others have taken a part meanwhile (seed 1578), or it was extended and the rest given back."""
    for delivered in (lease for _, leases in case.popped() for lease in leases):
        rules = case.history.rules.get(delivered.group)
        if rules is None or not rules.ordered or case.comes_back(delivered.group):
            continue
        has_keys, at_ms = rules.ordered == BY_KEY, delivered.at_ms
        if delivered.receipt in case.extended_unheard or (has_keys and case.is_lost(delivered.place, at_ms)):
            continue
        for place, body in case.history.log.items():
            is_before = place[0] == delivered.place[0] and place[1] < delivered.place[1]
            is_before = is_before and not (has_keys and case.is_lost(place, at_ms))
            is_before = is_before and case.is_behind(delivered.group, delivered.body, body)
            if is_before and case.wants(delivered.group, body) and not _is_done(case, delivered, place):
                yield f"{delivered.group} got {delivered.place} at {at_ms}, when {place} was not settled"


def _is_done(case: Case, delivered: Delivered, place: Place) -> bool:
    """Whether this message, with a lower offset, blocked no other."""
    group, answered_ms = delivered.group, max(delivered.at_ms, delivered.answered_ms)
    if place in case.history.dead.get(group, {}) or case.is_perhaps_purged(group, place):
        return True
    acks = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "ack"]
    if any(ack.outcome in ("ok", "unknown") and ack.began_ms <= answered_ms for ack in acks):
        return True
    if min(case.expires_ms(place), case.spent_ms(place)) <= answered_ms + SKEW_MS or _may_have_died_unseen(
        case, group, place
    ):
        return True
    same = (delivered.began_ms, delivered.answered_ms)
    return any((delivery.began_ms, delivery.answered_ms) == same for delivery in case.delivered.get((group, place), ()))


def _a_group_takes_nothing_before_its_delay_is_over(case: Case) -> Iterator[str]:
    for delivered in case.history.delivered:
        rules = case.history.rules.get(delivered.group)
        if rules and delivered.answered_ms + SKEW_MS < case.began.get(delivered.body, 0) + rules.delay_ms:
            yield f"{delivered.group} got {delivered.place} at {delivered.answered_ms}, before it was to take it"


def _no_more_is_set_aside_than_allowed(case: Case) -> Iterator[str]:
    yield from case.history.overlooked


def _two_leases_never_live_at_once(case: Case) -> Iterator[str]:
    """A message comes again only after its lease has run out, after the delay of a nack, or after a reset."""
    for (group, place), leases in case.popped():
        for first, second in pairwise(leases):
            if naming.is_shown_again(case, first, second):
                continue
            end = _end_of_lease(case, first, second)
            is_early = second.at_ms + OFF_MS < end and not _may_be_reversed(case, first, second)
            is_early = is_early and not _may_be_redriven_beside(case, first, second)
            began_ms = min(first.began_ms, second.began_ms)  # the pop that answered last may have been the first
            if is_early and not case.reset_between(group, began_ms, second.at_ms + SKEW_MS):
                yield f"{group} {place}: away until {end}, and delivered in {second.began_ms}..{second.at_ms}"


def _may_be_reversed(case: Case, first: Delivered, second: Delivered) -> bool:
    """Where attempts start over, the pop that answered last of two overlapping ones may have been the first."""
    made_by_ms = _made_by_ms(first)
    is_overlapping = second.began_ms <= made_by_ms and second.attempt < first.attempt
    return is_overlapping and _end_of_lease(case, second, first) <= made_by_ms + OFF_MS


def _may_be_redriven_beside(case: Case, first: Delivered, second: Delivered) -> bool:
    """A reset makes a message ready whose dead letter stays, so that it can be redriven while the message is leased."""
    is_reset = any(reset.began_ms <= second.at_ms for reset in case.resets.get(second.group, ()))
    return is_reset and any(
        redrive.group == second.group and redrive.began_ms <= second.at_ms and redrive.at_ms >= first.began_ms
        for redrive in case.history.redrives
    )


def _a_lease_lasts_as_long_as_asked(case: Case) -> Iterator[str]:
    renewed = {settled.new_receipt for settled in case.history.settled}  # by a holder that asked for another length
    for delivered in case.history.delivered:
        if naming.is_extended(case, delivered):
            continue
        asked_ms = case.extended_unheard.get(delivered.receipt, delivered.asked_ms)
        if delivered.group in case.resets:  # it may be a new lease of the same pop
            asked_ms = min(asked_ms, delivered.asked_ms)
        if delivered.until_ms + OFF_MS < asked_ms and delivered.receipt not in renewed:
            asked = f"asked for it until {asked_ms}"
            yield f"{delivered.group} got {delivered.place} until {delivered.until_ms}, and {asked}"
    for extend in case.history.settled:
        if extend.outcome == "ok" and extend.until_ms + OFF_MS < extend.asked_ms:
            yield f"{extend.group} extended {extend.place} to {extend.until_ms}, and asked for {extend.asked_ms}"


def _end_of_lease(case: Case, delivered: Delivered, next_lease: Delivered) -> int:
    """The earliest time the message may return by the clock of its holder: its deadline, that of an extension, or the
    delay of a nack."""
    if naming.names_more(case.history, delivered.group):
        return naming.away_until(case, delivered, next_lease, OFF_MS)
    end, receipts = delivered.until_ms, {delivered.receipt}
    for settled in case.settled.get((delivered.group, delivered.place), ()):
        if settled.receipt not in receipts or settled.verb == "ack":
            continue
        if not naming.may_have_counted(case.history, settled):
            continue
        if settled.outcome == "unknown":
            return 0
        if settled.verb in ("bury", "nack") and case.redriven_after(delivered.group, settled.began_ms):
            return 0  # a nack may have been its last
        moved_ms = settled.until_ms - OFF_MS * (settled.verb == "nack")
        end = moved_ms if settled.outcome == "ok" else min(end, moved_ms)
        receipts |= {settled.new_receipt}
    return end


def _acked_messages_stay_acked(case: Case) -> Iterator[str]:
    for (group, place), settled in case.settled.items():
        dead = case.history.dead.get(group, {})
        for ack in settled:
            if ack.verb != "ack" or ack.outcome != "ok" or _may_come_after(case, group, ack.began_ms):
                continue
            for later in case.delivered.get((group, place), ()):
                if later.began_ms > ack.at_ms:
                    yield f"{group} {place} was acked at {ack.at_ms} and delivered at {later.began_ms}"
            is_late = moves.had_moved(case.history, group, place, ack.at_ms)
            if place in dead and group not in case.resets and not is_late:
                yield f"{group} {place} was acked at {ack.at_ms} and is dead"


def _may_come_after(case: Case, group: str, ms: int) -> bool:
    """A reset makes what is acked ready; and what died before a reset, and was acked after it, can be redriven."""
    is_letter_left = group in case.resets and case.redriven_after(group, ms)
    return is_letter_left or case.reset_between(group, ms, _FOR_EVER_MS)


def _stale_receipts_are_refused(case: Case) -> Iterator[str]:
    """Once a later lease of a message was seen, an earlier receipt settles nothing, be it from a pop or an extend,
    unless receipts name messages. An ack by the receipt that has acked it is confirmed, though a redrive has brought it
    back since; one of what another has acked may be, when so many leases were lost since that the receipt's is
    forgotten."""
    for (group, place), settlements in case.settled.items():
        if naming.names_messages(case.history, group):
            continue
        deliveries = case.delivered.get((group, place), [])
        for settled in settlements:
            if settled.outcome != "ok" or naming.confirms_what_moved(case, group, settled):
                continue
            if _repeats_an_ack(case, settled, settlements):
                continue
            given = [
                max(delivered.at_ms, delivered.answered_ms)
                for delivered in deliveries
                if delivered.receipt == settled.receipt
            ]
            given += [other.at_ms for other in settlements if other.new_receipt == settled.receipt]
            since = max(given, default=settled.began_ms)
            older = [delivered for delivered in deliveries if delivered.began_ms <= since]
            newer = [
                delivered
                for delivered in deliveries
                if delivered.began_ms > since
                and delivered.receipt != settled.receipt
                and _made_by_ms(delivered) < settled.began_ms
                and not any(naming.is_shown_again(case, lease, delivered) for lease in older)
            ]
            if (newer or _is_spent(case, settled, settlements)) and not _is_forgotten(case, settled, since):
                yield f"{group} {place}: {settled.verb} at {settled.began_ms} by a receipt of {since} was accepted"


def _repeats_an_ack(case: Case, settled: Settled, settlements: Sequence[Settled]) -> bool:
    """One without an answer may have been applied; then only a redrive can have brought the message back."""
    acks = [other for other in settlements if (other.verb, other.receipt) == ("ack", settled.receipt)]
    is_redriven = any(redrive.group == settled.group for redrive in case.history.redrives)
    return settled.verb == "ack" and any(
        (other.outcome == "ok" and other.at_ms <= settled.began_ms)
        or (other.outcome == "unknown" and other.began_ms < settled.began_ms and is_redriven)
        for other in acks
    )


def _made_by_ms(delivered: Delivered) -> int:
    """The latest time its lease can have been made: when the answer came, if the lease may have ended before the pop
    began by our clock."""
    is_short = delivered.until_ms - OFF_MS <= delivered.began_ms
    return max(delivered.at_ms, delivered.answered_ms) if is_short else delivered.at_ms


def _is_forgotten(case: Case, ack: Settled, since_ms: int) -> bool:
    """Whether its message may be settled already, and its lease ended long ago, or so many leases of the queue were
    given up since: lost to the next pop, or replaced by an extend or a nack."""
    own = case.delivered.get((ack.group, ack.place), ())
    others = [settled for settled in case.settled[ack.group, ack.place] if settled.verb == "ack" and settled is not ack]
    is_acked = any(other.outcome in ("ok", "unknown") and other.began_ms <= ack.at_ms for other in others)
    over_ms = min([case.spent_ms(ack.place), *(lease.reply_by_ms for lease in own if lease.reply_by_ms)])
    is_over = ack.at_ms + SKEW_MS >= over_ms
    if ack.verb != "ack" or not (is_acked or is_over or case.is_perhaps_purged(ack.group, ack.place)):
        return False
    ends = [lease.until_ms for lease in own if lease.receipt == ack.receipt]
    if naming.names_more(case.history, ack.group) or ack.began_ms > max(ends, default=NEVER_MS) + WITNESS_MS:
        return True
    return len(_given_up(case, ack, since_ms)) >= WITNESSES_MAX


def _given_up(case: Case, ack: Settled, since_ms: int) -> set[object]:
    """The leases of the queue that were given up since, or may have been. Those that nobody heard of: one of each pop
    that failed, one for each attempt that is missing between two, and one for each extend that was not answered."""
    given_up: set[object] = {
        pop.began_ms
        for pop in case.history.pops
        if pop.group == ack.group and pop.is_troubled and since_ms < pop.at_ms and pop.began_ms <= ack.at_ms
    }
    for (group, place), deliveries in case.delivered.items():
        if (group, place[0]) != (ack.group, ack.place[0]):
            continue
        for lost, by in pairwise(deliveries):
            if lost.receipt != by.receipt and since_ms < by.at_ms <= ack.at_ms:
                given_up.add(_lease_of(lost.receipt))
                given_up |= {(_lease_of(lost.receipt), attempt) for attempt in range(lost.attempt + 1, by.attempt)}
        for settled in case.settled.get((group, place), ()):
            if settled.verb in ("extend", "nack") and since_ms < settled.at_ms and settled.began_ms <= ack.at_ms:
                is_unheard = settled.verb == "extend" and settled.outcome != "ok"
                is_unheard = is_unheard and naming.may_have_counted(case.history, settled)
                new_receipt = f"after {settled.receipt}" if is_unheard else settled.new_receipt
                given_up |= {_lease_of(receipt) for receipt in (settled.receipt, new_receipt) if receipt}
    return given_up


def _lease_of(receipt: str) -> object:
    """What all receipts of a lease begin with. What no service has issued stands for a lease of its own."""
    *lease, _ = (base64url.decoded(receipt) or b"").split(b":", 7)
    return tuple(lease) if lease else receipt


def _live_receipts_are_accepted(case: Case) -> Iterator[str]:
    """Before its deadline a receipt settles, unless it was shown before, its message died, or there was a reset."""
    for (group, place), settlements in case.settled.items():
        if group in case.resets or case.redriven_after(group, 0) or place in case.history.dead.get(group, {}):
            continue
        ends = {delivered.receipt: delivered.until_ms for delivered in case.delivered.get((group, place), ())}
        given = (settled for settled in settlements if settled.new_receipt not in ("", settled.receipt))
        ends |= {settled.new_receipt: settled.until_ms for settled in given}
        for settled in settlements:
            is_refused = settled.outcome in ("LeaseLost", "ReceiptInvalid") and settled.verb != "bury"
            spent_ms = case.spent_ms(place) - SKEW_MS  # a repeat of its attempt settles it then
            end_ms = min(ends.get(settled.receipt, 0) - OFF_MS, spent_ms)
            is_live = settled.at_ms < end_ms and not case.is_perhaps_purged(group, place)
            is_live = is_live and not naming.may_have_counted(case.history, settled)
            if is_refused and is_live and not _was_shown(case, settled, settlements):
                yield f"{group} {place}: {settled.verb} at {settled.at_ms} was refused, before {ends[settled.receipt]}"


def _was_shown(case: Case, settled: Settled, settlements: list[Settled]) -> bool:
    """Whether the receipt was used before, or another one that names its message. An ack may repeat an ack."""
    return any(
        other is not settled
        and (other.receipt == settled.receipt or naming.names_more(case.history, settled.group))
        and other.began_ms <= settled.at_ms
        and not other.verb == settled.verb == "ack"
        for other in settlements
    )


def _is_spent(case: Case, settled: Settled, settlements: list[Settled]) -> bool:
    spending = ("nack", "bury") if naming.names_more(case.history, settled.group) else ("extend", "nack", "bury")
    return any(
        other.receipt == settled.receipt
        and other.verb in spending
        and other.outcome == "ok"
        and other.at_ms < settled.began_ms
        for other in settlements
    )


def _a_reset_ends_every_receipt(case: Case) -> Iterator[str]:
    yield from naming.a_reset_ends_every_receipt(case)


def _every_receipt_of_a_message_settles(case: Case) -> Iterator[str]:
    yield from naming.every_receipt_of_a_message_settles(case, SKEW_MS, partial(_may_be_dead, case))


def _may_be_dead(case: Case, group: str, place: Place) -> bool:
    is_dead = place in case.history.dead.get(group, {})
    return is_dead or case.is_perhaps_purged(group, place) or _may_have_died_unseen(case, group, place)


def _an_extension_keeps_the_receipt_of_its_delivery(case: Case) -> Iterator[str]:
    yield from naming.an_extension_keeps_the_receipt_of_its_delivery(case, SKEW_MS, partial(_may_be_dead, case))


def _receipts_of_a_delivery_end_with_it(case: Case) -> Iterator[str]:
    yield from naming.receipts_of_a_delivery_end_with_it(case, SKEW_MS)


def _a_group_accepts_only_its_own_receipts(case: Case) -> Iterator[str]:
    own = {(delivered.group, delivered.receipt) for delivered in case.history.delivered}
    own |= {(settled.group, settled.new_receipt) for settled in case.history.settled}
    for settled in case.history.settled:
        if settled.outcome == "ok" and (settled.group, settled.receipt) not in own:
            yield f"{settled.group} took a receipt for {settled.place} that it never gave"


def _attempts_count_up(case: Case) -> Iterator[str]:
    """Pops that overlap may be answered in any order."""
    for (group, place), leases in case.leases():
        if group in case.resets or case.redriven_after(group, 0):
            continue
        renewed = case.renewed(group, place) | case.extended_unheard.keys()
        for first, second in pairwise(sorted(leases, key=lambda lease: lease.at_ms)):
            is_later = second.began_ms > max(first.at_ms, first.answered_ms)
            is_wrong = second.attempt == first.attempt or (is_later and second.attempt < first.attempt)
            if is_wrong and second.receipt not in renewed and not naming.is_shown_again(case, first, second):
                yield f"{group} {place}: attempt {first.attempt}, then {second.attempt}"


def _the_first_delivery_stays_the_first(case: Case) -> Iterator[str]:
    yield from firsts.the_first_delivery_stays_the_first(case, OFF_MS)


def _attempts_stay_within_the_maximum(case: Case) -> Iterator[str]:
    for (group, place), deliveries in case.delivered.items():
        rules = case.history.rules.get(group)
        most = _FOR_EVER_MS if rules is None or rules.may_outlive else rules.max_attempts
        for delivered in deliveries:
            if delivered.attempt > most:
                yield f"{group} {place} was delivered {delivered.attempt} times, and at most {most} were allowed"


def _dead_letters_were_tried_and_stay_dead(case: Case) -> Iterator[str]:
    for group, dead in case.history.dead.items():
        rules = case.history.rules.get(group)
        for place, attempts in dead.items():
            burials = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "bury"]
            buried = any(burial.outcome in ("ok", "unknown") for burial in burials)
            is_lost = deaths.is_of_a_lost_message(case.history, group, place)
            is_old = rules is not None and rules.may_outlive and attempts > rules.max_attempts
            is_tried = rules is None or (rules.least_attempts or rules.max_attempts) <= attempts <= rules.max_attempts
            if not is_tried and not is_old and not buried and not is_lost:
                yield f"{group} {place} died after {attempts} attempts, not {rules and rules.max_attempts}"
            if place in case.history.drained.get(group, ()) and not case.comes_back(group):
                yield f"{group} {place} is dead, and came again"


def _a_dead_message_is_in_one_place(case: Case) -> Iterator[str]:
    yield from moves.a_dead_message_is_in_one_place(case.history)


def _what_tasks_move_comes_once(case: Case) -> Iterator[str]:
    yield from moves.what_tasks_move_comes_once(case.history, case.spent_ms, SKEW_MS)


def _undelivered_messages_do_not_die(case: Case) -> Iterator[str]:
    yield from deaths.undelivered_messages_do_not_die(case.history)


def _only_lost_messages_die_as_lost(case: Case) -> Iterator[str]:
    yield from deaths.only_lost_messages_die_as_lost(case.history)


def _extended_messages_do_not_expire(case: Case) -> Iterator[str]:
    yield from deaths.extended_messages_do_not_expire(case, OFF_MS)


def _dead_letters_are_counted(case: Case) -> Iterator[str]:
    for group, counted in case.history.counted.items():
        if counted != len(case.history.dead[group]):
            yield f"{group} counts {counted} dead letters, and has {len(case.history.dead[group])}"


def _a_group_keeps_to_its_rate(case: Case) -> Iterator[str]:
    yield from pops.a_group_keeps_to_its_rate(case, SKEW_MS)


def _no_more_are_in_flight_than_allowed(case: Case) -> Iterator[str]:
    """Counts what was surely held: from the answer that brought a message to its deadline, or to when its holder, a
    reset, or a repeat of its pop after its `ttl_ms` may have ended that. Where the store remembers its past, every
    claim is judged besides."""
    yield from case.history.crowded
    for group, rules in case.history.rules.items():
        events: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (of, place), leases in case.leases():
            if of == group:
                for first, end in _surely_held(case, group, place, leases):
                    events[place[0]] += [(first, 1), (end, -1)]
        for queue, changes in events.items():
            held = 0
            for at_ms, change in sorted(changes):
                held += change
                if held > rules.max_in_flight:
                    yield f"{group} had {held} in flight in queue {queue} at {at_ms}, over {rules.max_in_flight}"
                    break


def _surely_held(case: Case, group: str, place: Place, leases: list[Delivered]) -> Iterator[tuple[int, int]]:
    for delivered in leases:
        others = case.settled.get((group, place), ())
        ends = [other.began_ms for other in others if other.receipt == delivered.receipt]
        if naming.names_more(case.history, group):
            ends = [other.began_ms for other in others if other.at_ms >= delivered.began_ms]
        ends += [reset.began_ms for reset in case.resets.get(group, ()) if reset.at_ms >= delivered.began_ms]
        end = min([delivered.until_ms - OFF_MS, case.spent_ms(place) - SKEW_MS, *ends])
        if end > delivered.at_ms:
            yield delivered.at_ms, end


def _every_change_of_an_alarm_is_sent_once(case: Case) -> Iterator[str]:
    yield from alarms.every_change_of_an_alarm_is_sent_once(case.history)


def _alarms_are_raised_and_cleared_in_turn(case: Case) -> Iterator[str]:
    yield from alarms.alarms_are_raised_and_cleared_in_turn(case.history)


def _an_alarm_fits_the_backlog(case: Case) -> Iterator[str]:
    yield from alarms.an_alarm_fits_the_backlog(case.history)


def _a_paused_group_delivers_nothing(case: Case) -> Iterator[str]:
    yield from pops.a_paused_group_delivers_nothing(case.history)


def _a_full_queue_takes_nothing(case: Case) -> Iterator[str]:
    """Of a caller who knows that it is full; others may each overshoot by one call. Once it is drained it takes
    messages again."""
    yield from case.history.overfull


def _what_waits_has_an_appointment(case: Case) -> Iterator[str]:
    yield from case.history.unappointed


def _calls_keep_to_their_number(case: Case) -> Iterator[str]:
    yield from pushes.calls_keep_to_their_number(case.history, SKEW_MS)


def _calls_bring_what_is_stored(case: Case) -> Iterator[str]:
    yield from pushes.calls_bring_what_is_stored(case.history)


def _a_success_is_acked(case: Case) -> Iterator[str]:
    yield from pushes.a_success_is_acked(case.history)


def _settled_queues_leave(case: Case) -> Iterator[str]:
    if case.history.draining:
        yield f"the queues {case.history.draining} are settled, and drain still"


def _a_request_has_one_reply_for_ever(case: Case) -> Iterator[str]:
    yield from requests.a_request_has_one_reply_for_ever(case.history)


def _a_time_out_is_final(case: Case) -> Iterator[str]:
    yield from requests.a_time_out_is_final(case.history)


def _a_reply_comes_in_time_or_never(case: Case) -> Iterator[str]:
    yield from requests.a_reply_comes_in_time_or_never(case.history, OFF_MS)


def _an_accepted_reply_is_there(case: Case) -> Iterator[str]:
    yield from requests.an_accepted_reply_is_there(case.history)


def _a_transaction_is_all_or_none(case: Case) -> Iterator[str]:
    yield from transactions.a_transaction_is_all_or_none(case.history)


def _a_decision_stands(case: Case) -> Iterator[str]:
    yield from transactions.a_decision_stands(case.history, SKEW_MS)


def _half_messages_stay_hidden(case: Case) -> Iterator[str]:
    yield from transactions.half_messages_stay_hidden(case.history)


def _a_check_is_given_to_one_caller_at_a_time(case: Case) -> Iterator[str]:
    yield from transactions.a_check_is_given_to_one_caller_at_a_time(case.history, SKEW_MS)


def _undecided_transactions_are_checked(case: Case) -> Iterator[str]:
    yield from transactions.undecided_transactions_are_checked(case.history, SKEW_MS)


def _a_pop_leaves_nothing_that_is_ready(case: Case) -> Iterator[str]:
    yield from lateness.a_pop_leaves_nothing_that_is_ready(case, SKEW_MS)


def _a_message_goes_to_its_zone(case: Case) -> Iterator[str]:
    yield from zones.a_message_goes_to_its_zone(case.history)


def _a_queue_is_left_to_its_zone(case: Case) -> Iterator[str]:
    yield from zones.a_queue_is_left_to_its_zone(case, SKEW_MS)


def _an_answer_has_no_more_than_was_asked_for(case: Case) -> Iterator[str]:
    yield from pops.an_answer_has_no_more_than_was_asked_for(case.history)


def _no_answer_shows_a_lease_that_was_over(case: Case) -> Iterator[str]:
    yield from pops.no_answer_shows_a_lease_that_was_over(case.history, OFF_MS)


def _a_pop_waits_no_longer_than_asked(case: Case) -> Iterator[str]:
    yield from pops.a_pop_waits_no_longer_than_asked(case.history)


def _a_repeated_attempt_gets_the_same_messages(case: Case) -> Iterator[str]:
    yield from pops.a_repeated_attempt_gets_the_same_messages(case.history, case.gone_ms, SKEW_MS)


def _a_queue_is_there_whole_or_not_at_all(case: Case) -> Iterator[str]:
    yield from case.history.torn


def _a_queue_that_was_emptied_gives_nothing_from_before(case: Case) -> Iterator[str]:
    yield from queues.a_queue_that_was_emptied_gives_nothing_from_before(case.history)


def _what_a_standing_queue_took_is_not_lost(case: Case) -> Iterator[str]:
    yield from queues.what_a_standing_queue_took_is_not_lost(case.history, SKEW_MS)


def _a_tag_is_of_the_queue_that_got_it(case: Case) -> Iterator[str]:
    yield from queues.a_tag_is_of_the_queue_that_got_it(case.history)


_FOR_EVER_MS = 10**15

_CALL_MS_MAX = 30_000
"""No call takes longer; a call whose caller died has ended by then."""

CHECKS = (
    _no_caller_meets_a_defect,
    _all_is_answered_where_the_store_answers,
    _one_log_that_throttles_fails_no_call,
    _offsets_are_dense,
    _cursors_stay_within_the_log,
    _acknowledged_messages_are_stored,
    _a_dedup_id_is_stored_once,
    _a_repeat_gets_the_same_answer,
    _look_ups_match_the_log,
    _a_delayed_message_comes_once_or_is_cancelled,
    _no_message_comes_before_it_is_due,
    _no_message_is_stored_twice_or_unsent,
    _keys_keep_their_order,
    _an_answer_keeps_the_order_of_a_queue,
    _deliveries_are_what_is_stored,
    _no_message_is_lost,
    _unexpired_messages_stay,
    _expired_messages_are_not_delivered,
    _no_message_outlives_its_ttl,
    _nothing_sent_before_a_purge_comes_after_it,
    _a_drained_group_has_nothing_left,
    _a_filter_holds_back_unwanted_messages,
    _an_ordered_queue_waits_for_unsettled_messages,
    _a_group_takes_nothing_before_its_delay_is_over,
    _no_more_is_set_aside_than_allowed,
    _two_leases_never_live_at_once,
    _a_lease_lasts_as_long_as_asked,
    _acked_messages_stay_acked,
    _stale_receipts_are_refused,
    _live_receipts_are_accepted,
    _a_reset_ends_every_receipt,
    _every_receipt_of_a_message_settles,
    _an_extension_keeps_the_receipt_of_its_delivery,
    _receipts_of_a_delivery_end_with_it,
    _a_group_accepts_only_its_own_receipts,
    _attempts_count_up,
    _the_first_delivery_stays_the_first,
    _attempts_stay_within_the_maximum,
    _dead_letters_were_tried_and_stay_dead,
    _a_dead_message_is_in_one_place,
    _what_tasks_move_comes_once,
    _undelivered_messages_do_not_die,
    _only_lost_messages_die_as_lost,
    _extended_messages_do_not_expire,
    _dead_letters_are_counted,
    _purged_dead_letters_are_gone,
    _no_more_are_in_flight_than_allowed,
    _a_group_keeps_to_its_rate,
    _a_full_queue_takes_nothing,
    _what_waits_has_an_appointment,
    _calls_keep_to_their_number,
    _calls_bring_what_is_stored,
    _a_success_is_acked,
    _settled_queues_leave,
    _a_request_has_one_reply_for_ever,
    _a_time_out_is_final,
    _a_reply_comes_in_time_or_never,
    _an_accepted_reply_is_there,
    _a_transaction_is_all_or_none,
    _a_decision_stands,
    _half_messages_stay_hidden,
    _a_check_is_given_to_one_caller_at_a_time,
    _undecided_transactions_are_checked,
    _every_change_of_an_alarm_is_sent_once,
    _alarms_are_raised_and_cleared_in_turn,
    _an_alarm_fits_the_backlog,
    _a_paused_group_delivers_nothing,
    _a_pop_leaves_nothing_that_is_ready,
    _a_message_goes_to_its_zone,
    _a_queue_is_left_to_its_zone,
    _an_answer_has_no_more_than_was_asked_for,
    _no_answer_shows_a_lease_that_was_over,
    _a_pop_waits_no_longer_than_asked,
    _a_repeated_attempt_gets_the_same_messages,
    _a_queue_is_there_whole_or_not_at_all,
    _a_queue_that_was_emptied_gives_nothing_from_before,
    _what_a_standing_queue_took_is_not_lost,
    _a_tag_is_of_the_queue_that_got_it,
)
