"""The lines of a compressed data file, in blocks, while it is read: memory does not grow with the file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from isal import isal_zlib

from spark.reading.manifest import DataFile

_READ_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
"""Decompressed: large enough for columns to pay, small beside what a worker has."""
_LINE_BYTES_MAX = 16 << 20
"""The longest line accepted. An item has 400 KB at most; in base64, and with its old image, a line has about 1.2 MB at
most."""
_GZIP = 16 + isal_zlib.MAX_WBITS
RAW_BYTES_MAX = 200


class Trouble(NamedTuple):
    """A row of the quarantine, but for the file. `line` 0: the file as a whole."""

    line: int
    reason: str
    raw: str = ""


class Block(NamedTuple):
    """Whole lines. `first`: the number of the first line, from 1."""

    first: int
    text: bytes


@dataclass
class LineReader:
    """Iterate once. Afterwards `troubles` holds the errors of the file as a whole."""

    file: DataFile
    troubles: list[Trouble] = field(default_factory=list)
    _count: int = 0

    def __iter__(self) -> Iterator[Block]:
        digest = hashlib.md5(usedforsecurity=False)
        rest: list[bytes] = []
        try:
            for text in self._decompressed(digest):
                head, newline, tail = text.rpartition(b"\n")
                if newline:
                    yield self._block(b"".join([*rest, head]))
                    rest = []
                rest.append(tail)
                if sum(map(len, rest)) > _LINE_BYTES_MAX:
                    raise EOFError(f"a line is longer than {_LINE_BYTES_MAX} bytes")
        except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc]  # a class, against its stubs
            reason = str(error).partition("\n")[0]
            cut = b"".join(rest)[:RAW_BYTES_MAX].decode(errors="replace")
            self.troubles.append(Trouble(self._count + 1, f"from here on the file cannot be read: {reason}", cut))
            return
        if last := b"".join(rest):
            yield self._block(last)
        self._compare(base64.b64encode(digest.digest()).decode())

    def _block(self, text: bytes) -> Block:
        first = self._count + 1
        self._count += text.count(b"\n") + 1
        return Block(first, text)

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
            self.troubles.append(Trouble(0, f"the file has the checksum {md5}, the manifest says {self.file.md5}"))
        if self._count != self.file.items:
            self.troubles.append(Trouble(0, f"the file has {self._count} lines, the manifest counts {self.file.items}"))
