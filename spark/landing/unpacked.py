"""The task that unpacks unknown entries into rows of the table `messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.files import Place
from spark.landing.aside import AsideFiles
from spark.landing.known import KnownOffsets
from spark.landing.landed import QUARANTINE, Landing
from spark.reading.inside import is_plain
from spark.tables.writing import PartWriter, WrittenPart
from spark.unpacking.unpack import ReadBlob, unpack

MESSAGES, UNREADABLE = "messages", "_unreadable"
OF_ENTRIES = "entries-"
"""The prefix of quarantine files about entries; the others are about unreadable lines."""
_ORDER = ("topic", "queue", "offset")
_REPEATED = ("topic", "topic_id", "queue", "tag", "entry_id", "stored_at_ms", "export")
_COLUMNS = [name for name in schemas.MESSAGES.names if name not in ("topic", "date")]
_QUARANTINE, _UNREADABLE = to_arrow_schema(schemas.QUARANTINE), to_arrow_schema(schemas.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """`names`: the topics by id; messages of other topics are left out. `keeps`: whether messages are written, or only
    checked. `blobs`: the place of bodies in S3."""

    landing: Landing
    names: Mapping[str, str]
    keeps: bool
    blobs: Place | None = None
    known: KnownOffsets | None = None
    """Known messages, to add each other message once; None: no entry has any of them again."""
    superseded: frozenset[tuple[str, int]] = frozenset()
    """Files and lines of items that have a newer image in the export."""


@dataclass(slots=True)
class Unpacked:
    """`known`: the written messages. Counts: entries that cannot be unpacked, messages of deleted topics, and known
    messages in unknown entries."""

    written: list[WrittenPart] = field(default_factory=list)
    known: KnownOffsets = field(default_factory=KnownOffsets)
    failed: int = 0
    orphaned: int = 0
    there: int = 0


@dataclass(slots=True)
class _UnpackTask:
    unpacking: Unpacking
    messages: PartWriter
    quarantine: PartWriter
    unreadable: PartWriter
    done: Unpacked = field(default_factory=Unpacked)
    brought: list[KnownOffsets] = field(default_factory=list)
    known: KnownOffsets | None = field(init=False)
    ids: pa.Array = field(init=False)
    names: pa.Array = field(init=False)

    def __post_init__(self) -> None:
        self.known = self.unpacking.known
        self.ids = pa.array(list(self.unpacking.names), pa.string())
        self.names = pa.array(list(self.unpacking.names.values()), pa.string())

    def add(self, rows: pa.RecordBatch, is_here: bool) -> None:
        """Adds a batch that `unpack` has returned. `is_here`: the messages were in the export."""
        if rows["failure"].null_count < len(rows):
            self._fail(rows.filter(rows["failure"].is_valid()), is_here)
            rows = rows.filter(rows["failure"].is_null())
        topics = self.names.take(pc.index_in(rows["topic_id"], self.ids))
        self.done.orphaned += topics.null_count
        if not self.unpacking.keeps:
            return
        export = pa.repeat(pa.scalar(self.unpacking.landing.export_id), len(rows))
        given = [topics, *(rows[name] for name in _COLUMNS), export, rows["date"]]
        named = pa.RecordBatch.from_arrays(given, ["topic", *_COLUMNS, "export", "date"])
        if topics.null_count:
            named = named.filter(topics.is_valid())
        if self.known is not None:
            named = self._only_new(named, self.known)
        self.messages.add_days(named)
        self.brought.append(KnownOffsets.of_messages(named))

    def _only_new(self, messages: pa.RecordBatch, known: KnownOffsets) -> pa.RecordBatch:
        """The unknown messages, each once. Adds them to the known ones."""
        is_there = known.has(messages.append_column("count", pa.repeat(1, len(messages))))
        self.done.there += is_there.true_count
        places = messages.select(["topic_id", "queue", "offset"]).append_column(
            "at", pa.array(np.arange(len(messages)))
        )
        groups = pa.Table.from_batches([places.filter(pc.invert(is_there))]).group_by(["topic_id", "queue", "offset"])
        firsts = groups.aggregate([("at", "min")])["at_min"].to_numpy()
        new = messages.take(pa.array(np.sort(firsts)))
        self.known = known.with_([KnownOffsets.of_messages(new)])
        return new

    def _fail(self, rows: pa.RecordBatch, is_here: bool) -> None:
        self.done.failed += len(rows)
        part = self.unpacking.landing.part
        places = {name: rows[name] for name in ("topic_id", "queue", "offset", "entry_id")}
        said = {name: pc.struct_field(rows["failure"], name) for name in ("file", "line", "reason")}
        if is_here:  # the audit itself looks for missing payloads, and cannot judge those in S3
            self.unreadable.add(_made({**places, **said}, _UNREADABLE), part)
        if self.unpacking.keeps:
            texts = [pa.array(places[name].cast(pa.string())) for name in ("entry_id", "offset")]
            reason = pc.binary_join_element_wise("entry ", texts[0], " at offset ", texts[1], ": ", said["reason"], "")
            raw = pa.repeat(pa.scalar(""), len(rows))
            self.quarantine.add(_made({**said, "reason": reason, "raw": raw}, _QUARANTINE), part, OF_ENTRIES)


def unpacked(unpacking: Unpacking, sources: Iterable[AsideFiles]) -> Unpacked:
    root = unpacking.landing.root
    writers = messages_writer(root), PartWriter(root, QUARANTINE), PartWriter(root, UNREADABLE)
    task = _UnpackTask(unpacking, *writers)
    for batch in chain.from_iterable(source.entries() for source in sources):
        current = _current(batch, unpacking.superseded)
        for is_here in (True, False):
            chosen = current.filter(pc.equal(current["data"].is_valid(), is_here))
            for rows in unpack(chosen, reader_of(unpacking.blobs)):
                task.add(rows, is_here)
    task.done.written = [written for writer in writers for written in writer.close()]
    task.done.known = KnownOffsets().with_(task.brought)
    return task.done


def messages_writer(root: Place) -> PartWriter:
    return PartWriter(root, MESSAGES, _ORDER, _REPEATED)


def reader_of(blobs: Place | None) -> ReadBlob | None:
    if blobs is None:
        return None

    def read_blob(topic_id: str, entry_id: bytes) -> bytes | None:
        if not is_plain(topic_id):  # it is the export's: anything may stand there
            return None
        blob = blobs / f"payloads/{topic_id}/{entry_id.hex()}"
        return None if blob.size() is None else blob.read()

    return read_blob


def _current(entries: pa.RecordBatch, superseded: frozenset[tuple[str, int]]) -> pa.RecordBatch:
    if not superseded:
        return entries
    lines = zip(entries["file"].to_pylist(), entries["line"].to_pylist(), strict=True)
    return entries.filter(pa.array([line not in superseded for line in lines], pa.bool_()))


def _made(given: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([given[name] for name in schema.names], schema=schema)
