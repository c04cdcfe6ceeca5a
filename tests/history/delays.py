"""Judges messages that wait for their time, or for that of their group."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import NEVER_MS


def a_delayed_message_comes_once_or_is_cancelled(case: Case) -> Iterator[str]:
    """Once a delivered message has expired and is removed, nobody knows of it any more."""
    there = set(case.history.ids.values())
    gone_ms = {message_id: case.removed_ms(place) - case.skew_ms for place, message_id in case.history.ids.items()}
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


def no_message_comes_before_it_is_due(case: Case) -> Iterator[str]:
    for delivered in case.history.delivered:
        due_ms = case.sent[delivered.body].due_ms if delivered.body in case.sent else 0
        if delivered.answered_ms + case.off_ms < due_ms:
            yield f"{delivered.group} got {delivered.body} at {delivered.answered_ms}, due at {due_ms}"


def a_group_takes_nothing_before_its_delay_is_over(case: Case) -> Iterator[str]:
    for delivered in case.history.delivered:
        rules = case.history.rules.get(delivered.group)
        if rules and delivered.answered_ms + case.skew_ms < case.began.get(delivered.body, 0) + rules.delay_ms:
            yield f"{delivered.group} got {delivered.place} at {delivered.answered_ms}, before it was to take it"


def what_waits_has_an_appointment(case: Case) -> Iterator[str]:
    yield from case.history.unappointed
