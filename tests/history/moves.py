"""Judges the moves of dead messages into a topic that their groups have for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import NEVER_MS, Moved, Place
from tests.history.history import History


def a_dead_message_is_in_one_place(case: Case) -> Iterator[str]:
    """It moved once, unless a reset gave it to the group again; it has no letter, comes once out of the topic, and the
    group does not get it any more."""
    history = case.history
    moves: dict[tuple[str, Place], list[Moved]] = defaultdict(list)
    for moved in history.moved:
        moves[moved.group, moved.place].append(moved)
    for (group, place), own in moves.items():
        resets = [reset for reset in history.resets if reset.group == group]
        if len(own) > 1 + len(resets):
            yield f"{group} {place} moved {len(own)} times, with {len(resets)} resets"
        for delivered in history.delivered:
            is_of_it = not resets and (delivered.group, delivered.place) == (group, place)
            if is_of_it and delivered.began_ms > own[0].at_ms:
                yield f"{group} {place} moved at {own[0].at_ms}, and came at {delivered.began_ms}"
    for group, letters in history.letters.items():
        yield from (f"{group} {place} has a letter, though dead messages move" for place in letters)
    yield from _it_comes_out_once(history)


def had_moved(history: History, group: str, place: Place, by_ms: int) -> bool:
    """Whether an ack that was answered then may have come too late to keep the message, which nobody has told."""
    return any((moved.group, moved.place) == (group, place) and moved.at_ms <= by_ms for moved in history.moved)


def _it_comes_out_once(history: History) -> Iterator[str]:
    """Judges the topic that stands in the end. Messages in an earlier one went with it, but none moved there later."""
    came = Counter(history.exhumed)
    for moved in history.moved:
        gone_ms = history.graves[moved.topic_id]
        if moved.at_ms > gone_ms:
            yield f"{moved.group} {moved.place} moved at {moved.at_ms} into a topic that was gone by {gone_ms}"
        elif moved.topic_id == history.grave and came[moved.message_id] != 1:
            yield f"{moved.group} {moved.place} came {came[moved.message_id]} times out of the topic"


def what_tasks_move_comes_once(case: Case) -> Iterator[str]:
    """A dead message is left, or has gone to one of the destinations; each task has counted what it moved, and moved
    nothing when it was cancelled."""
    history = case.history
    facts = history.tasks
    returned = facts.dead - facts.left - facts.back
    for body in facts.left + facts.back:
        if facts.left[body] + facts.back[body] > facts.dead[body]:
            counts = f"{facts.dead[body]}, {facts.left[body]} and {facts.back[body]} times"
            yield f"{body} was dead, is left, and went back {counts}"
    over_ms = history.tasks.last_drain_ms + case.skew_ms
    spent = {body for place, body in history.log.items() if case.spent_ms(place) <= over_ms}
    yield from _what_returns_comes_again(history, returned, spent)
    counted = Counter({to: 0 for to, _ in facts.moved.values()})
    for to, moved in facts.moved.values():
        counted[to] += moved
    for to, came in (("back", facts.back), ("seen", returned)):
        if counted[to] != came.total():
            yield f"tasks counted {counted[to]} messages to '{to}', where {came.total()} came"
    for task, moved in facts.cancelled.items():
        counted_at_last = facts.moved[task][1] if task in facts.moved else "nothing"
        if counted_at_last != moved:
            yield f"task {task} was cancelled when it had moved {moved}, and has moved {counted_at_last}"


def _what_returns_comes_again(history: History, returned: Counter[str], spent: set[str]) -> Iterator[str]:
    """A message that had not come yet when it returned, or twice at once, comes no more often than it would have. One
    of `spent` need not come, since its time to live may have been over."""
    in_log, seen = Counter(history.log.values()), history.tasks.seen
    died_ms: dict[str, int] = {}
    for moved in history.moved:
        body = history.log[moved.place]
        died_ms[body] = min(moved.at_ms, died_ms.get(body, NEVER_MS))
    for body, count in returned.items():
        is_again = count == 1 and history.tasks.drained_ms.get(body, NEVER_MS) < died_ms[body]
        least = 0 if body in spent else in_log[body] + is_again
        if not least <= seen[body] <= in_log[body] + count:
            yield f"{body}, {in_log[body]} times in the log, returned {count} and was seen {seen[body]} times"
