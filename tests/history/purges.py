"""Judges purges: resets of a group to `now`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import NEVER_MS, Delivered, Redrive, Reset
from tests.history.history import History


def nothing_sent_before_a_purge_comes_after_it(case: Case) -> Iterator[str]:
    """Judges messages whose produce, or the begin of whose transaction, was answered before the purge began, and pops
    that began after it was answered. Another reset lifts a purge, and a dead letter may be redriven."""
    history = case.history
    purges = [reset for reset in history.resets if reset.to == "now" and reset.at_ms < NEVER_MS]
    sent_by = _sent_by(history) if purges else {}
    for purge in purges:
        for delivered in history.delivered:
            is_after = delivered.group == purge.group and delivered.began_ms > purge.at_ms
            sent_ms = sent_by.get(delivered.body, NEVER_MS)
            if (
                is_after
                and sent_ms < purge.began_ms - case.purge_unsure_ms
                and not _is_lifted(history, purge, delivered)
            ):
                what = f"{purge.group} got {delivered.body} at {delivered.began_ms}, sent by {sent_ms}"
                yield f"{what}, after the purge from {purge.began_ms} to {purge.at_ms}"


def _sent_by(history: History) -> dict[str, int]:
    """When each message was surely sent."""
    answered = {sent.body: sent.at_ms for sent in history.sent if sent.place or sent.message_id}
    return answered | {body: begun.at_ms for begun in history.begun if begun.id for body in begun.bodies}


def _is_lifted(history: History, purge: Reset, delivered: Delivered) -> bool:
    until_ms = delivered.answered_ms
    others = [reset for reset in history.resets if reset.to != "now"]
    lifts: list[Reset | Redrive] = [*others, *history.redrives]
    return any(
        other.group == purge.group and other.at_ms >= purge.began_ms and other.began_ms <= until_ms for other in lifts
    )
