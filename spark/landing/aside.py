"""The packed messages of unknown entries, which a pass sets aside between its two steps. Those of a large entry are in
payload items anywhere in the export, so entries and payloads go into buckets by the entry's id, and a task that reads a
bucket finds both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.files import Place
from spark.tables.versions import File
from spark.tables.writing import WrittenPart, read_rows
from spark.unpacking.entries import SCHEMA, assembled

ENTRIES, PLACES, PIECES = "entries", "places-", "pieces-"
"""Folders: of entries with their messages; for each bucket, of entries with the number of their pieces, and of the
pieces of all payloads."""
_ORDER = [("topic_id", "ascending", "at_end"), ("entry_id", "ascending", "at_end"), ("piece", "ascending", "at_start")]


class AsideFiles(NamedTuple):
    """Files with entries, and with the pieces of messages that are stored apart. `bytes`: the total size. `slices`: the
    number of slices in which entries are read, so that they fit into memory with their messages."""

    places: list[Place]
    pieces: list[Place]
    bytes: int
    slices: int = 1

    def entries(self) -> Iterator[pa.RecordBatch]:
        """The entries as `item_schemas.PACKED`, each with its data if all pieces are there."""
        if not self.pieces:
            yield from read_rows(self.places)
            return
        places = pa.Table.from_batches(read_rows(self.places), SCHEMA).combine_chunks()
        for wanted in places.to_batches(len(places) // self.slices + 1):
            ids = wanted["entry_id"]
            pieces = [batch.filter(pc.is_in(batch["entry_id"], ids)) for batch in read_rows(self.pieces)]
            both = pa.Table.from_batches([wanted, *pieces])
            yield from assembled(both.take(pc.sort_indices(both, _ORDER)).to_batches())


def sources(folder: Place, aside: Iterable[WrittenPart], slice_bytes: int) -> list[AsideFiles]:
    """The entries to unpack in these files, which tasks have written into this folder."""
    parts: dict[str, list[File]] = {}
    for written in aside:
        parts.setdefault(written.part, []).append(written.file)
    alone = [AsideFiles([folder / ENTRIES / file.name], [], file.bytes) for file in parts.get(ENTRIES, [])]
    buckets = [part.removeprefix(PLACES) for part in sorted(parts) if part.startswith(PLACES)]
    together = []
    for named in ((f"{PLACES}{bucket}", f"{PIECES}{bucket}") for bucket in buckets):
        places, pieces = ([folder / part / file.name for file in parts.get(part, [])] for part in named)
        size = sum(file.bytes for part in named for file in parts.get(part, []))
        together.append(AsideFiles(places, pieces, size, size // slice_bytes + 1))
    return [*alone, *together]


def in_buckets(rows: pa.RecordBatch, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of `item_schemas.PACKED`, divided by the last byte of their entry's id."""
    if buckets == 1 or not len(rows):
        yield 0, rows
        return
    numbers = np.array([entry_id[-1] if entry_id else 0 for entry_id in rows["entry_id"].to_pylist()]) * buckets // 256
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=buckets))
    ordered = rows.take(pa.array(order))
    for bucket, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        yield bucket, ordered.slice(start, end - start)
