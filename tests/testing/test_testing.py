"""`decant.testing` runs the real service in this process, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from chalicelib import wiring
from decant import Decant, operations
from decant.errors import Forbidden, InvalidField, TopicNotFound, Unauthenticated, Unreachable
from decant.testing import Clock, Server
from tests.support.emulators import ROOT


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders")
        server.client.api.put_group("orders", "billing", invisible_ms=30_000, backoff_ms=[60_000])
        yield server


def popped(mq: Decant, wait_ms: int = 0) -> list[str]:
    return [message["receipt"] for message in mq.api.pop("orders", "billing", wait_ms=wait_ms)["messages"]]


def test_a_message_comes_back_when_its_lease_has_ended(server: Server) -> None:
    mq = server.client
    mq.send("orders", "4711")
    assert len(popped(mq)) == 1
    assert popped(mq) == []
    server.clock.advance(seconds=30)
    [again] = mq.api.pop("orders", "billing")["messages"]
    assert again["attempt"] == 2


def test_a_delayed_message_is_there_when_its_time_has_come(server: Server) -> None:
    server.client.send("orders", "4711", delay=timedelta(days=300))
    server.clock.advance(days=299)
    assert popped(server.client) == []
    server.clock.advance(days=2)
    assert len(popped(server.client)) == 1


def test_a_retry_waits_for_its_backoff(server: Server) -> None:
    mq = server.client
    mq.send("orders", "4711")
    mq.api.nack("orders", "billing", receipts=popped(mq))
    server.clock.advance(seconds=59)
    assert popped(mq) == []
    server.clock.advance(seconds=2)
    assert len(popped(mq)) == 1


def test_retention_ends(server: Server) -> None:
    server.client.send("orders", "4711")
    server.clock.advance(days=4)
    assert server.client.api.read_messages("orders")["messages"] == []


def test_a_pop_that_waits_gets_what_is_sent_meanwhile(server: Server) -> None:
    threading.Timer(0.1, server.client.send, ["orders", "4711"]).start()
    assert len(popped(server.client, wait_ms=20_000)) == 1


def test_a_pop_that_waits_ends_when_the_clock_has_passed_its_time(server: Server) -> None:
    found: list[list[str]] = []
    popping = threading.Thread(target=lambda: found.append(popped(server.client, wait_ms=20_000)))
    began = time.monotonic()
    popping.start()
    while popping.is_alive():
        server.clock.advance(seconds=20)
        popping.join(0.05)
    assert found == [[]]
    assert time.monotonic() - began < 19


def test_a_request_that_nobody_answers_times_out_at_once(server: Server) -> None:
    mq, failed = server.client, list[BaseException]()

    def ask() -> None:
        try:
            mq.request("orders", "paid?", timeout=3_000)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        server.clock.advance(minutes=10)
        asking.join(0.05)
    assert [type(error).__name__ for error in failed] == ["ReplyTimeout"]


def test_the_clock_moves_forward_only(server: Server) -> None:
    with pytest.raises(ValueError, match="forward; the step is -1 day"):
        server.clock.advance(days=-1)
    with pytest.raises(ValueError, match="forward"):
        server.clock.advance()


def test_the_async_client_reaches_the_same_service(server: Server) -> None:
    async def sent() -> None:
        await server.async_client.send("orders", "4711")

    asyncio.run(sent())
    assert len(popped(server.client)) == 1


def test_others_reach_the_same_service_by_http(server: Server) -> None:
    server.client.send("orders", "4711")
    with urllib.request.urlopen(f"{server.url}/topics/orders/messages", timeout=10) as response:
        [message] = json.loads(response.read())["messages"]
    assert message["body"] == "4711"
    with Decant(server.url) as other:
        assert len(popped(other)) == 1


def test_each_server_is_empty_and_a_process_has_one_at_a_time(server: Server) -> None:
    with pytest.raises(RuntimeError, match="another"):
        Server()
    server.close()
    with Server() as other, pytest.raises(TopicNotFound):
        other.client.api.get_topic("orders")


def test_a_client_of_a_closed_server_reaches_no_other_service(server: Server) -> None:
    server.close()
    with Server(), pytest.raises(Unreachable, match="is closed"):
        server.client.call(operations.get_topic("orders"), timeout=0.1)


def test_a_server_that_cannot_begin_leaves_room_for_another() -> None:
    with pytest.raises(ValueError, match="DECANT_LOG must be"):
        Server(settings={"DECANT_LOG": "loud"})
    Server().close()


def test_the_module_of_hooks_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "parts", wiring.Parts())
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "refusing_hooks.py").write_text(
        "from chalicelib.hooks import errors, on_send\n\n\ndef before(topic, messages):\n"
        "    raise errors.InvalidField('not today')\n\n\non_send(before=before)\n"
    )
    with Server(settings={"DECANT_HOOKS": "refusing_hooks"}) as server:
        server.client.api.put_topic("orders")
        with pytest.raises(InvalidField, match="not today"):
            server.client.send("orders", "4711")


def test_an_interrupted_wait_does_not_stop_the_clock() -> None:
    clock = Clock()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), clock.call():
        clock.sleep(1_000, interrupt)
    clock.advance(seconds=1)


def test_with_access_callers_need_a_token() -> None:
    with Server(access=True) as server:
        server.client.api.put_topic("orders")
        made = server.client.api.make_token(name="shop", rights=[{"operations": ["produce"], "topics": "orders"}])
        with Decant(server.url) as nobody, pytest.raises(Unauthenticated):
            nobody.send("orders", "4711")
        with Decant(server.url, made["token"]) as shop:
            shop.send("orders", "4711")
            with pytest.raises(Forbidden):
                shop.api.delete_topic("orders")


LATE = ("chalicelib", "decant.client", "decant.testing", "local.", "orjson")


def test_the_plugin_imports_nothing_until_a_fixture_is_used() -> None:
    program = f"import decant.pytest_plugin, sys; print([name for name in sys.modules if name.startswith({LATE})])"
    assert _said(program) == "[]\n"


def test_without_the_extra_it_names_the_extra() -> None:
    lines = "import sys; sys.modules['orjson'] = None", "from decant.testing import Server"
    program = f"{lines[0]}\ntry:\n    {lines[1]}\nexcept ImportError as error:\n    print(error)"
    assert _said(program) == (
        "decant.testing runs the real service, which needs orjson: pip install 'decant-mq[serve]'\n"
    )


def _said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


USERS_TEST = """
import pytest

@pytest.mark.parametrize("repeat", [1, 2])
def test_it(repeat, decant, decant_clock, decant_url):
    decant.api.put_topic("orders")
    decant.api.put_group("orders", "billing")
    decant.send("orders", "4711")
    assert decant_url.startswith("http://127.0.0.1:")
    assert len(decant.api.pop("orders", "billing")["messages"]) == 1
    decant_clock.advance(minutes=1)
    assert decant.api.pop("orders", "billing")["messages"][0]["attempt"] == 2
"""


def test_fixtures_give_each_test_a_service_of_its_own(tmp_path: Path) -> None:
    assert "2 passed" in _tested(tmp_path, USERS_TEST)


def test_the_code_of_the_guide_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/testing.md").read_text(), re.M | re.S)
    assert "2 passed" in _tested(tmp_path, "".join(blocks))


def _tested(folder: Path, content: str) -> str:
    """Runs pytest on a file of the user's. Returns its output."""
    (folder / "test_users.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "decant.pytest_plugin", "-p", "no:cacheprovider", "."]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
