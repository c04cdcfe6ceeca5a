"""Dead letters: messages of a group that it will not be given again. The message itself stays in the log."""

from __future__ import annotations

from chalicelib import keys
from chalicelib.group import Group
from chalicelib.writes import Set, Write


def letter(group: Group, queue: int, offset: int, epoch: int, attempts: int, reason: str, now: int) -> Write:
    return Write(
        keys.dead(group.topic_id, group.id, queue, offset),
        (),
        (
            Set(("epoch",), epoch),
            Set(("attempts",), attempts),
            Set(("reason",), reason),
            Set(("dead_at_ms",), now),
        ),
    )
