"""Tables of the layout before versions become tables of this one, whatever dies on the way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.frame.job import main
from spark.jobs import convert, messages
from spark.tables.tables import Tables
from tests.spark.exports import write_items
from tests.spark.items import entry, segment, topic
from tests.spark.killing import run_until


def _old_layout(root: Path, new: Path) -> None:
    """The same messages as in `new`, as releases before versions had them."""
    for row in pq.read_table(new / "messages").to_pylist():
        folder = root / f"messages/topic={row.pop('topic')}/date={row.pop('date')}/export={row.pop('export')}"
        folder.mkdir(parents=True, exist_ok=True)
        known = {name: row[name] for name in ("topic_id", "queue", "offset", "stored_at_ms", "key", "body", "is_text")}
        pq.write_table(pa.Table.from_pylist([known]), folder / f"part-{row['offset']}.zstd.parquet")
    for table in ("topics", "traffic", "backlog"):
        folder = root / table / "export=1-a"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"topic_id": ["Tt"], "topic": ["orders"]}), folder / "part-0.parquet")
    (root / "messages/_SUCCESS").touch()


def test_a_conversion_killed_anywhere_keeps_each_message_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [entry(b'{"b":"m%d","k":"k"}' % number, number.to_bytes(8)) for number in range(4)]
    export = str(write_items(tmp_path / "export", [topic(), segment(*entries)]))
    assert main(messages.JOB, ["--export", export, "--tables", str(tmp_path / "new")]) == 0
    old = tmp_path / "old"
    _old_layout(old, tmp_path / "new")
    aside = old / "_unfinished/messages-1-a.old"
    aside.mkdir(parents=True)
    assert main(convert.JOB, ["--tables", str(old)]) == 1
    assert f"{old}/_unfinished has some of its messages" in capsys.readouterr().err
    aside.rmdir()
    step = 0
    while run_until(step, convert.JOB, ["--tables", str(old)]):
        step += 1
    assert step > 4
    tables = Tables(str(old))
    rows = pq.read_table(old / "messages").to_pylist()
    assert sorted((row["body"], row["topic"], row["export"]) for row in rows) == sorted(
        (row["body"], row["topic"], row["export"]) for row in pq.read_table(tmp_path / "new/messages").to_pylist()
    )
    assert (tables.parts("backlog")["export=1-a"].rows, len(tables.parts("traffic"))) == (1, 0)
    capsys.readouterr()
    assert main(messages.JOB, ["--export", export, "--tables", str(old)]) == 0
    assert "0 messages, 4 already there" in capsys.readouterr().out
    assert main(convert.JOB, ["--tables", str(old)]) == 1
    assert capsys.readouterr().err == f"convert: {old} has no tables of the layout before versions\n"
