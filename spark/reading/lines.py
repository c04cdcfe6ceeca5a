"""The lines of a compressed data file, some at a time: memory grows neither with the file nor with its unpacked size.
Empty lines cost next to nothing, and are not counted."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from isal import isal_zlib

from spark.reading.manifest import DataFile

_READ_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
"""The decompressed size: large enough for columns to pay off, small compared with a worker's memory."""
_LINES_AT_ONCE = 1 << 16
"""The most lines in a block, which bounds memory however short the lines are. A block of items has fewer."""
_ITEM_BYTES_MIN = 32
"""The shortest line of an item. If the average line is shorter, many are empty, and are skipped without an object
each."""
LINE_BYTES_MAX = 8 << 20
"""The longest line accepted, noticed at the end of a block. An item has 400 KB at most, and typed JSON has up to nine
bytes for each of them (a list of empty texts); with the old image of an incremental export that makes 7.1 MiB."""
_GZIP = 16 + isal_zlib.MAX_WBITS
RAW_BYTES_MAX, REASON_CHARS_MAX = 200, 500
_FULL = re.compile(rb"[^\n]+")

Line = tuple[int, bytes]
"""The line's number in the file, from 1, and its text, which is not empty."""


class BadLine(NamedTuple):
    """A row of the quarantine without the file. `line` 0: the file as a whole."""

    line: int
    reason: str
    raw: str = ""


@dataclass
class LineReader:
    """Iterate once, over lists of lines. Afterwards `troubles` holds the errors of the file as a whole. `_passed`: the
    number of lines with empty ones, `_count`: without."""

    file: DataFile
    troubles: list[BadLine] = field(default_factory=list)
    _passed: int = 0
    _count: int = 0

    def __iter__(self) -> Iterator[list[Line]]:
        digest = hashlib.md5(usedforsecurity=False)
        rest: list[bytes] = []
        try:
            for text in self._decompressed(digest):
                head, newline, tail = text.rpartition(b"\n")
                if newline:
                    yield from self._lines(b"".join([*rest, head]))
                    rest = []
                rest.append(tail)
                if sum(map(len, rest)) > LINE_BYTES_MAX:
                    raise EOFError(f"a line is longer than {LINE_BYTES_MAX} bytes, the most that an item can have")
        except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc]  # a class, against its stubs
            reason = str(error).partition("\n")[0]
            cut = b"".join(rest)[:RAW_BYTES_MAX].decode(errors="replace")
            self.troubles.append(BadLine(self._passed + 1, f"from here on the file cannot be read: {reason}", cut))
            return
        if last := b"".join(rest):
            yield from self._lines(last)
        self._compare(base64.b64encode(digest.digest()).decode())

    def _lines(self, text: bytes) -> Iterator[list[Line]]:
        """The lines of a text of whole lines, without a line end at the end."""
        first, count = self._passed + 1, text.count(b"\n") + 1
        self._passed += count
        is_sparse = len(text) < count * _ITEM_BYTES_MIN
        lines = _full(text, first) if is_sparse else (line for line in enumerate(text.split(b"\n"), first) if line[1])
        while some := list(islice(lines, _LINES_AT_ONCE)):
            self._count += len(some)
            yield some

    def _decompressed(self, digest: hashlib._Hash) -> Iterator[bytes]:
        """Blocks of the text. Raises `EOFError` if the text is truncated, `isal_zlib.error` if it is corrupt."""
        inflate = isal_zlib.decompressobj(_GZIP)
        with self.file.place.open() as stream:
            while raw := stream.read(_READ_BYTES):
                digest.update(raw)
                while raw:
                    if inflate.eof:  # a file may be of several members
                        inflate = isal_zlib.decompressobj(_GZIP)
                    if text := inflate.decompress(raw, _BLOCK_BYTES):
                        yield text
                    raw = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        while not inflate.eof and (text := inflate.decompress(inflate.unconsumed_tail, _BLOCK_BYTES)):
            yield text
        if not inflate.eof:
            raise EOFError("the compressed data end too soon")

    def _compare(self, md5: str) -> None:
        if md5 != self.file.md5:
            self.troubles.append(BadLine(0, f"the file has the checksum {md5}, the manifest says {self.file.md5}"))
        if self._count != self.file.items:
            self.troubles.append(BadLine(0, f"the file has {self._count} lines, the manifest counts {self.file.items}"))


def _full(text: bytes, first: int) -> Iterator[Line]:
    """The non-empty lines, one by one; skips runs of empty lines at once."""
    number, at = first, 0
    for found in _FULL.finditer(text):
        number += text.count(b"\n", at, found.start())
        at = found.start()
        yield number, found[0]
