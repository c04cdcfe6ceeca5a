"""Judges the log, and the messages that callers are shown of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import Place, Sent


def offsets_are_dense(case: Case) -> Iterator[str]:
    for queue, end in case.history.ends.items():
        held = {offset for of, offset in case.history.log if of == queue}
        if held != set(range(end)):
            yield f"queue {queue} ends at {end} and holds {sorted(held)}"


def cursors_stay_within_the_log(case: Case) -> Iterator[str]:
    """A message that is taken before it is there would first come when its lease has run out."""
    yield from case.history.passed


def acknowledged_messages_are_stored(case: Case) -> Iterator[str]:
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


def look_ups_match_the_log(case: Case) -> Iterator[str]:
    """Messages are shown as they lie in the log, and found by their ids and keys. When all is quiet, none waits."""
    yield from case.history.look_ups
    for shown in case.history.shown:
        place, ids = shown.place, case.history.ids
        if case.history.log.get(place) != shown.body or (ids and ids.get(place) != shown.message_id):
            lies = f"{case.history.log.get(place)} as {ids.get(place)}"
            yield f"{shown.body} was shown at {place} as {shown.message_id}, where lies {lies}"


def no_message_is_stored_twice_or_unsent(case: Case) -> Iterator[str]:
    known = {sent.body: sent for sent in case.history.sent}
    for body, count in Counter(case.history.log.values()).items():
        if body not in known:
            yield f"{body} is in the log and was never sent"
        elif count > 1:
            yield f"{body} is {count} times in the log"
        elif known[body].place is None and known[body].message_id is None and not known[body].is_unknown:
            yield f"{body} is in the log although its produce failed"


def keys_keep_their_order(case: Case) -> Iterator[str]:
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


def deliveries_are_what_is_stored(case: Case) -> Iterator[str]:
    ids: dict[Place, str] = {}
    for delivered in case.history.delivered:
        body = case.history.log.get(delivered.place)
        if body != delivered.body:
            yield f"{delivered.group} got {delivered.body} at {delivered.place}, where lies {body}"
        if ids.setdefault(delivered.place, delivered.message_id) != delivered.message_id:
            yield f"{delivered.place} had the ids {ids[delivered.place]} and {delivered.message_id}"
