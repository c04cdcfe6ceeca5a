"""Small tables as frames with their rows in the plan: Spark drops plan parts without rows, and needs no task to read
them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.files import Place
from spark.tables.writing import read_rows

BYTES_MAX = 4 << 20
"""The uncompressed size of all rows. Each plan carries them."""
FILES_MAX = 64
"""Reading this many files in a row takes less time than a task."""


def frame_at_hand(spark: SparkSession, places: list[Place], schema: StructType) -> DataFrame | None:
    """The rows of these files, of one table; None if they are too large. The partition's column, if in the schema,
    comes from the path; other columns missing from a file are null."""
    if len(places) > FILES_MAX or sum(map(_bytes, places)) > BYTES_MAX:
        return None
    wanted = to_arrow_schema(schema)
    rows = pa.concat_tables([wanted.empty_table(), *_tables(places, wanted)], promote_options="default")
    return spark.createDataFrame(rows.select(wanted.names), schema)


def _tables(places: list[Place], wanted: pa.Schema) -> Iterator[pa.Table]:
    for place in places:
        column, _, value = place.parent.name.partition("=")
        for batch in read_rows([place]):
            rows = pa.Table.from_batches([batch])
            if column in wanted.names and column not in rows.column_names:
                part = pa.scalar(value).cast(wanted.field(column).type)
                rows = rows.append_column(column, pa.repeat(part, len(rows)))
            yield rows


def _bytes(place: Place) -> int:
    files, path = place.located()
    with pq.ParquetFile(files.open_input_file(path)) as file:
        groups = range(file.metadata.num_row_groups)
        return sum(file.metadata.row_group(group).total_byte_size for group in groups)
