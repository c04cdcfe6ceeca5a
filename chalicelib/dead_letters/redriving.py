"""What one transaction brings back from the dead letters of a queue. Pure: from the cursor and the letters as they were
seen; why that may be out of date without harm, `changes.redriven` says."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chalicelib.base.limits import PURGED_TOGETHER_MAX, REDRIVEN_LEASES_MAX, TAKEOVERS_MAX
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.lease import runs
from chalicelib.dead_letters.dead import Letter


def is_ancient(cursor: Cursor, letters: Sequence[Letter]) -> bool:
    """Whether one is from before a reset: then its message may be ready, or owed, all the same."""
    return any(letter.epoch != cursor.epoch for letter in letters)


def choose(cursor: Cursor, letters: Sequence[Letter], paged: Collection[int] = ()) -> tuple[list[Letter], list[range]]:
    """The first of these letters, in offset order, that one transaction can remove, and the offsets that come back, as
    one run for each lease; none when the cursor has no room. `paged`: offsets that the cursor's pages owe.

    Of a message that is delivered anyway, because a reset went back to before it, only the letter goes."""
    alive = {*paged, *(offset for lease in cursor.owing for offset in lease.owed_offsets)}
    room = min(TAKEOVERS_MAX, REDRIVEN_LEASES_MAX - len(cursor.leases))
    chosen: list[Letter] = []
    back: list[int] = []
    leases = 0
    for letter in letters[:PURGED_TOGETHER_MAX]:
        if letter.offset < cursor.next and letter.offset not in alive:
            if back[-1:] != [letter.offset - 1]:
                leases += 1
            if leases > room:
                break
            back.append(letter.offset)
        chosen.append(letter)
    return chosen, runs(back)
