from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from chalicelib.table import keys
from local.memory.sizes import item_bytes
from spark import item_schemas
from spark.reading import dynamodb_export
from spark.reading.data_file import FileReader, landed_rows, light
from spark.reading.manifest import DataFile, read_export
from tests.spark import items
from tests.spark.exports import change, line, md5, write_export, write_items, write_manifest


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row["pk"], row["sk"]))


def troubles(spark: SparkSession, folder: Path) -> list[tuple[str, int, str, str]]:
    unreadable = dynamodb_export.landed(spark, str(folder), "topic").where("kind = 'unreadable'").collect()
    return sorted((row["file"], row["line"], row["trouble"]["reason"], row["trouble"]["raw"]) for row in unreadable)


def test_items_become_rows_of_their_kind_with_what_they_weigh(spark: SparkSession, tmp_path: Path) -> None:
    stored = [
        items.topic(),
        items.segment(items.entry(), items.entry(None, b"\xff" * 8, 20, p=2)),
        items.segment(items.entry(b"\x00\xfe", at=10, w=100000, l=5000), base=2, queue=11) | {"ttl": 1_800_000_000},
        items.payload(b"\x00\x01\x02\x03"),
        items.cursor(),
    ]
    folder = write_items(tmp_path, stored)
    read = dynamodb_export.items(spark, str(folder))
    rows = rows_of(read)
    assert read.schema == item_schemas.ITEMS
    assert [row["kind"] for row in rows] == ["cursor", "segment", "segment", "payload", "topic"]
    assert {row["pk"]: row["bytes"] for row in rows} == {item["pk"]: item_bytes(item) for item in stored}
    cursor, first, second, payload, topic = rows
    assert [row["topic_id"] for row in rows] == [items.TOPIC] * 5
    assert (first["segment"]["queue"], first["segment"]["base"], first["segment"]["end"]) == (0, 0, 21)
    assert [tuple(entry) for entry in first["segment"]["entries"]] == [
        (0, items.ENTRY_ID, 1, 1_767_225_600_000, "json", 20, b'{"b":"one"}', None, None),
        (1, b"\xff" * 8, 20, 1_767_225_600_000, "json", 20, None, 2, None),
    ]
    assert (second["ttl"], second["segment"]["queue"], second["segment"]["base"]) == (1_800_000_000, 11, 2)
    assert second["segment"]["entries"][0]["least_ttl_ms"] == 5000
    assert tuple(payload["payload"]) == (items.ENTRY_ID, 0, b"\x00\x01\x02\x03")
    assert (topic["topic"]["name"], topic["topic"]["delays"], topic["segment"]) == ("orders", False, None)
    (lease,) = cursor["cursor"]["leases"]
    assert tuple(lease) == ("tokentok", 3, 2, 99, 1, [b"a\x01"])
    assert tuple(cursor["cursor"]["pages"][0]) == ("p", 9, 2, 1)
    assert troubles(spark, folder) == []


def test_an_alarm_is_an_item_that_no_job_needs(spark: SparkSession, tmp_path: Path) -> None:
    place = keys.alarm(items.TOPIC, "billing", "bbbbbbbb")
    raised = {**place._asdict(), "n": 1, "state": "raised", "at": 5, "by": b"\x00" * 8}
    folder = write_items(tmp_path, [raised, items.cursor()])
    rows = rows_of(dynamodb_export.items(spark, str(folder)))
    assert [(row["kind"], row["topic_id"]) for row in rows] == [("alarm", items.TOPIC), ("cursor", items.TOPIC)]
    assert troubles(spark, folder) == []


def test_lines_of_other_kinds_are_not_parsed(spark: SparkSession, tmp_path: Path) -> None:
    broken = line(items.segment(items.entry()))[:-3]
    folder = write_export(tmp_path, [[broken, line(items.topic()), line(items.payload(b"x"))]])
    (file,) = read_export(str(folder)).files
    reader = FileReader(file, False, frozenset({"topic", "payload"}))
    assert (sum(batch.num_rows for batch in reader), reader.troubles) == (2, [])
    read = dynamodb_export.items(spark, str(folder), "topic", "payload")
    both = read.where("kind = 'topic'").crossJoin(read.where("kind = 'payload'").select("payload.data"))
    assert [(row["kind"], row["data"]) for row in both.collect()] == [("topic", b"x")]


_DEEP = b'{"L":[' * 600 + b'{"S":"a"}' + b"]}" * 600


@pytest.mark.parametrize(
    ("of", "old", "new"),
    [
        (items.segment(items.entry()), b'"n":{"N":"1"}', b'"n":{"N":"3000000000"}'),
        (items.segment(items.entry()), b'"n":{"N":"1"}', b'"n":{"N":"0x1"}'),
        (items.segment(items.entry()), b'"n":{"N":"1"}', b'"n":{"N":" 1_0"}'),
        (items.segment(items.entry()), b'#0"', b'#3000000000"'),
        (items.segment(items.entry()), b'#0"', b'#-1"'),
        (items.segment(items.entry()), b'#0"', b'#0x10"'),
        (items.segment(items.entry()), b'"000000000000000"', b'"0x10"'),
        (items.segment(items.entry(None, p=1)), b'"p":{"N":"1"}', b'"p":{"N":"0x1"}'),
        (items.payload(b"x"), items.ENTRY_ID.hex().encode(), b"AB cd"),
        (items.payload(b"x"), b'"sk":{"S":"00"}', b'"sk":{"S":"3000000000"}'),
        (items.topic(), b'"queues":{"N":"1"}', b'"queues":{"N":"5000000000"}'),
        (items.topic(), b'"queues":{"N":"1"}', b'"queues":{"N":"1"},"more":' + _DEEP),
    ],
)
def test_what_fits_no_column_is_in_the_quarantine_alone(tmp_path: Path, of: Any, old: bytes, new: bytes) -> None:
    bad = line(of).replace(old, new)
    assert bad != line(of)
    folder = write_export(tmp_path, [[line(items.topic("a")), bad, line(items.segment(items.entry(), base=7))]])
    (file,) = read_export(str(folder)).files
    assert sum(batch.num_rows for batch in FileReader(file, False)) == 2
    rows = [row for batch in landed_rows(file, False, frozenset(), b"") for row in batch.to_pylist()]
    assert [(row["kind"], row["line"]) for row in rows] == [("unreadable", 2), ("span", 0)]


@pytest.mark.parametrize(
    ("usual", "spelled"),
    [
        (b'"pk":{"S":"', b'"pk": {"S":"'),
        (b'"pk":{"S":"', b'"pk":{ "S" : "'),
        (b'"pk":{"S":"', b'"pk" :{"S":"'),
        (b'"pk"', b'"\\u0070k"'),
        (b'"topics"', b'"\\u0074opics"'),
        (b'"pk"', b'"pk"'),
    ],
)
@pytest.mark.parametrize(("kind", "lines"), [("topic", 1), ("segment", 1), ("payload", 0)])
def test_items_of_a_kind_are_found_however_their_key_is_spelled(
    tmp_path: Path, usual: bytes, spelled: bytes, kind: str, lines: int
) -> None:
    topic = line(items.topic()).replace(usual, spelled)
    folder = write_export(tmp_path, [[topic, line(items.segment(items.entry())), b'{"Item":{}}']])
    (file,) = read_export(str(folder)).files
    assert sum(batch.num_rows for batch in FileReader(file, False, frozenset({kind}))) == lines


def test_landed_items_have_no_messages_but_the_days_they_were_stored(tmp_path: Path) -> None:
    day_ms, kept = 86_400_000, items.entry(at=1_767_225_600_000)
    unusual = line(items.segment(items.entry(at=1_767_225_600_000 + day_ms), base=1)).replace(b'"pk":', b'"pk" :')
    late = items.segment(items.entry(None, at=1_767_225_600_000 + 2 * day_ms, p=0), base=2)
    waits = {"pk": f"delay#{items.TOPIC}#0", "sk": f"{5:015d}#{'00' * 8}", **kept}
    lines = [line(item) for item in (items.segment(kept), late, waits, items.payload(b"x"))]
    folder = write_export(tmp_path, [[*lines, unusual], [line(items.topic())]])
    first, second = sorted(read_export(str(folder)).files, key=lambda file: -file.items)

    def landed(file: DataFile, kinds: set[str], of_segments: bytes = b"") -> list[dict[str, Any]]:
        return [row for batch in landed_rows(file, False, frozenset(kinds), of_segments) for row in batch.to_pylist()]

    by_line = {row["line"]: row for row in landed(first, {"segment", "delayed", "payload"})}
    held = [(entry["data"], entry["pieces"]) for at in (1, 2, 5) for entry in by_line[at]["segment"]["entries"]]
    assert held == [(b"", None), (None, 0), (b"", None)]
    assert (by_line[3]["delayed"]["entry"]["data"], by_line[4]["payload"]["data"]) == (b"", b"x")
    assert by_line[0]["days"] == {"first": date(2026, 1, 1), "last": date(2026, 1, 3)}
    only_late = landed(first, {"segment"}, b'"p"')
    assert [row["line"] for row in only_late] == [2, 5, 0]  # and what is not spelled as usual
    assert only_late[-1]["days"] == by_line[0]["days"]
    assert [row["days"] for row in landed(second, {"segment"})] == [None]


def test_what_is_light_has_all_but_the_messages(tmp_path: Path) -> None:
    held = items.entry(b"held", w=7)
    place = {"pk": f"delay#{items.TOPIC}#0", "sk": f"{5:015d}#{'00' * 8}"}
    stored = [items.segment(held, items.entry(None, p=2)), items.segment(held, base=1), {**place, **held}]
    stored += [items.payload(b"x"), items.topic(), items.segment(base=7)]
    (file,) = read_export(str(write_items(tmp_path, stored, files=1))).files
    batches = list(FileReader(file, False))
    for batch in (*batches, *(batch.slice(1) for batch in batches)):
        expected = batch.to_pylist()
        for row in expected:
            segment, payload, delayed = (row[kind] for kind in ("segment", "payload", "delayed"))
            for entry in segment["entries"] if segment else [delayed["entry"]] if delayed else []:
                entry["data"] = None if entry["data"] is None else b""
            if payload:
                payload["data"] = None
        assert light(batch).to_pylist() == expected
        light(batch).validate(full=True)
    assert {row["kind"] for batch in batches for row in batch.to_pylist()} == {"segment", "payload", "topic", "delayed"}


def test_a_change_is_a_row_with_its_time_and_a_removal_too(spark: SparkSession, tmp_path: Path) -> None:
    one, removed = items.segment(items.entry()), items.segment(items.entry(), base=1)
    lines = [change(one, 5), change(removed, 6, is_deleted=True), change(items.topic(), 7)]
    folder = write_export(tmp_path, [lines], is_incremental=True)
    rows = rows_of(dynamodb_export.items(spark, str(folder)))
    about = [(row["kind"], row["written_us"], row["is_deleted"], row["segment"] is None) for row in rows]
    assert about == [("segment", 5, False, False), ("segment", 6, True, True), ("topic", 7, False, True)]
    assert troubles(spark, folder) == []


BAD = {
    "not JSON": b'{"Item":{"pk":{"S":"topics"},',
    "the line is not an object": b"[]",
    "attribute 'pk' is missing": b'{"Item":{"sk":{"S":"x"}}}',
    "unknown kind of item: pk 'requests#1', sk '-'": line({"pk": "requests#1", "sk": "-"}),
    "unknown codec 'brotli'": line(items.segment(items.entry(c="brotli"))),
    "attribute 'end' is not of type N": line(items.segment(items.entry()) | {"end": "5"}),
    "attribute 'd' is not base64": line(items.segment(items.entry())).replace(b'"d":{"B":"', b'"d":{"B":"!'),
    "attribute 'data' is missing": line({"pk": "payload#a#00", "sk": "00"}),
    "the key is not as it should be: pk 'log#aaaaaaaa#0', sk 'x'": line(items.segment(items.entry()) | {"sk": "x"}),
}


def test_an_unreadable_line_goes_to_the_quarantine_and_others_are_read(spark: SparkSession, tmp_path: Path) -> None:
    good = line(items.segment(items.entry(), base=7))
    folder = write_export(tmp_path, [[good, *BAD.values(), good]])
    unreadable = troubles(spark, folder)
    assert [at for _, at, _, _ in unreadable] == list(range(2, len(BAD) + 2))
    for (file, _, reason, raw), (expected, bad) in zip(unreadable, BAD.items(), strict=True):
        assert file == f"{folder.name[-4:]}-0.json.gz"
        assert reason.startswith(expected)
        assert raw == bad[:200].decode()
    rows = dynamodb_export.items(spark, str(folder)).where("kind = 'segment'").collect()
    assert [row["line"] for row in rows] == [1, len(BAD) + 2]


def _rewrite(folder: Path, change: Any) -> Path:
    """Changes the bytes of the first data file, and lets the manifest agree with them."""
    path = next((folder / "data").glob("*-0.json.gz"))
    before = md5(path)
    path.write_bytes(change(path.read_bytes()))
    manifest = (folder / "manifest-files.json").read_bytes().replace(before.encode(), md5(path).encode())
    write_manifest(folder, "manifest-files.json", manifest)
    return path


def test_a_file_that_cannot_be_read_to_its_end_is_read_as_far_as_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    stored = [items.segment(items.entry(bytes(range(256)) * 3), base=at) for at in range(40)]
    cut = write_items(tmp_path / "cut", stored, files=1)
    _rewrite(cut, lambda data: data[:-20])
    ((_, at, reason, _),) = troubles(spark, cut)
    assert 0 < dynamodb_export.items(spark, str(cut)).count() == at - 1
    assert reason == "from here on the file cannot be read: the compressed data end too soon"
    no_gzip = write_items(tmp_path / "none", stored, files=1)
    _rewrite(no_gzip, lambda _: b"something else")
    ((_, at, reason, _),) = troubles(spark, no_gzip)
    assert (at, "Invalid gzip" in reason) == (1, True)


def test_a_file_with_another_checksum_or_count_is_named(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")], files=1)
    path = next((folder / "data").iterdir())
    listed = (folder / "manifest-files.json").read_bytes()
    wrong = listed.replace(md5(path).encode(), b"AAAAAAAAAAAAAAAAAAAAAA==").replace(b'"itemCount":2', b'"itemCount":3')
    write_manifest(folder, "manifest-files.json", wrong)
    summary = (folder / "manifest-summary.json").read_bytes().replace(b'"itemCount":2', b'"itemCount":3')
    write_manifest(folder, "manifest-summary.json", summary)
    places = [(at, reason) for _, at, reason, _ in troubles(spark, folder)]
    assert places == [
        (0, "the file has 2 lines, the manifest counts 3"),
        (0, f"the file has the checksum {md5(path)}, the manifest says AAAAAAAAAAAAAAAAAAAAAA=="),
    ]


def test_an_option_that_nobody_knows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic()])
    dynamodb_export.items(spark, str(folder))
    with pytest.raises(Exception, match="rows is 'other'"):
        spark.read.format("dynamodb_export").option("rows", "other").load(str(folder)).collect()
    with pytest.raises(Exception, match="kinds names 'other'"):
        dynamodb_export.items(spark, str(folder), "topic", "other").collect()
