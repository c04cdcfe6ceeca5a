"""The parameters of a synthetic export: its size, its content and its defects."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

START_MS = 1_767_223_800_000
"""When the first message of each queue is stored: half an hour before midnight (2025-12-31 UTC), so that even a small
export has messages of two days."""
STEP_MS = 200
"""Between two messages of a queue."""
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
RETENTION_MS = 3 * DAY_MS
QUIET_MS = 5 * MINUTE_MS
"""Between the last message and the export. An export is not a snapshot: changes of its last minute may contradict each
other."""
INDEX_KEYS_FROM = 0.9
"""In the first topic the index of keys was switched on late: it has the last tenth of each queue."""


class Defect(Enum):
    """The defects that an export can have, each planted once: in topic 0, queue 0, or in a data file."""

    HOLE = "hole"
    """A segment in the middle of a log is missing."""
    OVERLAP = "overlap"
    """A segment begins before the one before it ends."""
    WRONG_END = "wrong_end"
    """A segment has lost an entry: the counts do not add up to its end."""
    DUPLICATE_ENTRY = "duplicate_entry"
    """An entry is in a log twice."""
    UNDECODABLE = "undecodable"
    """The packed messages of an entry cannot be decompressed."""
    MISSING_PAYLOAD = "missing_payload"
    """The payload of an entry is missing."""
    ORPHAN_PAYLOAD = "orphan_payload"
    """A payload that no entry points to."""
    CURSOR_BEYOND_END = "cursor_beyond_end"
    """A group has taken messages that the log does not have."""
    LEASE_BEYOND_NEXT = "lease_beyond_next"
    """A lease holds messages that the group has not taken."""
    OWED_TWICE = "owed_twice"
    """Two leases owe one message."""
    PARKED_TWICE = "parked_twice"
    """A message waits for its retry both in the cursor and in a retry page."""
    PROMOTED_STILL_WAITING = "promoted_still_waiting"
    """A message that was delivered at its time still waits, though a later decision was made."""
    UNKNOWN_KIND = "unknown_kind"
    """An item whose key belongs to no known kind."""
    UNKNOWN_CODEC = "unknown_codec"
    """A message that waits is packed with an unknown codec."""
    CORRUPT_LINE = "corrupt_line"
    """A line of a data file is not JSON."""
    TRUNCATED_FILE = "truncated_file"
    """A data file ends in the middle."""
    WRONG_CHECKSUM = "wrong_checksum"
    """The manifest has a wrong checksum for a data file."""
    WRONG_COUNT = "wrong_count"
    """The manifest counts one item more than a data file has."""
    MISSING_FILE = "missing_file"
    """A data file is missing."""
    NO_MANIFEST = "no_manifest"
    """The export was never finished: it has no manifests."""
    WRONG_MANIFEST = "wrong_manifest"
    """The list of data files does not have the checksum that is given beside it."""


class Queue(NamedTuple):
    topic: int
    number: int


@dataclass(frozen=True)
class Shape:
    """`entries`: the numbers of messages in a produce call; each size has the same share of all messages. `since`: the
    number of messages that the previous export had; if given, this export is incremental."""

    messages: int
    entries: tuple[int, ...] = (1, 10, 100)
    files: int = 8
    topics: int = 2
    queues: int = 4
    seed: int = 7
    since: int | None = None
    defects: frozenset[Defect] = field(default_factory=frozenset)

    @property
    def is_incremental(self) -> bool:
        return self.since is not None

    def all_queues(self) -> list[Queue]:
        return [Queue(topic, queue) for topic in range(self.topics) for queue in range(self.queues)]

    def quota(self, queue: Queue, messages: int | None = None) -> int:
        """The number of messages of this queue, out of so many in all (default: `self.messages`)."""
        total = self.messages if messages is None else messages
        count = self.topics * self.queues
        place = queue.topic * self.queues + queue.number
        return total // count + (place < total % count)

    def began(self, queue: Queue) -> int:
        """The first offset that the previous export did not have."""
        return 0 if self.since is None else self.quota(queue, self.since)

    @property
    def now_ms(self) -> int:
        return _after(self.quota(Queue(0, 0)))

    @property
    def from_ms(self) -> int | None:
        return None if self.since is None else _after(self.quota(Queue(0, 0), self.since))

    @property
    def export_id(self) -> str:
        planted = sorted(defect.value for defect in self.defects)
        told = f"{self.messages} {self.entries} {self.files} {self.topics} {self.queues} {self.seed} {planted}"
        return f"{self.now_ms:014d}-{hashlib.blake2b(f'{told} {self.since}'.encode(), digest_size=4).hexdigest()}"

    def has(self, defect: Defect, queue: Queue | None = None) -> bool:
        return defect in self.defects and queue in (None, Queue(0, 0))

    def name_of(self, what: str, chars: int = 8) -> str:
        """A random name that is always the same for the same thing."""
        return hashlib.blake2b(f"{self.seed} {what}".encode(), digest_size=(chars + 1) // 2).hexdigest()[:chars]

    def topic_id(self, topic: int) -> str:
        return self.name_of(f"topic {topic}")

    def topic_name(self, topic: int) -> str:
        return f"topic-{topic}"


def _after(messages: int) -> int:
    return START_MS + messages * STEP_MS + QUIET_MS
