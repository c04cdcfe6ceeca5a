from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import orjson
import pytest

from spark.errors import BadInput
from spark.files import Place, bundled
from spark.reading.manifest import files_with_items, read_export
from tests.spark import items
from tests.spark.exports import ID, change, line, write_export, write_items, write_manifest
from tests.spark.noting import noted


def test_an_export_has_one_id_whatever_its_folder_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_items(tmp_path, [items.topic()])
    (tmp_path / "latest").symlink_to(folder)
    monkeypatch.chdir(folder)
    assert [read_export(path).id for path in (f"{folder}/", str(tmp_path / "latest"), ".")] == [ID] * 3


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def test_an_incremental_export_misses_a_file_that_other_days_have(tmp_path: Path) -> None:
    """Their data files lie in one folder."""
    lines = [[change(items.topic(), at)] for at in range(2)]
    folders = [write_export(tmp_path, lines, f"1-abc{day}", is_incremental=True) for day in range(2)]
    sizes = [file.bytes for file in read_export(str(folders[1])).files]
    assert sizes == [path.stat().st_size for path in sorted((tmp_path / "AWSDynamoDB/data").glob("abc1-*"))]
    (tmp_path / "AWSDynamoDB/data/abc1-1.json.gz").unlink()
    assert read_export(str(folders[0])).items == 2
    with pytest.raises(BadInput, match=r"misses the data file abc1-1\.json\.gz, which"):
        read_export(str(folders[1]))


def _said(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    """The manifest says something else, and its checksum agrees."""
    return lambda folder: write_manifest(folder, name, (folder / name).read_bytes().replace(old, new))


BAD = {
    "is not a finished export: it has no manifest-summary.json": _without("manifest-summary.json"),
    "is not a finished export: it has no manifest-files.json": _without("manifest-files.json"),
    "has no checksum of manifest-summary.json": _without("manifest-summary.md5"),
    "does not have the checksum that manifest-files.md5 gives": lambda f: (f / "manifest-files.md5").write_text("x"),
    "misses the data file 2c3d-1.json.gz, which": _without("data/2c3d-1.json.gz"),
    "counts 2 items, manifest-summary.json 5": _said("manifest-summary.json", b'"itemCount":2', b'"itemCount":5'),
    "is an export in ION; only": _said("manifest-summary.json", b"DYNAMODB_JSON", b"ION"),
    "gives no exportTime": _said("manifest-summary.json", b"exportTime", b"otherTime"),
    "gives no dataFileS3Key": _said("manifest-files.json", b"dataFileS3Key", b"other"),
    "is not JSON": _said("manifest-files.json", b"{", b""),
}


@pytest.mark.parametrize("reason", BAD)
def test_an_export_that_is_not_whole_is_refused_in_one_line(reason: str, tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")])
    BAD[reason](folder)
    with pytest.raises(BadInput) as refusal:
        read_export(str(folder))
    assert reason in str(refusal.value)
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


OUTSIDE = {
    "up": "AWSDynamoDB/../../outside.json.gz",
    "up from the data": f"AWSDynamoDB/{ID}/data/../../../outside.json.gz",
    "another export": "AWSDynamoDB/1-another/data/outside.json.gz",
    "the data of all days": "AWSDynamoDB/data/outside.json.gz",
    "deeper": f"AWSDynamoDB/{ID}/data/a/outside.json.gz",
    "beside the data": f"AWSDynamoDB/{ID}/manifest-files.json",
    "absolute": "{root}/outside.json.gz",
    "absolute behind the root": "AWSDynamoDB/{root}/outside.json.gz",
    "absolute behind the folder": f"AWSDynamoDB/{ID}/data/" + "{root}/outside.json.gz",
    "another bucket": f"s3://another/AWSDynamoDB/{ID}/data/../outside.json.gz",
    "encoded": f"AWSDynamoDB/{ID}/data/%2e%2e%2F%2e%2e%2F%2e%2e%2Foutside.json.gz",
    "of Windows": f"AWSDynamoDB/{ID}/data/..\\..\\..\\outside.json.gz",
    "a drive": f"AWSDynamoDB/{ID}/data/C:outside.json.gz",
    "a line end": f"AWSDynamoDB/{ID}/data/outside.json.gz\n",
    "a null": f"AWSDynamoDB/{ID}/data/outside\0.json.gz",
    "up alone": f"AWSDynamoDB/{ID}/data/..",
    "nothing": f"AWSDynamoDB/{ID}/data/",
    "without the root": f"{ID}/data/2c3d-0.json.gz",
}


def _named(folder: Path, key: str) -> None:
    """The manifest names another first file."""
    lines = (folder / "manifest-files.json").read_bytes().splitlines()
    first = {**orjson.loads(lines[0]), "dataFileS3Key": key}
    write_manifest(folder, "manifest-files.json", b"\n".join([orjson.dumps(first), *lines[1:]]))


@pytest.mark.parametrize("key", OUTSIDE.values(), ids=OUTSIDE)
def test_a_manifest_names_only_files_of_its_own_export(key: str, tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")])
    for place in (tmp_path, folder.parent, folder):
        (place / "outside.json.gz").write_bytes((folder / "data/2c3d-0.json.gz").read_bytes())
    named_key = key.format(root=tmp_path) if "{root}" in key else key
    _named(folder, named_key)
    with pytest.raises(BadInput) as refusal:
        read_export(str(folder))
    assert f"names the data file {named_key!r}; its key must end with AWSDynamoDB/{ID}/data/" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_incremental_export_names_only_files_of_all_days(tmp_path: Path) -> None:
    folder = write_export(tmp_path, [[change(items.topic(), 1)]], is_incremental=True)
    for key in ("AWSDynamoDB/data/../../a", f"AWSDynamoDB/{ID}/data/a", "AWSDynamoDB/data/../data/2c3d-0.json.gz"):
        _named(folder, key)
        with pytest.raises(BadInput, match="its key must end with AWSDynamoDB/data/<name>"):
            read_export(str(folder))


def _moved(path: Path, out: Path) -> None:
    """It lies outside, and a link stands in its place."""
    path.rename(out / path.name)
    path.symlink_to(out / path.name)


LINKED = ("data/2c3d-0.json.gz", "data", "manifest-summary.json", "manifest-files.json", "manifest-files.md5")


@pytest.mark.parametrize("name", LINKED)
def test_a_link_that_leads_out_of_an_export_is_refused(name: str, tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")])
    (tmp_path / "out").mkdir()
    _moved(folder / name, tmp_path / "out")
    with pytest.raises(BadInput, match="is refused: a link leads out of") as refusal:
        read_export(str(folder))
    assert name in str(refusal.value)


def test_a_link_inside_an_export_is_followed(tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic(), items.topic("other")])
    (folder / "data/2c3d-0.json.gz").rename(folder / "data/first")
    (folder / "data/2c3d-0.json.gz").symlink_to("first")
    assert read_export(str(folder)).items == 2


def test_an_export_without_items_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without any items"):
        read_export(str(write_export(tmp_path, [[], []])))


def test_an_export_is_found_wherever_it_was_copied_to(tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic()], files=1)
    moved = folder.parent.parent / "AWSDynamoDB2"
    folder.parent.rename(moved)
    export = read_export(f"{moved / ID}/")
    assert (export.id, export.items, export.at_ms, export.is_incremental) == (ID, 1, 1_767_225_600_000, False)
    assert [str(file.place) for file in export.files] == [f"{moved / ID}/data/2c3d-0.json.gz"]


def test_checksum_files_may_be_named_as_the_documentation_names_them(tmp_path: Path) -> None:
    folder = write_items(tmp_path, [items.topic()])
    for name in ("manifest-summary", "manifest-files"):
        (folder / f"{name}.md5").rename(folder / f"{name}.checksum")
    assert read_export(str(folder)).items == 1


def test_small_files_share_a_task_and_those_without_items_need_none(tmp_path: Path) -> None:
    sizes = (20, 2000, 0, 150, 40, 0)
    lines = [[line(items.payload(Random(size).randbytes(size)))] if size else [] for size in sizes]
    export = read_export(str(write_export(tmp_path, lines)))
    batches = bundled(files_with_items(export), 1000)
    assert [[file.name[-9] for file in batch] for batch in batches] == [["1"], ["3", "4", "0"]]
    large, small = (sum(file.bytes for file in batch) for batch in batches)
    assert large > 2000 > 1000 > small > 3 * 100
    assert export.bytes == large + small + 2 * len(gzip.compress(b""))
    assert bundled(files_with_items(export), small - 1) == [batches[0], batches[1][:2], batches[1][2:]]


def test_the_sizes_of_all_data_files_are_asked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_items(tmp_path, [items.topic(str(at)) for at in range(9)], files=9)
    asked, listed, size, sizes = list[str](), list[str](), Place.size, Place.sizes
    monkeypatch.setattr(Place, "size", noted(size, asked, lambda place: place.name))
    monkeypatch.setattr(Place, "sizes", noted(sizes, listed, lambda place: place.path))
    files = read_export(str(folder)).files
    assert [file.bytes for file in files] == [(folder / "data" / file.name).stat().st_size for file in files]
    assert listed == [str(folder / "data")]
    assert all(name.startswith("manifest-") for name in asked)
