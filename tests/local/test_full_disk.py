"""A folder whose disk is full can be emptied through the server: a reserve is for what makes room."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chalicelib.api import OPERATIONS
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import KIB
from chalicelib.core.table.writes import Key
from chalicelib.core.telemetry.record import Record, recording
from chalicelib.core.telemetry.telemetry import PUSH, SWEEP
from chalicelib.doors.mqhttp.calls import CALLS
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.door import OPERATION
from local.memory import disk as disk_module
from local.memory.disk import MAKE_ROOM, RESERVE, Disk, Reserve
from local.memory.store import MemoryStore
from tests.local.serving import Running, running

SMALL_RESERVE_BYTES = 256 * KIB
PAGE_BYTES = 4 * KIB


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    """On a disk of its own, which has room for as much again as the reserve."""
    monkeypatch.setattr(disk_module, "RESERVE_BYTES", SMALL_RESERVE_BYTES)
    monkeypatch.setattr(Reserve, "free_bytes", lambda _: 0)
    with closing(Disk(tmp_path / "data")) as disk:
        give_up = disk._reserve.give_up

        def given_up() -> None:
            give_up()
            disk._db.execute(f"PRAGMA max_page_count = {3 * SMALL_RESERVE_BYTES // PAGE_BYTES}")

        monkeypatch.setattr(disk._reserve, "give_up", given_up)
        disk._db.execute(f"PRAGMA max_page_count = {2 * SMALL_RESERVE_BYTES // PAGE_BYTES}")
        yield MemoryStore(keeper=disk)


def put(store: MemoryStore, number: int) -> None:
    store.put_all([{"pk": "p", "sk": str(number), "data": b"x" * 30_000}])


def fill(store: MemoryStore) -> int:
    """How many items have room."""
    for number in range(SMALL_RESERVE_BYTES):
        try:
            put(store, number)
        except StoreUnavailable:
            return number
    raise AssertionError("the disk is never full")


def test_only_what_makes_room_may_use_the_reserve(store: MemoryStore, tmp_path: Path) -> None:
    assert not store.is_full
    fill(store)
    assert store.is_full
    for name in ("produce", "sqs.SendMessage", "put_topic", ""):
        with recording(Record(name)), pytest.raises(StoreUnavailable, match="full"):
            put(store, 100)
    assert (tmp_path / "data" / RESERVE).exists()
    for number, name in enumerate(("pop", "sqs.ReceiveMessage", "mq_ack", SWEEP)):
        with recording(Record(name)):
            put(store, 101 + number)
    assert not (tmp_path / "data" / RESERVE).exists()
    with recording(Record("produce")), pytest.raises(StoreUnavailable, match="only for what makes room"):
        put(store, 100)
    assert store.is_full


def test_what_was_deleted_makes_room_for_other_changes(store: MemoryStore) -> None:
    count = fill(store)
    with recording(Record("pop")):
        put(store, count)
    with recording(Record("delete_topic")):
        store.remove_all([Key("p", "0")])
    assert store.is_full  # what is free is less than the reserve was
    with recording(Record("delete_topic")):
        store.remove_all([Key("p", str(number)) for number in range(count + 1)])
    assert not store.is_full
    with recording(Record("produce")):
        put(store, 0)


def test_the_reserve_is_taken_again_once_the_disk_has_room(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    with recording(Record("ack")):
        put(store, 100)
    monkeypatch.setattr(Reserve, "free_bytes", lambda _: 2 * SMALL_RESERVE_BYTES)
    assert not store.is_full
    put(store, 101)
    assert (tmp_path / "data" / RESERVE).stat().st_size == SMALL_RESERVE_BYTES


def test_all_that_makes_room_is_an_operation_of_some_door() -> None:
    names = {operation.name for operation in (*OPERATIONS.values(), *CALLS.operations)}
    assert {*names, *(OPERATION + action for action in ACTIONS), PUSH, SWEEP} >= MAKE_ROOM
    deleting = {operation.name for operation in OPERATIONS.values() if operation.method == "DELETE"}
    assert deleting <= MAKE_ROOM


# -- a real disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount, umount = shutil.which("mount"), shutil.which("umount")
    size = ("-t", "tmpfs", "-o", "size=32m", "tmpfs")
    if not (mount and umount) or subprocess.run([mount, *size, tmp_path], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk, and only on Linux")
    yield tmp_path
    subprocess.run([umount, "-l", tmp_path], check=True)


def produce(server: Running) -> int:
    body = {"messages": [{"body_base64": "".join(f"{number:04x}" for number in range(50_000))}]}
    return server.ask("POST", "/topics/orders/messages", json.dumps(body))[0]


def status(server: Running) -> str:
    code, _, body = server.ask("GET", "/health")
    assert code == 200
    return str(json.loads(body)["status"])


def test_a_server_on_a_full_disk_can_be_emptied_and_goes_on(small_disk: Path) -> None:
    with running(DATA=str(small_disk / "data")) as server:
        server.ask("PUT", "/topics/orders", '{"queues": 1}')
        server.ask("PUT", "/topics/orders/groups/billing")
        while produce(server) == 200:
            pass
        assert (produce(server), status(server)) == (503, "full")
        for _ in range(5):
            code, _, body = server.ask("POST", "/topics/orders/groups/billing/pop", '{"max_messages": 3}')
            receipts = [message["receipt"] for message in json.loads(body)["messages"]]
            assert (code, len(receipts)) == (200, 3)
            asked = json.dumps({"receipts": receipts})
            assert server.ask("POST", "/topics/orders/groups/billing/ack", asked)[0] == 200
        assert server.ask("DELETE", "/topics/orders")[0] == 204
        assert server.ask("PUT", "/topics/orders", '{"queues": 1}')[0] == 201
        assert (produce(server), status(server)) == (200, "ok")
        assert server.end(signal.SIGTERM) == (0, "")
    with running(DATA=str(small_disk / "data")) as again:
        assert produce(again) == 200
