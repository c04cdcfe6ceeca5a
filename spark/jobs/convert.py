"""Makes tables of the layout before versions (`messages/topic=.../date=.../export=...`) into tables of this one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.errors import BadInput
from spark.files import Place
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.export_pass import ALL, KNOWN, TOPICS
from spark.landing.known import KnownOffsets
from spark.landing.unpacked import MESSAGES, messages_writer
from spark.tables.tables import Tables
from spark.tables.versions import File, Part, TablesChange
from spark.tables.writing import WrittenPart, as_parts, read_rows, write_part

_OF_MESSAGES = re.compile(r"topic=([^/]+)/(date=[^/]+)/export=([^/]+)/[^/]+\.parquet")
_OF_OTHERS = re.compile(r"(export=[^/]+)/([^/]+\.parquet)")
_KEPT = ("violations", "backlog", "requests", "dead_letters", "dead_messages", "cost", "quarantine")
"""Their files stay as they are."""
_MADE_ANEW = ("traffic", "hot_keys", "skew", "delays", "delay_histogram", "delay_waiting", "compact")
_UNFINISHED = "_unfinished"
_FILES_OF_TASK = 64


def run(run: Run) -> JobResult:
    root = run.tables.root
    if (root / MESSAGES / "_SUCCESS").size() is None:
        raise BadInput(f"{root} has no tables of the layout before versions")
    old = [each.name for each in (root / MESSAGES).files() if _OF_MESSAGES.fullmatch(each.name)]
    if not run.tables.versions.newest().number:
        _demand_finished(root)
        parts = [old[at : at + _FILES_OF_TASK] for at in range(0, len(old), _FILES_OF_TASK)]
        results = run.in_tasks(partial(_converted, root), parts)
        run.tables.commit(_change(root, results))
    _remove(run.tables, old)
    rows = sum(part.rows for part in run.tables.parts(MESSAGES).values())
    return JobResult(f"{rows} messages; the next pipeline makes {', '.join(_MADE_ANEW)} anew", str(root))


def _demand_finished(root: Place) -> None:
    """Raises if a run of an older release crashed while it replaced partitions and left some of their rows aside."""
    if any(name.startswith(f"{MESSAGES}-") and name.endswith(".old") for name in (root / _UNFINISHED).names()):
        raise BadInput(
            f"a run of an older release has died, and {root / _UNFINISHED} has some of its messages: run the job"
            " messages on the same export again with that release, then convert"
        )


def _remove(tables: Tables, messages: list[str]) -> None:
    """Removes files that the new tables no longer have. Files that mark the old layout go last."""
    root, version = tables.root, tables.newest()
    for name in messages:
        (root / MESSAGES / name).delete()
    for each in (root / TOPICS).files():
        if _OF_OTHERS.fullmatch(each.name):
            (root / TOPICS / each.name).delete()
    for table in (*_MADE_ANEW, "arrived", _UNFINISHED, "_checkpoint"):
        if not version.parts(table):
            (root / table).delete_folder()
    (root / MESSAGES / "_SUCCESS").delete()


def _converted(root: Place, names: list[str]) -> tuple[list[WrittenPart], KnownOffsets]:
    writer, known = messages_writer(root), list[KnownOffsets]()
    for name in names:
        match = _OF_MESSAGES.fullmatch(name)
        topic, date, export = match.groups() if match else ("", "", "")
        for batch in read_rows([root / MESSAGES / name]):
            known.append(KnownOffsets.of_messages(batch))
            writer.add(_with(batch, topic=unquote(topic), export=unquote(export)), date)
    return writer.close(), KnownOffsets().with_(known)


def _with(batch: pa.RecordBatch, **values: str) -> pa.RecordBatch:
    """The rows in this layout. Columns added since are null."""
    names = [field for field in to_arrow_schema(schemas.MESSAGES) if field.name != "date"]
    fields = [*names, pa.field("export", pa.string())]
    columns = [
        pa.repeat(pa.scalar(values[field.name]), len(batch))
        if field.name in values
        else batch[field.name].cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def _change(root: Place, results: Iterable[tuple[list[WrittenPart], KnownOffsets]]) -> TablesChange:
    results = list(results)
    change = TablesChange(added=dict(as_parts(written for task, _ in results for written in task)))
    known = KnownOffsets().with_(found for _, found in results)
    change.put[KNOWN, ALL] = write_part(root, KNOWN, ALL, known.rows())
    change.put[TOPICS, ALL] = write_part(root, TOPICS, ALL, _names(root))
    for table in _KEPT:
        for part, files in _in_place(root, table):
            change.put[table, part] = Part(files)
    return change


def _names(root: Place) -> pa.Table:
    places = [root / TOPICS / each.name for each in (root / TOPICS).files() if _OF_OTHERS.fullmatch(each.name)]
    names = {row["topic_id"]: row["topic"] for batch in read_rows(places) for row in batch.to_pylist()}
    columns = [pa.array(list(column), pa.string()) for column in (names.keys(), names.values())]
    return pa.table(columns, to_arrow_schema(schemas.TOPICS))


def _in_place(root: Place, table: str) -> Iterator[tuple[str, tuple[File, ...]]]:
    """The partitions that a table has, with their files."""
    found: dict[str, list[File]] = {}
    for each in (root / table).files():
        if match := _OF_OTHERS.fullmatch(each.name):
            files, path = (root / table / each.name).located()
            with pq.ParquetFile(files.open_input_file(path)) as file:
                size = (root / table / each.name).size() or 0
                found.setdefault(match[1], []).append(File(match[2], file.metadata.num_rows, size))
    for part, of in found.items():
        yield part, tuple(of)


JOB = Job("convert", __doc__ or "", run, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
