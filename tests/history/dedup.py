"""Judges messages with dedup ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.history.case import Case
from tests.history.facts import Sent


def a_dedup_id_is_stored_once(case: Case) -> Iterator[str]:
    """Two messages with one dedup id are in the log only if the second was sent so late that the id was free again."""
    stored = defaultdict(list)
    for body in case.history.log.values():
        if body in case.sent and (dedup_id := case.sent[body].dedup_id) is not None:
            stored[dedup_id].append(case.sent[body])
    for dedup_id, several in stored.items():
        for first, second in pairwise(sorted(several, key=_ended_ms)):
            if not _is_free_again(case, [first, second]):
                yield f"{dedup_id} is in the log as {first.body} and as {second.body}"


_CALL_MS_MAX = 30_000
"""No call takes longer; a call whose caller died has ended by then."""


def _ended_ms(sent: Sent) -> int:
    return min(sent.at_ms, sent.began_ms + _CALL_MS_MAX)


def _is_free_again(case: Case, several: list[Sent]) -> bool:
    """Whether a dedup id used by all of these may have stood first for one message and then for another."""
    lasted_ms = max(map(_ended_ms, several)) - min(sent.began_ms for sent in several)
    return lasted_ms + case.skew_ms >= case.history.dedup_ms


def a_repeat_gets_the_same_answer(case: Case) -> Iterator[str]:
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
