"""Runs functions where the data are: in tasks of Spark, or here if there is little to do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

Given = TypeVar("Given")
Made = TypeVar("Made")
OpenSession = Callable[[], SparkSession]


def in_tasks(open_session: OpenSession, function: Callable[[Given], Made], parts: Sequence[Given]) -> list[Made]:
    """What the function returns for each part, in any order: in a task for each, or here if there is one. It is called
    again for a part whose task has failed."""
    if len(parts) <= 1:
        return [function(part) for part in parts]
    context = open_session().sparkContext
    made: list[Made] = context.parallelize(parts, len(parts)).map(function).collect()
    return made


def over_rows(rows: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Made]) -> list[Made]:
    """What the function returns for the rows of each partition, in any order."""
    made = rows.mapInArrow(partial(_pickled, function), "made binary").collect()
    return [pickle.loads(row["made"]) for row in made]  # noqa: S301  it was made by the task above


def _pickled(
    function: Callable[[Iterable[pa.RecordBatch]], Made], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"made": [pickle.dumps(function(batches))]})
