"""Judges the queues of SQS clients, which are made, changed, purged and deleted while others use them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import LATE_MS, NEVER_MS, Acted
from tests.history.history import History

DONE = "ok"
GONE = "gone"
ENDS = ("delete", "purge")

KNOWN_MS = 700
"""How long a client may use the queue that had the name before: its instance's cache is no older."""


def a_queue_is_there_whole_or_not_at_all(case: Case) -> Iterator[str]:
    yield from case.history.torn


def a_queue_that_was_emptied_gives_nothing_from_before(case: Case) -> Iterator[str]:
    """Messages surely sent before a queue was purged, or deleted, do not come through the queue of its name that is
    there afterwards. A weak read may show a deleted one for a while, and the queue may be of a make that was under way
    and has come late: then nothing comes from before that."""
    history = case.history
    late_ms = 0 if history.are_all_answered else LATE_MS
    sent: dict[str, int] = {}
    for fact in history.acted:
        if fact.verb == "send":  # what is sent once more may come
            sent[fact.about] = max(sent.get(fact.about, 0), fact.at_ms if fact.outcome == DONE else NEVER_MS)
    for end in history.acted:
        if end.verb not in ENDS or end.outcome not in (DONE, GONE):
            continue
        is_purged = (end.verb, end.outcome) == ("purge", DONE)
        since_ms = end.at_ms + (0 if is_purged else history.stale_ms or 0)
        makes = (make.began_ms for make in _of(history, end.queue, "make") if _is_beside(make, end, late_ms))
        before_ms = min([end.began_ms, *makes])
        for got in _of(history, end.queue, "receive"):
            sent_ms = sent.get(got.about, NEVER_MS)
            if sent_ms < before_ms and got.began_ms > since_ms:
                what = f"{end.queue} gave {got.about} at {got.began_ms}, sent by {sent_ms}"
                yield f"{what}, after the {end.verb} from {end.began_ms} to {end.at_ms}"


def _is_beside(make: Acted, end: Acted, late_ms: int) -> bool:
    """Whether the queue may be made after the end of the other, though that began later: a late repeat of a request
    that found a queue may find none."""
    return make.began_ms <= end.at_ms and make.at_ms + late_ms >= end.began_ms


def what_a_standing_queue_took_is_not_lost(case: Case) -> Iterator[str]:
    """Clients delete all that was sent to a standing queue since it was made, in the end the last of them, unless
    somebody has purged it. A queue that reads the topic of another does not get what that had before.

    A purge looks ahead by as much as clocks differ, and answers when that is over; one that failed may have taken what
    is sent until then."""
    history = case.history
    for name, left in history.queues.items():
        purges = _of(history, name, "purge")
        since_ms = max([left.since_ms, *(purge.at_ms + 2 * case.skew_ms * (purge.outcome != DONE) for purge in purges)])
        anew_ms = max([left.since_ms, *(purge.began_ms for purge in purges if purge.outcome == DONE)])
        settles = [fact for fact in _of(history, name, "settle") if fact.outcome in (DONE, "unknown")]
        settled = {fact.about for fact in settles if fact.at_ms >= anew_ms}
        old = {fact.about for fact in history.acted if fact.verb == "send" and fact.began_ms <= since_ms + KNOWN_MS}
        for sent in history.acted:
            is_sure = sent.verb == "send" and sent.outcome == DONE and sent.began_ms > since_ms + KNOWN_MS
            if is_sure and sent.about not in settled and (left.owns_topic or sent.about not in old):
                yield f"{name}, which stands since {left.since_ms}, never gives {sent.about}, sent at {sent.began_ms}"


def a_tag_is_of_the_queue_that_got_it(case: Case) -> Iterator[str]:
    history = case.history
    for name, left in history.queues.items():
        for fact in _of(history, name, "tag"):
            is_there = fact.about in left.tags
            if fact.outcome == DONE and fact.began_ms > left.since_ms and not is_there:
                yield f"{name}, which stands since {left.since_ms}, has lost tag {fact.about} of {fact.began_ms}"
            if fact.at_ms < left.since_ms and is_there:
                yield f"{name}, which stands since {left.since_ms}, has tag {fact.about}, asked for until {fact.at_ms}"


def _of(history: History, queue: str, verb: str) -> list[Acted]:
    return [fact for fact in history.acted if (fact.queue, fact.verb) == (queue, verb)]
