from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.core.base.limits import ITEM_BYTES_MAX
from chalicelib.core.table import keys
from local.memory.sizes import item_bytes
from spark.reading import data_file
from spark.reading import lines as line_reader
from spark.reading.data_file import FileReader, light
from spark.reading.manifest import read_export
from tests.spark import items
from tests.spark.exports import change, line, md5, read, write_export, write_items, write_manifest


def test_items_become_rows_of_their_kind_with_what_they_weigh(tmp_path: Path) -> None:
    stored = [
        items.topic(),
        items.segment(items.entry(), items.pointer(b"\xff" * 8, 20, 2)),
        items.segment(items.entry(b"\x00\xfe", at=10, w=100000, l=5000, s=7), base=2, queue=11)
        | {"ttl": 1_800_000_000},
        items.payload(b"\x00\x01\x02\x03"),
        items.cursor(),
    ]
    folder = write_items(tmp_path, stored)
    rows, troubles = read(folder)
    assert [row["kind"] for row in rows] == ["cursor", "segment", "segment", "payload", "topic"]
    assert {row["pk"]: row["bytes"] for row in rows} == {item["pk"]: item_bytes(item) for item in stored}
    cursor, first, second, payload, topic = rows
    assert [row["topic_id"] for row in rows] == [items.TOPIC] * 5
    assert (first["segment"]["queue"], first["segment"]["base"], first["segment"]["end"]) == (0, 0, 21)
    assert [tuple(entry.values()) for entry in first["segment"]["entries"]] == [
        (0, items.ENTRY_ID, 1, 1_767_225_600_000, "json", 20, b'{"b":"one"}', None, None, None),
        (1, b"\xff" * 8, 20, 1_767_225_600_000, "json", 20, None, 2, None, None),
    ]
    assert (second["ttl"], second["segment"]["queue"], second["segment"]["base"]) == (1_800_000_000, 11, 2)
    rare = second["segment"]["entries"][0]
    assert (rare["least_ttl_ms"], rare["first_sent_at_ms"]) == (5000, 7)
    assert tuple(payload["payload"].values()) == (items.ENTRY_ID, 0, b"\x00\x01\x02\x03")
    assert (topic["topic"]["name"], topic["topic"]["delays"], topic["segment"]) == ("orders", False, None)
    assert [tuple(lease.values()) for lease in cursor["cursor"]["leases"]] == [
        ("tokentok", 3, 2, 99, 1, [b"a\x01"]),
        ("tokentwo", 5, 1, 99, 1, [b"m\x01"]),
    ]
    assert tuple(cursor["cursor"]["pages"][0].values()) == ("p", 9, 2, 1)
    assert troubles == []


def test_an_alarm_is_an_item_that_no_job_needs(tmp_path: Path) -> None:
    place = keys.alarm(items.TOPIC, "billing", "bbbbbbbb")
    raised = {**place._asdict(), "n": 1, "state": "raised", "at": 5, "by": b"\x00" * 8}
    folder = write_items(tmp_path, [raised, items.cursor()])
    rows, troubles = read(folder)
    assert [(row["kind"], row["topic_id"]) for row in rows] == [("alarm", items.TOPIC), ("cursor", items.TOPIC)]
    assert troubles == []


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
        (items.segment(items.entry()), b'"d":{"B":"', b'"d":{"N":"'),
        (items.segment(items.pointer(b"an entry")), b'"B":"', b'"S":"'),
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
    rows, ((_, at, _, _),) = read(folder)
    assert ([row["line"] for row in rows], at) == ([3, 1], 2)


@pytest.mark.parametrize(
    ("usual", "spelled"),
    [
        (b'"pk":{"S":"', b'"pk": {"S":"'),
        (b'"pk":{"S":"', b'"pk":{ "S" : "'),
        (b'"pk":{"S":"', b'"pk" :{"S":"'),
        (b'"pk"', b'"\\u0070k"'),
        (b'"topic#', b'"\\u0074opic#'),
        (b'"pk"', b'"pk"'),
    ],
)
@pytest.mark.parametrize("item", [items.topic(), items.segment(items.entry()), items.payload(b"x")])
def test_items_are_found_however_their_key_is_spelled(
    tmp_path: Path, usual: bytes, spelled: bytes, item: items.Item
) -> None:
    lines = [line(item).replace(usual, spelled), line(items.cursor()), b'{"Item":{}}']
    rows, troubles = read(write_export(tmp_path, [lines]))
    assert [(row["pk"], row["line"]) for row in rows if row["kind"] != "cursor"] == [(item["pk"], 1)]
    assert [at for _, at, _, _ in troubles] == [3]


def test_what_is_light_has_all_but_the_messages(tmp_path: Path) -> None:
    held = items.entry(b"held", w=7)
    place = {"pk": f"delay#{items.TOPIC}#0", "sk": f"{5:015d}#{'00' * 8}"}
    stored = [items.segment(held, items.pointer(b"an entry")), items.segment(held, base=1), {**place, "entry": held}]
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


def test_a_change_is_a_row_with_its_time_and_a_removal_too(tmp_path: Path) -> None:
    one, removed = items.segment(items.entry()), items.segment(items.entry(), base=1)
    lines = [change(one, 5), change(removed, 6, is_deleted=True), change(items.topic(), 7)]
    folder = write_export(tmp_path, [lines], is_incremental=True)
    rows, troubles = read(folder)
    about = [(row["kind"], row["written_us"], row["is_deleted"], row["segment"] is None) for row in rows]
    assert about == [("segment", 5, False, False), ("segment", 6, True, True), ("topic", 7, False, True)]
    assert troubles == []


POINTER = items.pointer(b"an entry")
BAD = {
    "not JSON": b'{"Item":{"pk":{"S":"topics"},',
    "the line is not an object": b"[]",
    "attribute 'pk' is missing": b'{"Item":{"sk":{"S":"x"}}}',
    "unknown kind of item: pk 'requests#1', sk '-'": line({"pk": "requests#1", "sk": "-"}),
    "unknown codec 'brotli'": line(items.segment(items.entry(c="brotli"))),
    "attribute 'end' is not of type N": line(items.segment(items.entry()) | {"end": "5"}),
    "attribute 'd' is not base64": line(items.segment(items.entry())).replace(b'"d":{"B":"', b'"d":{"B":"!'),
    "attribute 'd' is missing": line(items.segment(items.entry())).replace(b',"d":{"B":"eyJiIjoib25lIn0="}', b""),
    "attribute 'entries' is no entry: it has 21 bytes and the flags 0": line(items.segment(POINTER[:21])),
    "attribute 'entries' is no entry: it has 23 bytes and the flags 0": line(items.segment(POINTER + b"1")),
    "attribute 'entries' is no entry: it has 22 bytes and the flags 8": line(items.segment(POINTER[:21] + b"\x08")),
    "attribute 'data' is missing": line({"pk": "payload#a#00", "sk": "00"}),
    "the key has an unknown form: pk 'log#aaaaaaaa#0', sk 'x'": line(items.segment(items.entry()) | {"sk": "x"}),
}


def test_an_unreadable_line_goes_to_the_quarantine_and_others_are_read(tmp_path: Path) -> None:
    good = line(items.segment(items.entry(), base=7))
    folder = write_export(tmp_path, [[good, *BAD.values(), good]])
    rows, unreadable = read(folder)
    assert [at for _, at, _, _ in unreadable] == list(range(2, len(BAD) + 2))
    for (file, _, reason, raw), (expected, bad) in zip(unreadable, BAD.items(), strict=True):
        assert file == f"{folder.name[-4:]}-0.json.gz"
        assert reason.startswith(expected)
        assert raw == bad[:200].decode()
    assert [row["line"] for row in rows] == [1, len(BAD) + 2]


def test_empty_lines_are_none_and_count_in_the_numbers_of_others(tmp_path: Path) -> None:
    good, end = line(items.segment(items.entry(), base=7)), b"\n" * 3
    folder = write_export(tmp_path, [[end + good, b"no JSON" + end, end + good], [good, good + end]])
    rows, unreadable = read(folder)
    assert sorted(row["line"] for row in rows) == [1, 2, 4, 12]
    assert [at for _, at, _, _ in unreadable] == [5]


def test_millions_of_empty_lines_take_no_memory(tmp_path: Path) -> None:
    folder = write_export(tmp_path, [[b"\n" * (4 << 20) + line(items.topic())]])
    assert sum(path.stat().st_size for path in (folder / "data").iterdir()) < 10_000
    tracemalloc.start()
    rows, unreadable = read(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ([row["line"] for row in rows], unreadable) == ([(4 << 20) + 1], [])
    assert peak < 32 << 20, "blocks, whatever is in them"


def test_a_file_of_unreadable_lines_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "TROUBLES_MAX", 3)
    monkeypatch.setattr(line_reader, "_LINES_AT_ONCE", 8)
    rows, unreadable = read(write_export(tmp_path, [[*[b"{}"] * 7, *[line(items.topic())] * 2]]))
    assert [at for _, at, _, _ in unreadable] == [0, 1, 2, 3]
    assert unreadable[0][2] == "more than 3 of its lines cannot be read: it is not read further"
    assert [row["line"] for row in rows] == [8], "those of the block are read"


def test_a_line_longer_than_any_item_ends_its_file_in_one_line(tmp_path: Path) -> None:
    folder = write_export(tmp_path, [[line(items.topic()), b"[" + b"[]," * (4 << 20) + b"0]"]])
    rows, ((_, at, reason, raw),) = read(folder)
    assert ([row["line"] for row in rows], at, len(raw)) == ([1], 2, 200)
    assert "a line is longer than 8388608 bytes" in reason


def test_the_longest_line_of_an_item_is_read(tmp_path: Path) -> None:
    """DynamoDB counts two bytes for each null of a list."""
    image = items.topic() | {"more": [None] * (ITEM_BYTES_MAX // 2 - 500)}
    pair = orjson.loads(change(image, 5))
    text = orjson.dumps({**pair, "OldImage": pair["NewImage"]})
    rows, unreadable = read(write_export(tmp_path, [[text]], is_incremental=True))
    assert len(text) > 5_500_000
    assert ([row["kind"] for row in rows], unreadable) == (["topic"], [])


def _rewrite(folder: Path, change: Any) -> Path:
    """Changes the bytes of the first data file, and lets the manifest agree with them."""
    path = next((folder / "data").glob("*-0.json.gz"))
    before = md5(path)
    path.write_bytes(change(path.read_bytes()))
    manifest = (folder / "manifest-files.json").read_bytes().replace(before.encode(), md5(path).encode())
    write_manifest(folder, "manifest-files.json", manifest)
    return path


def test_a_file_that_cannot_be_read_to_its_end_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    stored = [items.segment(items.entry(bytes(range(256)) * 3), base=at) for at in range(40)]
    cut = write_items(tmp_path / "cut", stored, files=1)
    _rewrite(cut, lambda data: data[:-20])
    rows, ((_, at, reason, _),) = read(cut)
    assert 0 < len(rows) == at - 1
    assert reason == "from here on the file cannot be read: the compressed data end too soon"
    no_gzip = write_items(tmp_path / "none", stored, files=1)
    _rewrite(no_gzip, lambda _: b"something else")
    rows, ((_, at, reason, _),) = read(no_gzip)
    assert (rows, at, "Invalid gzip" in reason) == ([], 1, True)


def test_a_file_with_another_checksum_or_count_is_named(tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")], files=1)
    path = next((folder / "data").iterdir())
    listed = (folder / "manifest-files.json").read_bytes()
    wrong = listed.replace(md5(path).encode(), b"AAAAAAAAAAAAAAAAAAAAAA==").replace(b'"itemCount":2', b'"itemCount":3')
    write_manifest(folder, "manifest-files.json", wrong)
    summary = (folder / "manifest-summary.json").read_bytes().replace(b'"itemCount":2', b'"itemCount":3')
    write_manifest(folder, "manifest-summary.json", summary)
    places = [(at, reason) for _, at, reason, _ in read(folder)[1]]
    assert places == [
        (0, "the file has 2 lines, the manifest counts 3"),
        (0, f"the file has the checksum {md5(path)}, the manifest says AAAAAAAAAAAAAAAAAAAAAA=="),
    ]
