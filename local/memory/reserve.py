"""Room on the disk that only what makes room may use: a file, which is given up when the disk is full.

SQLite needs room to delete too: it appends each change to its journal before it frees the pages of what is gone. Those
pages stay in its file, for what comes later. So once the reserve is given up, they count as room like the rest of the
disk, and other changes begin again when there is as much of it as the reserve had.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from chalicelib.core.base.limits import MIB
from chalicelib.core.telemetry import record
from chalicelib.core.telemetry.lines import PUSH, SWEEP
from local.memory.private import FILE_MODE

RESERVE_BYTES = 8 * MIB
"""SQLite's journal begins again after some 4 MB; the rest is for the largest changes, and for leases."""

MAKE_ROOM = frozenset(
    {
        *("pop", "ack", "nack", "extend", "bury", "reset_group", "purge_dead"),
        *("delete_topic", "delete_group", "cancel_delayed", "rollback_transaction"),
        *("delete_token", "delete_push_secret"),
        *("mq_consume", "mq_ack", "mq_rollback"),
        *("sqs.ReceiveMessage", "sqs.DeleteMessage", "sqs.DeleteMessageBatch", "sqs.PurgeQueue", "sqs.DeleteQueue"),
        *("sqs.ChangeMessageVisibility", "sqs.ChangeMessageVisibilityBatch"),
        *(PUSH, SWEEP),
    }
)
"""What consumes and what deletes, at every door."""


def makes_room() -> bool:
    """Whether the call under way may use the reserve."""
    call = record.current()
    return call is not None and call.operation in MAKE_ROOM


class Reserve:
    """`is_held`: whether the file is there."""

    def __init__(self, path: Path) -> None:
        """Call it in a private folder."""
        self._path = path
        with suppress(FileNotFoundError):
            self.is_held = path.stat().st_size == RESERVE_BYTES
            return
        self.is_held = False

    def hold(self) -> bool:
        """Takes the room, if the disk has it. Returns whether it is held."""
        if not self.is_held:
            try:
                self._write()
            except OSError:
                self.give_up()
            else:
                self.is_held = True
        return self.is_held

    def give_up(self) -> None:
        self._path.unlink(missing_ok=True)
        self.is_held = False

    def free_bytes(self) -> int:
        """What is left of the disk."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def _write(self) -> None:
        """Bytes, and not a size alone: a file with a hole in it takes no room."""
        file = os.open(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, FILE_MODE)
        with open(file, "wb") as reserved:
            reserved.write(bytes(RESERVE_BYTES))
