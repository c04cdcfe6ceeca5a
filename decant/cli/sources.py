"""Where the messages of `decant send` come from: arguments, a pipe or a file. Without a connection."""

from __future__ import annotations

import enum
import json
import queue
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from decant import flows
from decant.flows import BATCH_MESSAGES_MAX, is_full, weight_of
from decant.payloads import body_of

Json = dict[str, Any]

READ_BYTES = 65_536
_OF_READERS = frozenset(
    (
        *("message_id", "topic", "group", "offset", "stored_at_ms", "sent_at_ms", "correlation_id", "reply_by_ms"),
        *("attempt", "attempts", "invisible_until_ms", "receipt", "reason", "dead_at_ms"),
    )
)
"""Fields that a message gets from the service. A message that has been read is sent without them."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Stdin:
    """Reads without a buffer, whose lock a thread that reads would hold at the end of the process."""

    def __init__(self) -> None:
        if sys.stdin is None:  # <&-
            raise OSError("stdin is closed")
        self._stream: Any = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        self.is_stopped = False
        """Nothing more is read."""

    def read(self, size: int, /) -> bytes:
        """The next bytes that are there. Empty at the end."""
        if self.is_stopped:
            return b""
        while (data := self._stream.read(size)) is None:  # a pipe that does not block
            select.select([self._stream], [], [])
        return bytes(data)

    def whole(self) -> bytes:
        return b"".join(iter(lambda: self.read(READ_BYTES), b""))


class Malformed(Exception):
    """A line that is no message. `raw`: the line."""

    def __init__(self, raw: bytes, text: str) -> None:
        super().__init__(text)
        self.raw = raw


Entry = Json | Malformed


def pieces(stream: Readable, separator: bytes) -> Iterator[bytes]:
    """The parts between separators, as soon as each is there. Empty ones are left out."""
    held = b""
    while data := stream.read(READ_BYTES):
        *whole, held = (held + data).split(separator) if separator in data else [held + data]
        yield from filter(None, whole)
    if held and not (isinstance(stream, Stdin) and stream.is_stopped):  # then it may be half a message
        yield held


def bodies(stream: Stdin, *, null: bool = False, whole: bool = False) -> Iterator[bytes]:
    """The bodies in a pipe: one a line, or as the options say."""
    if whole:
        if data := stream.whole():
            yield data
        return
    yield from pieces(stream, b"\0" if null else b"\n")


def text_or_bytes(body: bytes) -> str | bytes:
    """Text if it is UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def message_of(body: bytes | str, options: Json) -> Json:
    """A message with this body."""
    return {**body_of(text_or_bytes(body) if isinstance(body, bytes) else body), **options}


def lines(stream: Readable, options: Json) -> Iterator[Entry]:
    """The messages of JSON Lines, as `peek -o jsonl` prints them. `options`: for those that lack them."""
    for raw in pieces(stream, b"\n"):
        if not raw.strip():
            continue
        try:
            message = json.loads(raw, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            yield Malformed(raw, f"no JSON: {error}")
            continue
        if isinstance(message, dict) and isinstance(message.get("body", message.get("body_base64")), str):
            yield {**options, **sendable(message)}
        else:
            yield Malformed(raw, 'no message such as {"body": "..."}')


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def line_of(message: Any) -> str:
    """A message as a line of JSON Lines."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n"


def sendable(message: Json) -> Json:
    """The message without what the service gave it. One that was read has its place from there too."""
    left_out = {*_OF_READERS, "queue"} if "message_id" in message else _OF_READERS
    return {name: value for name, value in message.items() if name not in left_out and value is not None}


# -- batches ----------------------------------------------------------------------------------------------------------


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Parts that each fit into a call."""
    return flows.batches(entries, _weight)


class Mark(enum.Enum):
    LATE = "nothing came in time"
    END = "the source has ended"


class Lingering:
    """As `batches`, of a pipe that may be slow: a part waits no longer than `linger_s` for more."""

    def __init__(self, entries: Iterator[Entry], stream: Stdin, linger_s: float) -> None:
        self._entries, self._stream, self._linger_s = entries, stream, linger_s
        self._waiting: queue.Queue[Entry | OSError | Mark] = queue.Queue(4 * BATCH_MESSAGES_MAX)
        self._part: list[Entry] = []

    def __iter__(self) -> Iterator[list[Entry]]:
        threading.Thread(target=self._read, daemon=True).start()
        size, until = 0, None
        while True:
            entry = self._next(until)
            weight = 0 if isinstance(entry, Mark) else _weight(entry)
            whole: list[Entry] = []
            if isinstance(entry, Mark) or is_full(len(self._part), size + weight):
                whole, self._part = self._part, whole
                size, until = 0, None
            if not isinstance(entry, Mark):
                self._part.append(entry)
                size += weight
                until = until or time.monotonic() + self._linger_s
            if whole:
                yield whole
            if entry is Mark.END:
                return

    def rest(self) -> list[Entry]:
        """Stops reading, and takes what was read."""
        self._stream.is_stopped = True
        part, self._part = self._part, []
        while not isinstance(entry := self._next(time.monotonic() + 0.1), Mark):
            part.append(entry)
        return part

    def _read(self) -> None:
        try:
            for entry in self._entries:
                self._waiting.put(entry)
        except OSError as error:
            self._waiting.put(error)
        self._waiting.put(Mark.END)

    def _next(self, until: float | None) -> Entry | Mark:
        """Raises OSError if the pipe cannot be read."""
        try:
            entry = self._waiting.get(timeout=None if until is None else max(until - time.monotonic(), 0))
        except queue.Empty:
            return Mark.LATE
        if isinstance(entry, OSError):
            raise entry
        return entry


def _weight(entry: Entry) -> int:
    return 0 if isinstance(entry, Malformed) else weight_of(entry)
