"""Sends a plan of messages, in its order, each once.

The sender records a batch in the journal before it sends it, and again once it is stored. In between the batch is in
doubt, if the response was lost or the sender crashed. The age of a doubt decides what happens:

    up to `DEDUP_SURE_MS`     the batch is sent again. Every message has a `dedup_id` made of the run and its own id,
                              which the service knows for five minutes: what is stored stays as it is
    later                     the batch is not sent before `SETTLED_MS` have passed since its last attempt. By then no
                              late request can store any of it. The topic is read from just before the first attempt
                              on; what of the batch is there, by its property, is not sent again, the rest is

The property is `decant-replay-id`. Reading proves something only while the topic still has the messages of that time.
After its retention, an operator must settle the doubt (`--doubtful`), and nothing is sent. All this assumes that the
clocks of the sender and the service are less than `SKEW_MS` apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spark.errors import BadInput
from spark.replaying.journal import Doubt, Journal
from spark.replaying.service import Rejected, Unavailable

PROPERTY = "decant-replay-id"

SKEW_MS = 30_000
DEDUP_MS = 5 * 60_000
"""How long the service remembers a `dedup_id`."""
DEDUP_SURE_MS = DEDUP_MS - 2 * SKEW_MS
SETTLED_MS = DEDUP_MS + 60_000 + 2 * SKEW_MS
"""How long a crashed produce call may still finish: while its `dedup_id` is valid, plus the duration of one call."""

BATCH_MAX = 100
BATCH_BYTES_MAX = 1_000_000
SEND, SKIP = "send", "skip"
ATTEMPTS_MAX = 6
PAUSE_MS, PAUSE_MS_MAX = 500, 10_000
"""Between attempts, doubling."""

OutgoingMessage = dict[str, Any]
"""A message for the service, and `id`: its id in the archive."""


class Destination(Protocol):
    def settings(self) -> dict[str, Any]: ...
    def produce(self, messages: Sequence[OutgoingMessage]) -> None: ...
    def stored_since(self, at_ms: int) -> Iterable[OutgoingMessage]: ...


@dataclass(frozen=True)
class Clock:
    now: Callable[[], int]
    sleep: Callable[[int], None]
    """For so many ms."""


class Sender:
    """`rate`: messages a second. `say`: called with the number stored after each batch. `doubtful`: the operator's
    decision about a batch with an old doubt, `SEND` or `SKIP`."""

    def __init__(
        self,
        run_id: str,
        target: Destination,
        journal: Journal,
        clock: Clock,
        rate: float,
        say: Callable[[int], None] = lambda _: None,
        doubtful: str | None = None,
    ) -> None:
        self._run_id, self._target, self._journal, self._clock = run_id, target, journal, clock
        self._rate, self._say, self._doubtful = rate, say, doubtful
        self._free_at = float(clock.now())

    def run(self, plan: Iterable[OutgoingMessage]) -> int:
        """Sends the messages of the plan that are not stored. Returns how many it has sent. Raises `BadInput` if it
        cannot continue; the same run can be resumed."""
        before = self._journal.stored
        batch: list[OutgoingMessage] = []
        for index, message in enumerate(plan):
            if index < before:
                continue
            if self._is_complete(batch, index):
                self._send(batch, index)
                batch = []
            batch.append(message)
        if batch:
            self._send(batch, self._journal.stored + len(batch))
        return self._journal.stored - before

    def _is_complete(self, batch: list[OutgoingMessage], end: int) -> bool:
        """Whether the batch is complete. A batch in doubt is rebuilt exactly as it was."""
        doubt = self._journal.doubt
        if not batch or doubt:
            return doubt is not None and end == doubt.end
        is_heavy = sum(_weight(message) for message in batch) >= BATCH_BYTES_MAX
        return is_heavy or len(batch) >= min(BATCH_MAX, max(1, int(self._rate)))

    def _send(self, batch: list[OutgoingMessage], end: int) -> None:
        doubt = self._journal.doubt
        left = self._not_stored(batch, doubt) if doubt else batch
        if left:
            self._pace(len(left))
            self._store(left, end - len(batch), end)
        self._journal.sent(end)
        self._say(end)

    def _store(self, left: list[OutgoingMessage], first: int, end: int) -> None:
        """Stores all messages in one call, retried while their `dedup_id`s are valid."""
        began, pause, was_sent = self._clock.now(), PAUSE_MS, self._journal.doubt is not None
        for _ in range(ATTEMPTS_MAX):
            self._journal.sending(first, end, self._clock.now())
            try:
                return self._target.produce([self._as_sent(message) for message in left])
            except Unavailable as error:
                said, was_sent = error, True
            except Rejected as error:
                if not was_sent:
                    self._journal.refused(end)
                raise BadInput(f"the service refuses a batch from {left[0]['id']} on: {error}") from error
            if self._clock.now() + pause - began > DEDUP_SURE_MS:
                break
            self._clock.sleep(pause)
            pause = min(2 * pause, PAUSE_MS_MAX)
        raise BadInput(f"the service stores nothing: {said}; the same command goes on from here")

    def _not_stored(self, batch: list[OutgoingMessage], doubt: Doubt) -> list[OutgoingMessage]:
        """The messages of a batch in doubt that must be sent. Some may be stored already, where sending them again does
        no harm."""
        if self._clock.now() - doubt.first_at_ms <= DEDUP_SURE_MS:
            return batch
        if self._doubtful is not None:
            return batch if self._doubtful == SEND else []
        self._clock.sleep(max(0, doubt.last_at_ms + SETTLED_MS - self._clock.now()))
        since = doubt.first_at_ms - SKEW_MS
        retention_ms = self._target.settings()["retention_ms"]
        if since <= self._clock.now() - retention_ms + SKEW_MS:
            raise BadInput(
                f"messages {batch[0]['id']} to {batch[-1]['id']} may have been stored, and the topic does not keep "
                f"what was stored then; --doubtful {SEND} or {SKIP} settles it"
            )
        there = self._stored_between(since, doubt.last_at_ms + SETTLED_MS)
        return [message for message in batch if self._name(message) not in there]

    def _stored_between(self, from_ms: int, to_ms: int) -> set[str]:
        names: set[str] = set()
        try:
            for message in self._target.stored_since(from_ms):
                if message["stored_at_ms"] > to_ms:
                    break
                names.add(message["properties"].get(PROPERTY, ""))
        except (Unavailable, Rejected) as error:
            raise BadInput(f"the topic cannot be read: {error}; the same command goes on from here") from error
        return names

    def _pace(self, count: int) -> None:
        """Waits until `count` messages may be sent."""
        now = self._clock.now()
        if self._free_at > now:
            self._clock.sleep(round(self._free_at - now))
        self._free_at = max(self._free_at, now) + count * 1000 / self._rate

    def _name(self, message: OutgoingMessage) -> str:
        return f"{self._run_id}/{message['id']}"

    def _as_sent(self, message: OutgoingMessage) -> OutgoingMessage:
        name = self._name(message)
        sent = {field: value for field, value in message.items() if field != "id"}
        return {**sent, "dedup_id": name, "properties": {**message["properties"], PROPERTY: name}}


def _weight(message: OutgoingMessage) -> int:
    return len(message.get("body") or message.get("body_base64", ""))
