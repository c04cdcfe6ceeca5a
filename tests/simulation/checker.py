"""Judges a history. Each check is a sentence about the product, and says what breaks it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.history import Delivered, History, Place, Settled

SKEW_MS = 500
"""Two callers' clocks differ by at most this."""


def violations(history: History) -> list[str]:
    checks = (
        _offsets_are_dense,
        _cursors_stay_within_the_log,
        _what_was_acknowledged_is_stored,
        _nothing_is_stored_twice_or_from_nowhere,
        _keys_keep_their_order,
        _deliveries_are_what_is_stored,
        _nothing_is_lost,
        _two_leases_never_live_at_once,
        _what_is_acked_stays_acked,
        _stale_receipts_are_refused,
        _attempts_count_up,
    )
    return [f"{check.__name__.strip('_')}: {found}" for check in checks for found in check(history)]


def _offsets_are_dense(history: History) -> Iterator[str]:
    for queue, end in history.ends.items():
        held = {offset for of, offset in history.log if of == queue}
        if held != set(range(end)):
            yield f"queue {queue} ends at {end} and holds {sorted(held)}"


def _cursors_stay_within_the_log(history: History) -> Iterator[str]:
    """A message that is taken before it is there would first come when its lease has run out."""
    yield from history.passed


def _what_was_acknowledged_is_stored(history: History) -> Iterator[str]:
    for sent in history.sent:
        if sent.place is not None and history.log.get(sent.place) != sent.body:
            yield f"{sent.body} was stored at {sent.place}, where now lies {history.log.get(sent.place)}"


def _nothing_is_stored_twice_or_from_nowhere(history: History) -> Iterator[str]:
    known = {sent.body: sent for sent in history.sent}
    for body, count in Counter(history.log.values()).items():
        if body not in known:
            yield f"{body} is in the log and was never sent"
        elif count > 1:
            yield f"{body} is {count} times in the log"
        elif known[body].place is None and not known[body].is_unknown:
            yield f"{body} is in the log although its produce failed"


def _keys_keep_their_order(history: History) -> Iterator[str]:
    """Messages of a key whose produce ended before the next began lie in one queue, in that order."""
    by_key: dict[str, list[Place]] = defaultdict(list)
    for sent in history.sent:
        if sent.key is not None and sent.place is not None:
            by_key[f"{sent.body.split('-')[0]} {sent.key}"].append(sent.place)
    for key, places in by_key.items():
        if places != sorted(places) or len({queue for queue, _ in places}) > 1:
            yield f"{key} lies at {places}"


def _deliveries_are_what_is_stored(history: History) -> Iterator[str]:
    ids: dict[Place, str] = {}
    for each in history.delivered:
        if history.log.get(each.place) != each.body:
            yield f"{each.group} got {each.body} at {each.place}, where lies {history.log.get(each.place)}"
        if ids.setdefault(each.place, each.message_id) != each.message_id:
            yield f"{each.place} had the ids {ids[each.place]} and {each.message_id}"


def _nothing_is_lost(history: History) -> Iterator[str]:
    """Every message in the log was acked by somebody, or died, or comes when all is quiet."""
    for group, drained in history.drained.items():
        acked = {each.place for each in history.settled if each.group == group and each.verb == "ack"}
        for place in history.log.keys() - drained - acked - history.dead.get(group, set()):
            yield f"{group} never gets {place}"


def _two_leases_never_live_at_once(history: History) -> Iterator[str]:
    """A message comes again only after its lease has run out, was nacked, or was reset."""
    for group, place, deliveries in _by_message(history):
        ends = [_end_of_lease(history, each) for each in deliveries]
        for (first, end), second in zip(zip(deliveries, ends, strict=True), deliveries[1:], strict=False):
            if (
                first.receipt != second.receipt
                and second.at_ms + SKEW_MS < end
                and not _reset_between(history, group, first, second)
            ):
                yield f"{group} {place}: a lease until {end}, and another from {second.began_ms}..{second.at_ms}"


def _what_is_acked_stays_acked(history: History) -> Iterator[str]:
    for group, place, deliveries in _by_message(history):
        for ack in _settled(history, group, place, "ack"):
            for later in deliveries:
                is_new = later.began_ms > ack.at_ms and ack.outcome == "ok"
                if is_new and not any(reset.at_ms >= ack.began_ms for reset in history.resets if reset.group == group):
                    yield f"{group} {place} was acked at {ack.at_ms} and delivered at {later.began_ms}"


def _stale_receipts_are_refused(history: History) -> Iterator[str]:
    """Once a later lease of a message was seen, an earlier receipt settles nothing."""
    for group, place, deliveries in _by_message(history):
        for settled in _settled(history, group, place, None):
            if settled.outcome != "ok":
                continue
            own = [each for each in deliveries if each.receipt == settled.receipt]
            since = max((each.at_ms for each in own), default=settled.began_ms)
            later = [each for each in deliveries if each.began_ms > since and each.receipt != settled.receipt]
            newer = [each for each in later if each.at_ms < settled.began_ms]
            renewed = any(
                each.receipt == settled.receipt and each.outcome == "ok" and each.at_ms < settled.began_ms
                for each in _settled(history, group, place, "extend") + _settled(history, group, place, "nack")
            )
            if newer or renewed:
                yield f"{group} {place}: {settled.verb} at {settled.began_ms} by a receipt of {since} was accepted"


def _attempts_count_up(history: History) -> Iterator[str]:
    for group, place, deliveries in _by_message(history):
        if history.resets:
            continue
        for first, second in pairwise(deliveries):
            if second.began_ms > first.at_ms and first.receipt != second.receipt and second.attempt <= first.attempt:
                yield f"{group} {place}: attempt {first.attempt}, then {second.attempt}"


def _by_message(history: History) -> Iterator[tuple[str, Place, list[Delivered]]]:
    found: dict[tuple[str, Place], list[Delivered]] = defaultdict(list)
    for each in history.delivered:
        found[each.group, each.place].append(each)
    for (group, place), deliveries in found.items():
        yield group, place, sorted(deliveries, key=lambda each: each.at_ms)


def _settled(history: History, group: str, place: Place, verb: str | None) -> list[Settled]:
    return [
        each
        for each in history.settled
        if each.group == group and each.place == place and (verb is None or each.verb == verb)
    ]


def _end_of_lease(history: History, delivered: Delivered) -> int:
    """When the lease of this delivery ended at the latest: its deadline, or an earlier nack."""
    end, receipts = delivered.until_ms, {delivered.receipt}
    for each in _settled(history, delivered.group, delivered.place, None):
        if each.receipt in receipts and each.outcome in ("ok", "unknown"):
            if each.verb == "extend":
                if each.outcome == "unknown":
                    return 0
                end, receipts = each.until_ms, receipts | {each.new_receipt}
            elif each.verb == "nack":
                end = min(end, each.began_ms)
    return end


def _reset_between(history: History, group: str, first: Delivered, second: Delivered) -> bool:
    return any(
        reset.group == group and reset.at_ms >= first.began_ms and reset.began_ms <= second.at_ms
        for reset in history.resets
    )
