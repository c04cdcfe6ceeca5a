"""Synthetic exports: the same for the same arguments, read whole, and their answers are true."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest

from spark.errors import BadInput
from spark.reading.manifest import read_export
from tests.spark.exports import read
from tests.synthetic import Defect, Shape, answers, file_defects, generate
from tests.synthetic.__main__ import main

SMALL = Shape(4_000, files=3, topics=1, queues=2)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_arguments_give_the_same_export_and_another_seed_another(tmp_path: Path) -> None:
    first = contents(generate(tmp_path / "a", SMALL))
    assert first == contents(generate(tmp_path / "b", SMALL))
    assert len(first) == 3 + 1 + 4 + 1
    other = generate(tmp_path / "c", Shape(4_000, files=3, topics=1, queues=2, seed=8))
    assert first.keys() & contents(other).keys() == {
        "_started",
        "answers.json",
        "manifest-files.json",
        "manifest-files.md5",
        "manifest-summary.json",
        "manifest-summary.md5",
    }


def test_a_clean_export_is_read_whole(tmp_path: Path) -> None:
    folder = generate(tmp_path, SMALL)
    known = answers(folder)
    rows, troubles = read(folder)
    assert Counter(row["kind"] for row in rows) == known["kinds"]
    logs: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        if segment := row["segment"]:
            place = row["topic_id"], segment["queue"]
            end, count = logs.get(place, (0, 0))
            logs[place] = max(end, segment["end"]), count + sum(entry["count"] for entry in segment["entries"])
    assert logs == {(queue["topic_id"], queue["queue"]): (queue["messages"],) * 2 for queue in known["queues"]}
    assert sum(known["topics"].values()) == known["messages"] == 4_000
    assert troubles == []


def test_an_incremental_export_has_what_came_after_a_smaller_one(tmp_path: Path) -> None:
    generate(tmp_path, Shape(2_000, files=3, topics=1, queues=2))
    folder = generate(tmp_path, Shape(4_000, files=3, topics=1, queues=2, since=2_000))
    known, export = answers(folder), read_export(str(folder))
    assert export.is_incremental
    assert known["new_messages"] == 2_000
    rows, _ = read(folder)
    assert sum(row["is_deleted"] for row in rows) == 6
    segments = [row["segment"] for row in rows if row["segment"]]
    assert min(segment["end"] for segment in segments) > 1_000 >= min(segment["base"] for segment in segments)


IN_ITEMS = frozenset(Defect) - {
    *(Defect.NO_MANIFEST, Defect.WRONG_MANIFEST, Defect.MISSING_FILE, Defect.TRUNCATED_FILE, Defect.CORRUPT_LINE),
    *(Defect.WRONG_CHECKSUM, Defect.WRONG_COUNT),
}


def test_every_defect_of_items_is_planted_where_the_answers_say(tmp_path: Path) -> None:
    folder = generate(tmp_path, Shape(8_000, files=2, topics=1, queues=2, defects=IN_ITEMS))
    planted = {defect["defect"]: defect for defect in answers(folder)["planted"]}
    assert set(planted) == {defect.value for defect in IN_ITEMS}
    items = {}
    for path in folder.glob("data/*.gz"):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            item = orjson.loads(line)["Item"]
            items[item["pk"]["S"], item["sk"]["S"]] = item
    hole = planted["hole"]
    log = f"log#{hole['topic_id']}#0"
    assert (log, f"{hole['offset']:015d}") not in items
    assert (log, f"{hole['end']:015d}") in items
    assert (log, f"{planted['overlap']['offset']:015d}") in items
    missing = planted["missing_payload"]
    assert (f"payload#{hole['topic_id']}#{missing['entry']}", "00") not in items
    doubled = planted["duplicate_entry"]["entry"]
    entries = [str(entry) for (pk, _), item in items.items() if pk == log for entry in item["entries"]["L"]]
    assert len(entries) == len(set(entries)) + 1, doubled


@pytest.mark.parametrize(
    ("defect", "reason"),
    [
        (Defect.NO_MANIFEST, "it has no manifest-summary.json"),
        (Defect.WRONG_MANIFEST, "does not have the checksum"),
        (Defect.MISSING_FILE, "misses the data file"),
    ],
)
def test_an_export_with_broken_manifests_is_refused(tmp_path: Path, defect: Defect, reason: str) -> None:
    folder = generate(tmp_path, Shape(500, files=1, defects=frozenset({defect})))
    with pytest.raises(BadInput, match=reason):
        read_export(str(folder))


def test_the_command_says_what_it_has_written_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--to", str(tmp_path), "--messages", "300", "--files", "2", "--queues", "1", "--topics", "1"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("synthetic: 300 messages in ")
    assert main(arguments) == 1
    assert "is there already" in capsys.readouterr().err
    assert main([*arguments, "--plant", "missing_payload", "--entries", "1"]) == 1
    assert "no place for: missing_payload" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(file_defects, "of_manifests", Mock(side_effect=KeyboardInterrupt))
        assert main([*arguments, "--seed", "8"]) == 130
    assert capsys.readouterr().err == "synthetic: interrupted\n"
    assert len(list((tmp_path / "AWSDynamoDB").iterdir())) == 1  # of what failed nothing is left
    for wrong in (["--messages", "0"], ["--plant", "rust"], ["--entries", "1,500"], ["--since", "300"]):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *wrong])
        assert ended.value.code == 64
        assert len(capsys.readouterr().err.splitlines()) == 1
