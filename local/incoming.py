"""What a connection has received and not yet read.

Readers are generators. They yield a `Pause` where they have to wait; whoever drives them resumes them when that
is over. A request that has arrived whole is read without a pause.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import Enum
from typing import TypeVar

from chalicelib.core.base.errors import InvalidField

T = TypeVar("T")

HEAD_BYTES_MAX = 64 * 1024
"""The request line and all headers. AWS load balancers accept as much, API Gateway less."""

HEADERS_MAX = 99
"""As many as the standard library accepts, which counts the blank line."""

LINE_BYTES_MAX = 1_024
"""A chunk's size and its extensions, or one trailer."""

CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*+;[\t -~\x80-\xff]{0,%d}+)?\r\n" % LINE_BYTES_MAX)
"""The size of a chunk, and extensions, which are ignored."""

_BLANK = (b"\r\n", b"\n")
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_END_BYTES_MAX = 3


class Pause(Enum):
    INPUT = "until more has arrived"
    OUTPUT = "until the client has read all that was sent"
    ANSWER = "until the request is executed"
    TURN = "until the other connections have had their turn"


Steps = Generator[Pause, None, T]


class Incoming:
    """`has_ended`: no more comes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.has_ended = False

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data

    def clear(self) -> None:
        self._bytes.clear()

    def head(self) -> Steps[bytes]:
        """The head of a request up to its blank line. One blank line before it is ignored: old clients send one behind
        a body.

        Raises `EOFError` if the connection ends before that: a head without its blank line may lack anything, such as
        the length of the body, and must not be executed."""
        head = yield from self._to_blank()
        return (yield from self._to_blank()) if head in _BLANK else head

    def _to_blank(self) -> Steps[bytes]:
        searched = lines = 0
        while (end := self._end_of_head(searched)) is None:
            lines += self._bytes.count(b"\n", searched)
            searched = len(self._bytes)
            _demand_small(searched, lines)
            yield from self.more()
        _demand_small(end, self._bytes.count(b"\n", 0, end) - 1)
        return self._taken(end)

    def exactly(self, size: int) -> Steps[bytes]:
        """Raises `EOFError` if the connection ends before that."""
        while len(self._bytes) < size:
            yield from self.more()
        return self._taken(size)

    def take_chunks(self, body: bytearray, most: int) -> int:
        """Adds the data of so many chunks to the body, as far as they have arrived whole. Returns how many it took:
        any other is left to be read step by step, which takes ten times as long."""
        at = taken = 0
        while taken < most and (head := CHUNK_HEAD.match(self._bytes, at)):
            end = head.end() + int(head[1], 16)
            if end == head.end() or self._bytes[end : end + 2] != b"\r\n":
                break
            body += self._bytes[head.end() : end]
            at, taken = end + 2, taken + 1
        del self._bytes[:at]
        return taken

    def line(self) -> Steps[bytes]:
        """Up to its end, which is left out: of lines within a body, a line feed alone is none, as others may not take
        it for one. Raises `EOFError` if the connection ends before that."""
        while (end := self._bytes.find(b"\n", 0, LINE_BYTES_MAX)) < 0:
            if len(self._bytes) >= LINE_BYTES_MAX:
                raise InvalidField(f"the request body has a chunk header of more than {LINE_BYTES_MAX} bytes")
            yield from self.more()
        line = self._taken(end + 1)
        if not line.endswith(b"\r\n"):
            raise InvalidField("a line of a chunked body must end with a carriage return and a line feed")
        return line[:-2]

    def _end_of_head(self, searched: int) -> int | None:
        """Where it ends. `searched`: it does not end within so many bytes."""
        for blank in _BLANK:
            if self._bytes.startswith(blank):
                return len(blank)
        found = _END_OF_HEAD.search(self._bytes, max(0, searched - _END_BYTES_MAX))
        return found.end() if found else None

    def more(self) -> Steps[None]:
        if self.has_ended:
            raise EOFError
        yield Pause.INPUT

    def _taken(self, size: int) -> bytes:
        with memoryview(self._bytes) as view:
            taken = bytes(view[:size])
        del self._bytes[:size]
        return taken


def _demand_small(size: int, lines: int) -> None:
    """`lines`: the request line and headers."""
    if size > HEAD_BYTES_MAX:
        raise InvalidField(f"the head of the request has more than {HEAD_BYTES_MAX} bytes")
    if lines > HEADERS_MAX + 1:
        raise InvalidField(f"the request has more than {HEADERS_MAX} headers")
