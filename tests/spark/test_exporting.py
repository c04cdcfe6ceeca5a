"""A table of any DynamoDB endpoint becomes an export that the pipeline reads: all of it, or what has changed."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from chalicelib.core.store.dynamodb import boto as tables
from chalicelib.core.store.dynamodb.expressions import plain_item
from chalicelib.core.table.writes import key_of
from local import endpoint
from local.memory.dynamodb_api import DynamoApi
from local.memory.store import MemoryStore
from spark.exporting.__main__ import main
from spark.exporting.state import State
from spark.reading.manifest import Export, read_export
from tests.support.emulators import ROOT, client_of, free_port

TABLE = "decant"


class InMemory:
    """Writes to the store of an endpoint as the service beside it does: past the endpoint, which only reads."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def put_item(self, TableName: str, Item: Any) -> None:  # noqa: N803 - as the client names them
        assert TableName == TABLE
        self.store.put_all([plain_item(Item)])

    def delete_item(self, TableName: str, Key: Any) -> None:  # noqa: N803
        assert TableName == TABLE
        self.store.remove_all([key_of(plain_item(Key))])


Writer = InMemory | DynamoDBClient
Place = tuple[str, Writer]


@pytest.fixture
def memory() -> Iterator[tuple[str, InMemory]]:
    """The endpoint of a store in memory, and what writes there."""
    writer = InMemory()
    offered = endpoint.Endpoint(0, DynamoApi(writer.store, TABLE).answer, lambda *_: None)
    serving = endpoint.start(offered)
    yield offered.url, writer
    offered.shutdown()
    serving.join()
    offered.server_close()


@pytest.fixture(params=["memory", "emulator"])
def place(request: pytest.FixtureRequest) -> Place:
    """An endpoint, and a client that may write there."""
    if request.param == "memory":
        place: Place = request.getfixturevalue("memory")
        return place
    url = request.getfixturevalue("dynoxide")
    return url, client_of(url)


@pytest.fixture
def table(place: Place) -> Iterator[str]:
    if isinstance(place[1], InMemory):
        yield TABLE
        return
    name = f"t-{uuid4()}"
    tables.ensure(place[1], name)
    yield name
    place[1].delete_table(TableName=name)


def put(client: Writer, table: str, pk: str, sk: str, **attributes: Any) -> None:
    client.put_item(TableName=table, Item={"pk": {"S": pk}, "sk": {"S": sk}, **attributes})


def exported(
    capsys: pytest.CaptureFixture[str], root: Path, url: str, table: str, *more: str
) -> tuple[Export, list[dict[str, Any]]]:
    arguments = ["--endpoint", url, "--table", table, "--to", str(root), "--files", "3", "--segments", "2", *more]
    assert main(arguments) == 0
    export = read_export(capsys.readouterr().out.split(" -> ")[1].strip())
    lines = [gzip.decompress(Path(file.place.path).read_bytes()).splitlines() for file in export.files]
    assert [len(file_lines) for file_lines in lines] == [file.items for file in export.files]
    return export, [orjson.loads(line) for file_lines in lines for line in file_lines]


def test_all_items_of_a_table_of_many_pages_are_exported_once(
    place: Place, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, client = place
    for number in range(40):
        put(client, table, f"payload#{number % 7}", f"{number:02d}", data={"B": bytes([number]) * 100_000})
    export, lines = exported(capsys, tmp_path, url, table)
    assert export.items == 40
    assert not export.is_incremental
    assert len(export.files) == 3
    assert sorted(line["Item"]["sk"]["S"] for line in lines) == [f"{number:02d}" for number in range(40)]
    assert (export.place / "_started").size() == 0
    assert lines[0].keys() == {"Item"}
    assert isinstance(lines[0]["Item"]["data"]["B"], str)


def test_an_incremental_export_has_changed_items_and_keys_of_removed_ones(
    place: Place, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, client = place
    for sk in ("stays", "changes", "goes"):
        put(client, table, "one", sk, n={"N": "1"}, m={"M": {"a": {"L": [{"BOOL": True}]}}})
    full, _ = exported(capsys, tmp_path, url, table)
    put(client, table, "one", "changes", n={"N": "2"})
    put(client, table, "one", "comes", n={"N": "3"})
    client.delete_item(TableName=table, Key={"pk": {"S": "one"}, "sk": {"S": "goes"}})
    export, lines = exported(capsys, tmp_path, url, table, "--incremental")
    assert export.is_incremental
    assert export.at_ms >= full.at_ms
    by_key = {line["Keys"]["sk"]["S"]: line for line in lines}
    assert by_key.keys() == {"changes", "comes", "goes"}
    assert by_key["changes"]["NewImage"]["n"] == {"N": "2"}
    assert by_key["goes"].keys() == {"Metadata", "Keys"}
    assert by_key["goes"]["Metadata"] == {"WriteTimestampMicros": {"N": str(export.at_ms * 1000)}}
    arguments = ["--endpoint", url, "--table", table, "--to", str(tmp_path), "--incremental"]
    assert main(arguments) == 0
    assert "nothing has changed" in capsys.readouterr().out
    assert len(list(tmp_path.glob("AWSDynamoDB/0*"))) == 2
    assert len(list(tmp_path.glob("AWSDynamoDB/data/*"))) == 3


def test_the_signing_key_is_not_written(
    place: Place, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The endpoint of `make run` does not even show it."""
    put(place[1], table, "service", "signing-key", value={"B": b"secret secret"})
    put(place[1], table, "service", "stays")
    _, lines = exported(capsys, tmp_path, place[0], table)
    redacted = {"pk": {"S": "service"}, "sk": {"S": "signing-key"}, "value": {"S": "redacted"}}
    found = [line["Item"] for line in lines if line["Item"]["sk"]["S"] != "stays"]
    assert found == ([] if isinstance(place[1], InMemory) else [redacted])


def test_the_keys_that_sign_the_calls_of_a_push_are_not_written(
    place: Place, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(place[1], table, "group#t#g", "settings", secrets={"L": [{"L": [{"S": "a"}, {"B": b"key"}, {"N": "7"}]}]})
    _, [line] = exported(capsys, tmp_path, place[0], table)
    assert line["Item"]["secrets"] == {"L": [{"L": [{"S": "a"}, {"S": "redacted"}, {"N": "7"}]}]}


def test_the_hashes_of_the_secrets_of_tokens_are_not_written(
    place: Place, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = {"L": [{"L": [{"N": "1"}, {"B": b"hash"}, {"N": "0"}]}]}
    put(place[1], table, "tokens", "QJ7ZK3XW5B2NDM4T", name={"S": "a"}, secrets=secrets)
    _, [line] = exported(capsys, tmp_path, place[0], table)
    assert (line["Item"]["name"], line["Item"]["secrets"]) == ({"S": "a"}, {"S": "redacted"})


def test_an_export_is_for_its_owner_alone(memory: tuple[str, InMemory], tmp_path: Path) -> None:
    put(memory[1], TABLE, "one", "first")
    root = tmp_path / "exports"
    command = [sys.executable, "-m", "spark.exporting", "--endpoint", memory[0], "--to", str(root)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, umask=0)
    assert {path.stat().st_mode & 0o077 for path in (root, *root.rglob("*"))} == {0}


def test_the_endpoint_only_reads(memory: tuple[str, InMemory]) -> None:
    client = client_of(memory[0])
    with pytest.raises(client.exceptions.ClientError, match="this endpoint only reads"):
        client.put_item(TableName="decant", Item={"pk": {"S": "a"}, "sk": {"S": "b"}})
    assert client.list_tables()["TableNames"] == [TABLE]


def test_what_cannot_be_exported_is_said_in_one_line_and_leaves_nothing(
    memory: tuple[str, InMemory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    url, name = memory[0], TABLE
    nobody = f"http://127.0.0.1:{free_port()}"
    cases = [
        (["--endpoint", nobody, "--to", str(tmp_path)], f"{nobody} cannot be read"),
        (["--endpoint", "nonsense", "--to", str(tmp_path)], "'nonsense' is not an endpoint URL"),
        (["--endpoint", url, "--table", "none", "--to", str(tmp_path)], "there is no table 'none'"),
        (["--endpoint", url, "--table", name, "--to", f"{tmp_path}/file/x"], "Not a directory"),
        (["--endpoint", url, "--table", name, "--to", str(tmp_path), "--incremental"], "no export yet"),
    ]
    for arguments, reason in cases:
        assert main(arguments) == 1
        said = capsys.readouterr().err
        assert reason in said
        assert len(said.splitlines()) == 1
    with State(tmp_path / "busy"):
        assert main(["--endpoint", url, "--table", name, "--to", str(tmp_path / "busy")]) == 1
    assert "is under way" in capsys.readouterr().err
    for wrong in ([], ["--to", "x", "--files", "0"], ["--to", "x", "--segments", "65"]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 64
    assert not list(tmp_path.rglob("AWSDynamoDB/*"))


def test_a_failed_export_leaves_nothing_and_the_next_has_its_changes(
    memory: tuple[str, InMemory], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (url, client), name = memory, TABLE
    put(client, name, "one", "first")
    exported(capsys, tmp_path, url, name)
    put(client, name, "one", "second")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("spark.exporting.layout.finish", full_disk)
        assert main(["--endpoint", url, "--table", name, "--to", str(tmp_path), "--incremental"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert len(list(tmp_path.glob("AWSDynamoDB/*"))) == 2, "the full one, and an empty folder of data"
    assert not list(tmp_path.glob("AWSDynamoDB/data/*"))
    _, lines = exported(capsys, tmp_path, url, name, "--incremental")
    assert [line["Keys"]["sk"]["S"] for line in lines] == ["second"]
