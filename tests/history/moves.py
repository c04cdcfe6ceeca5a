"""Judges the moves of dead messages into a topic that their groups have for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.facts import History, Moved, Place


def a_dead_message_is_in_one_place(history: History) -> Iterator[str]:
    """It moved once, unless a reset gave it to the group again; it has no letter, comes once out of the topic, and the
    group does not get it any more."""
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
    """Of the topic that stands in the end. What moved into another went with it, but nothing moved there later."""
    came = Counter(history.exhumed)
    for moved in history.moved:
        gone_ms = history.graves[moved.topic_id]
        if moved.at_ms > gone_ms:
            yield f"{moved.group} {moved.place} moved at {moved.at_ms} into a topic that was gone by {gone_ms}"
        elif moved.topic_id == history.grave and came[moved.message_id] != 1:
            yield f"{moved.group} {moved.place} came {came[moved.message_id]} times out of the topic"
