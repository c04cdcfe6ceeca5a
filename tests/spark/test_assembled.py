"""Packed messages that lie in payload items come together again, wherever the sorted batches are cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark.unpacking.entries import SCHEMA, assembled

ROWS: list[dict[str, Any]] = [
    {"topic_id": "a", "entry_id": b"1", "offset": 1, "data": b"own"},
    {"topic_id": "a", "entry_id": b"2", "offset": 2, "pieces": 2},
    {"topic_id": "a", "entry_id": b"2", "offset": 9, "pieces": 2},
    {"topic_id": "a", "entry_id": b"2", "piece": 0, "data": b"he"},
    {"topic_id": "a", "entry_id": b"2", "piece": 1, "data": b"ld"},
    {"topic_id": "b", "entry_id": b"2", "offset": 3, "pieces": 2},
    {"topic_id": "b", "entry_id": b"2", "piece": 1, "data": b"ld"},
    {"topic_id": "b", "entry_id": b"3", "piece": 0, "data": b"of no entry"},
    {"topic_id": "b", "entry_id": b"4", "offset": 4, "pieces": 0},
    {"topic_id": "b", "entry_id": b"5", "offset": 5, "pieces": 2},
    {"topic_id": "b", "entry_id": b"5", "piece": 0, "data": b"no second"},
    {"topic_id": "b", "entry_id": b"6", "offset": 6, "pieces": 2},
    {"topic_id": "b", "entry_id": b"6", "piece": 0, "data": b"no second"},
    {"topic_id": "b", "entry_id": b"6", "piece": 2, "data": b"but a third"},
    {"topic_id": "b", "entry_id": b"7", "offset": 7, "pieces": 1},
    {"topic_id": "b", "entry_id": b"7", "piece": 0, "data": b""},
    {"topic_id": "b", "entry_id": b"8", "offset": 8, "pieces": 1},
    {"topic_id": "b", "entry_id": b"8", "piece": 0, "data": b"more than"},
    {"topic_id": "b", "entry_id": b"8", "piece": 1, "data": b"it names"},
]
WHOLE = {1: b"own", 2: b"held", 9: b"held", 3: None, 4: None, 5: None, 6: None, 7: b"", 8: None}


@pytest.mark.parametrize("size", [1, 2, 3, 5, len(ROWS)])
def test_an_entry_has_the_data_of_its_pieces_if_all_are_there(size: int) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    cut = [rows.slice(at, size) for at in range(0, len(rows), size)]
    found = [row for batch in assembled([rows.slice(0, 0), *cut]) for row in batch.to_pylist()]
    assert {row["offset"]: row["data"] for row in found} == WHOLE
    assert len(found) == len(WHOLE)
    assert [(row["topic_id"], row["pieces"]) for row in found if row["offset"] in (9, 3)] == [("a", 2), ("b", 2)]
    assert "piece" not in found[0]


def test_of_nothing_comes_nothing() -> None:
    nothing = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert list(assembled([])) == list(assembled([nothing])) == []
