"""A store reopened on its folder has everything again, however the process ended. A folder that cannot be used is one
clear line."""

from __future__ import annotations

import json
import pickle
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.store import Keys, Range
from chalicelib.core.table.writes import Absent, Append, Key, Refused, RemoveItem, Set, Write
from chalicelib.doors.http.door import respond
from chalicelib.doors.http.exchange import Response
from local import StartupError
from local.memory.disk import FILE, FORMAT, RESERVE, Disk, FolderUnusable
from local.memory.opening import open_memory
from local.memory.store import MemoryStore
from local.server import request_of
from local.startup import open_store
from tests.local.serving import Running, refusal, running

A, B, C = (Key("p", sk) for sk in "abc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


class Kept:
    """A store that keeps a folder, and can be closed as the end of its process closes it."""

    def __init__(self, folder: Path) -> None:
        self.disk = Disk(folder)
        self.store = MemoryStore(keeps_blobs=True, keeper=self.disk)


@pytest.fixture
def kept(folder: Path) -> Iterator[Kept]:
    kept = Kept(folder)
    yield kept
    kept.disk.close()


def held(store: MemoryStore) -> tuple[dict[str, Any], dict[str, bytes]]:
    return store._items, store._blobs


def again(kept: Kept, folder: Path) -> MemoryStore:
    """The store of the next process."""
    kept.disk.close()
    with closing(Disk(folder)) as disk:
        return MemoryStore(keeps_blobs=True, keeper=disk)


def new(key: Key, **attributes: Any) -> Write:
    return Write(key, (Absent(("pk",)),), tuple(Set((name,), value) for name, value in attributes.items()))


def test_each_kind_of_change_is_there_again(kept: Kept, folder: Path) -> None:
    store = kept.store
    store.write(new(A, n=1, l=[b"\x00", "é", {"x": -7}], t=True))
    store.write(Write(A, (), (Append(("l",), [2]), Set(("n",), 1 << 100))))
    store.write_each([new(B, n=2), new(A, n=3)])
    store.write_together([Write(B, (), (Set(("n",), 4),)), new(C, n=5)])
    store.put_all([{"pk": "q", "sk": f"{number}", "data": b"x"} for number in range(3)])
    store.remove_all([Key("q", "0"), Key("q", "none")])
    store.write(Write(C, (), (RemoveItem(),)))
    store.put_blob("kept", bytes(range(256)) * 1_000)
    store.put_blob("gone", b"")
    store.remove_blobs(["gone", "none"])
    expected = held(store)
    assert {key for part in expected[0].values() for key in part} == {"a", "b", "1", "2"}
    assert held(again(kept, folder)) == expected


def test_a_write_that_is_refused_keeps_nothing(kept: Kept, folder: Path) -> None:
    kept.store.write(new(A, n=1))
    with pytest.raises(Refused):
        kept.store.write(new(A, n=2))
    with pytest.raises(Refused):
        kept.store.write_together([new(B, n=2), new(A, n=2)])
    assert held(again(kept, folder))[0] == {"p": {"a": {"pk": "p", "sk": "a", "n": 1}}}


def test_a_full_disk_applies_nothing_and_ends_with_room(kept: Kept, folder: Path) -> None:
    store, data = kept.store, b"x" * 100_000
    store.write(new(A, n=1))
    store.put_blob("first", b"1")
    [[pages]] = kept.disk._db.execute("PRAGMA page_count")
    kept.disk._db.execute(f"PRAGMA max_page_count = {pages + 3}")
    before = held(store)[0]["p"].copy(), held(store)[1].copy()
    for change in (
        lambda: store.write(new(B, data=data)),
        lambda: store.write_together([Write(A, (), (Set(("n",), 2),)), new(B, data=data)]),
        lambda: store.put_all([{"pk": "p", "sk": "c"}, {"pk": "p", "sk": "d", "data": data}]),
        lambda: store.put_blob("second", data),
    ):
        with pytest.raises(StoreUnavailable, match="full") as trouble:
            change()
        assert not trouble.value.outcome_unknown
    outcomes = store.write_each([Write(A, (), (Set(("n",), 3),)), new(B, data=data), new(A, n=4)])
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable, Refused]
    assert (held(store)[0]["p"], held(store)[1]) == before
    kept.disk._db.execute("PRAGMA max_page_count = 1000000")
    store.write(new(B, data=data))
    expected = held(store)
    assert held(again(kept, folder)) == expected


def test_a_change_is_kept_before_anyone_reads_it(folder: Path) -> None:
    seen = []

    class Asked(Disk):
        def keep(self, changes: Any) -> None:
            seen.append(store.read([Keys([A])])[0])
            super().keep(changes)
            seen.append(store.read([Range("p", "", "z")])[0])

    with closing(Asked(folder)) as disk:
        store = MemoryStore(keeper=disk)
        store.write(new(A, n=0))
        store.write(Write(A, (), (Set(("n",), 1),)))
    first = {"pk": "p", "sk": "a", "n": 0}
    assert seen == [[], [], [first], [first]]


# -- folders that cannot be used --------------------------------------------------------------------------------------


def sql(folder: Path, *statements: str) -> None:
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def put_raw(folder: Path, content: bytes) -> None:
    with closing(Disk(folder)) as disk:
        disk._db.execute("INSERT INTO item VALUES ('p', 'a', ?)", (content,))


def cut(folder: Path) -> None:
    """The second half of the file is gone."""
    with closing(Disk(folder)) as disk:
        MemoryStore(keeper=disk).put_all([{"pk": "p", "sk": f"{n}", "data": b"x" * 5_000} for n in range(100)])
    file = folder / FILE
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def other_files(folder: Path) -> None:
    folder.mkdir()
    (folder / "letter.txt").touch()


def no_sqlite(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE).write_bytes(b"what somebody wrote" * 1_000)


def newer(folder: Path) -> None:
    Disk(folder).close()
    sql(folder, f"PRAGMA user_version = {FORMAT + 1}")


def older(folder: Path) -> None:
    Disk(folder).close()
    sql(folder, f"PRAGMA user_version = {FORMAT - 1}")


def emptied(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE).touch()
    (folder / f"{FILE}-wal").write_bytes(b"changes")


BROKEN = {
    "other files": (other_files, "has other files, and none of Decant"),
    "no SQLite": (no_sqlite, "is damaged, or not of Decant"),
    "foreign": (lambda folder: sql(folder, "CREATE TABLE mine (a)"), "is not of Decant"),
    "marked by others": (lambda folder: sql(folder, "PRAGMA application_id = 7"), "is not of Decant"),
    "newer": (newer, f"is stored in form {FORMAT + 1}, and this release reads form {FORMAT}: "),
    "older": (older, f"is stored in form {FORMAT - 1}, and this release reads form {FORMAT}: "),
    "cut off": (cut, "is damaged"),
    "cut to nothing": (emptied, "is empty, and decant.sqlite-wal has changes of it"),
    "no item": (lambda folder: put_raw(folder, b"\x80"), "is damaged"),
    "no text": (lambda folder: put_raw(folder, b"\x80\x05\x8c\x01\xff."), "is damaged"),
    "no map": (lambda folder: put_raw(folder, pickle.dumps(["a"])), "is damaged"),
    "another key": (lambda folder: put_raw(folder, pickle.dumps({"pk": "x", "sk": "y"})), "has another key"),
    "code": (lambda folder: put_raw(folder, pickle.dumps(print)), "an item holds a builtins.print"),
    "a file": (lambda folder: folder.touch(), "cannot be used: File exists"),
    "under a file": (lambda folder: (folder.parent.rmdir(), folder.parent.touch()), "cannot be used: Not a directory"),
}


@pytest.mark.parametrize(("spoil", "named"), BROKEN.values(), ids=BROKEN)
def test_a_folder_that_is_not_ours_is_refused(spoil: Any, named: str, tmp_path: Path) -> None:
    folder = tmp_path / "of" / "data"
    folder.parent.mkdir()
    spoil(folder)
    before = {path: path.read_bytes() for path in folder.glob("*.*")}
    with pytest.raises(FolderUnusable) as refused:
        MemoryStore(keeper=Disk(folder))
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in before} == before


def test_a_process_that_ended_while_it_made_the_file_left_an_empty_one(folder: Path) -> None:
    sql(folder, "PRAGMA journal_mode = WAL")
    Disk(folder).close()


def test_a_folder_serves_one_process(folder: Path) -> None:
    with closing(Disk(folder)):
        assert f"{folder} is used by another process" in refusal(PORT="0", DATA=str(folder))


@pytest.fixture
def chalice_local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Response]]:
    """Answers over the store that the environment names."""
    for name, value in (("DECANT_STORE", "memory"), ("DATA", str(folder))):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wiring.parts, "open_memory", open_memory)
    wiring.use(None)
    yield lambda method, target: respond(request_of(method, target, {}, None))
    wiring.use(None)


def test_the_local_server_of_chalice_keeps_the_folder_too(
    chalice_local: Callable[[str, str], Response], folder: Path
) -> None:
    assert chalice_local("PUT", "/topics/orders").status == 201
    store = wiring.api().service.env.store
    assert isinstance(store, MemoryStore)
    disk = store._keeper
    assert isinstance(disk, Disk)
    disk.close()
    wiring.use(None)
    assert chalice_local("GET", "/topics/orders").status == 200


def test_the_local_server_of_chalice_says_why_it_cannot_use_the_folder(
    chalice_local: Callable[[str, str], Response], folder: Path
) -> None:
    with closing(Disk(folder)):
        refused = chalice_local("GET", "/topics")
    assert (refused.status, json.loads(refused.text)["detail"]) == (503, f"{folder} is used by another process")


def test_only_the_memory_store_keeps_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(folder))
    for settings in (
        {"DECANT_STORE": "dynamodb"},
        {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1", "DECANT_STORE": ""},
    ):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StartupError, match="only the memory store keeps a folder"):
            open_store()
    assert not folder.exists()


# -- a process that is killed -----------------------------------------------------------------------------------------

PRODUCERS, LARGE = 4, "é" * 200_000
KILLED_AFTER = 60
"""Messages."""


def produced(server: Running, turn: str) -> list[str]:
    """The bodies whose produce was answered before the server was killed, in the middle of others."""
    bodies: list[str] = []

    def produce(producer: int) -> None:
        number = 0
        while True:
            number += 1
            body = f"{turn}{producer}-{number}" + (LARGE if number % 20 == 7 else "")
            sent = json.dumps({"messages": [{"body": body, "key": f"{producer}"}, {"body": f"{body}+"}]})
            try:
                status = server.ask("POST", "/topics/t/messages", sent)[0]
            except OSError:
                return
            assert status == 200
            bodies.extend([body, f"{body}+"])

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    while len(bodies) < KILLED_AFTER:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGKILL)
    for producer in producers:
        producer.join()
    return bodies


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_ended_leaves_all_in_one_file(folder: Path, ending: signal.Signals) -> None:
    with running(DATA=str(folder)) as server:
        server.ask("PUT", "/topics/t")
        server.end(ending)
    assert sorted(path.name for path in folder.iterdir()) == [RESERVE, FILE]
    with running(DATA=str(folder)) as server:
        assert server.ask("GET", "/topics/t")[0] == 200


def test_what_was_acknowledged_survives_kills_under_load(folder: Path) -> None:
    acknowledged: list[str] = []
    for turn in "ab":
        with running(DATA=str(folder)) as server:
            assert f"store: memory, kept in {folder}" in server.banner
            server.ask("PUT", "/topics/t")
            server.ask("PUT", "/topics/t/groups/g", '{"start": "earliest"}')
            acknowledged += produced(server, turn)
    found: list[str] = []
    with running(DATA=str(folder)) as server:
        receipts: list[str] = []
        while True:
            asked = json.dumps({"max_messages": 100, "ack": receipts})
            popped = json.loads(server.ask("POST", "/topics/t/groups/g/pop", asked)[2])
            assert popped["failed"] == []
            if not popped["messages"]:
                break
            found += [message["body"] for message in popped["messages"]]
            receipts = [message["receipt"] for message in popped["messages"]]
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    assert len(found) <= len(acknowledged) + 2 * 2 * PRODUCERS, "what was under way may be there"
