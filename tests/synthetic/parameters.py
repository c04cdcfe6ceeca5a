"""The parameters of a synthetic export: its size and its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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


class Queue(NamedTuple):
    topic: int
    number: int


@dataclass(frozen=True)
class Shape:
    """`entries`: the numbers of messages in a produce call; each size has the same share of all messages."""

    messages: int
    entries: tuple[int, ...] = (1, 10, 100)
    files: int = 8
    topics: int = 2
    queues: int = 4
    seed: int = 7

    def all_queues(self) -> list[Queue]:
        return [Queue(topic, queue) for topic in range(self.topics) for queue in range(self.queues)]

    def quota(self, queue: Queue) -> int:
        """The number of messages of this queue."""
        count = self.topics * self.queues
        place = queue.topic * self.queues + queue.number
        return self.messages // count + (place < self.messages % count)

    @property
    def now_ms(self) -> int:
        return START_MS + self.quota(Queue(0, 0)) * STEP_MS + QUIET_MS

    @property
    def export_id(self) -> str:
        return f"{self.now_ms:014d}-{self.name_of('export')}"

    def name_of(self, what: str, chars: int = 8) -> str:
        """A random name that is always the same for the same thing."""
        return hashlib.blake2b(f"{self.seed} {what}".encode(), digest_size=(chars + 1) // 2).hexdigest()[:chars]

    def topic_id(self, topic: int) -> str:
        return self.name_of(f"topic {topic}")

    def topic_name(self, topic: int) -> str:
        return f"topic-{topic}"
