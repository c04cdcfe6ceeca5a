"""Judges whether calls are answered, as soon as the store answers."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.history import History


def all_is_answered_where_the_store_answers(case: Case) -> Iterator[str]:
    """A call that begins when every request is answered does not fail, whatever was refused before."""
    history = case.history
    for began_ms, what in _failed(history):
        if began_ms >= history.well_from_ms:
            yield f"{what} failed at {began_ms}, and the store answered from {history.well_from_ms} on"


def one_log_that_throttles_fails_no_call(case: Case) -> Iterator[str]:
    """Messages without a key can go to other queues, and pops can take from them."""
    history = case.history
    if not history.are_others_well:
        return
    for sent in history.sent:
        is_answered = sent.place or sent.message_id or sent.is_refused
        if sent.key is None and not is_answered:
            yield f"the produce of {sent.body} failed, and other logs took messages"
    taken = [got for got in history.delivered if got.answered_ms < history.rated_until_ms[got.group]]
    if history.sent and not taken:
        yield "no pop took a message before the log was readable again, and other logs had some"


def _failed(history: History) -> Iterator[tuple[int, str]]:
    """The calls that got no answer, and when they began. A pushed consumer settles by its answer, which is no call."""
    for sent in history.sent:
        if not (sent.place or sent.message_id or sent.is_refused):
            yield sent.began_ms, f"the produce of {sent.body}"
    for pop in history.pops:
        if pop.is_troubled:
            yield pop.began_ms, f"a pop of {pop.group}"
    for settled in history.settled:
        if settled.outcome == "unknown" and settled.receipt:
            yield settled.began_ms, f"the {settled.verb} of {settled.place}"
    for cancel in history.cancels:
        if cancel.outcome == "unknown":
            yield cancel.began_ms, f"the cancel of {cancel.message_id}"


def no_caller_meets_a_defect(case: Case) -> Iterator[str]:
    yield from case.history.defects
