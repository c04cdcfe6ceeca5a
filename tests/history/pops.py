"""Judges what pops bring of paused groups, and to those who ask again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.history.facts import Attempted, History, Paused

PAUSE_LATE_MS = 500
"""A pop may read the settings of its group from a past that is so long ago."""


REQUESTS_MS_MAX = 5_000
"""What all requests of a pop take together, at most."""


def a_paused_group_delivers_nothing(history: History) -> Iterator[str]:
    """By a pop that begins after a pause was acknowledged, as long as nobody has asked for its end. Repeats of an
    attempt that began before show what that took."""
    ends: dict[str, list[Paused]] = defaultdict(list)
    for each in history.pauses:
        if not each.is_paused:
            ends[each.group].append(each)
    for pause in (each for each in history.pauses if each.is_paused and each.is_answered):
        later = [each.began_ms for each in ends[pause.group] if each.at_ms >= pause.began_ms]
        until_ms = min(later, default=0)
        for got in history.delivered:
            is_within = pause.at_ms + PAUSE_LATE_MS < got.first_ms and got.answered_ms < until_ms
            if got.group == pause.group and is_within:
                yield f"{got.group} was paused from {pause.at_ms} to {until_ms}, and got {got.place} at {got.began_ms}"


def a_pop_waits_no_longer_than_asked(history: History) -> Iterator[str]:
    """Whatever becomes of its clock meanwhile; where the store answers, it needs no more than seconds besides."""
    for each in history.attempts if history.are_all_answered else ():
        if each.at_ms - each.began_ms > each.wait_ms + REQUESTS_MS_MAX:
            yield f"{each.group} {each.attempt_id} was to wait {each.wait_ms} ms, from {each.began_ms} to {each.at_ms}"


def an_attempt_gets_the_same_again(history: History, skew_ms: int) -> Iterator[str]:
    """Who asks again by an `attempt_id` hears of all that the first call took and still holds, and of nothing else. Two
    calls at once may have taken from two queues; and what has lost its payload does not come again."""
    attempts: dict[tuple[str, str], list[Attempted]] = defaultdict(list)
    for each in history.attempts:
        attempts[each.group, each.attempt_id].append(each)
    lost = {each.receipt for each in history.delivered if each.place in history.lost}
    ends = {each.receipt: each.until_ms for each in history.delivered}
    renewed = {each.new_receipt for each in history.settled}
    shown = {each.receipt: each.began_ms for each in history.settled}
    for (group, name), calls in attempts.items():
        for first, second in pairwise(calls):
            held = {each for each in first.receipts if ends[each] > second.at_ms + skew_ms and each not in shown}
            is_reset = any(
                each.group == group and each.began_ms <= second.at_ms and each.at_ms >= first.began_ms
                for each in history.resets
            )
            if is_reset or not held or second.began_ms < first.at_ms:
                continue
            known = {*first.receipts, *renewed}
            if held - lost - set(second.receipts) or set(second.receipts) - known:
                yield f"{group} {name} took {len(held)} at {first.at_ms}, and got others at {second.at_ms}"
