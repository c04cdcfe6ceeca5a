"""`decant request`, `reply`, `listen`, `api`, `bench` and the completion of names."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from decant.cli import main
from decant.testing import Server
from tests.cli.conftest import Run
from tests.client.support import servers

Start = Callable[..., subprocess.Popen[bytes]]


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def adders(server: Server) -> Server:
    server.client.api.put_topic("sums")
    server.client.api.put_group("sums", "adders", max_attempts=1)
    return server


def test_a_command_replies_to_requests(adders: Server, run: Run, start: Start) -> None:
    start("reply", "sums", "adders", "--exec", "expr {} + 1")
    result = run("request", "sums", "41", "--timeout", "20s")
    assert (result.exit_code, result.stdout) == (0, "42\n")
    assert run("request", "sums", "-", "--timeout", "20s", stdin="1").stdout == "2\n"
    group = adders.client.api.get_group("sums", "adders")
    assert (group["ready"], group["in_flight"]) == (0, 0)


def test_bytes_stay_bytes_both_ways(adders: Server, run: Run, start: Start) -> None:
    start("reply", "sums", "adders", "--exec", "cat")
    result = run("request", "sums", "-", "--timeout", "20s", stdin=b"\xff\0\n")
    assert result.stdout_bytes == b"\xff\0\n"


def test_a_command_that_fails_sends_no_reply(adders: Server, start: Start, run: Run) -> None:
    process = start("reply", "sums", "adders", "-n", "1", "--exec", "sh -c 'echo wrong; exit 4'")
    result = run("request", "sums", "1", "--timeout", "2s")
    assert result.exit_code == 1
    assert result.stderr.startswith("decant: ReplyTimeout")
    assert process.wait(10) == 1
    assert [dead["reason"] for dead in adders.client.api.list_dead("sums", "adders")["messages"]] == ["exit code 4"]


def test_a_message_that_is_no_request_is_acked(adders: Server, run: Run) -> None:
    adders.client.send("sums", "just so")
    assert run("reply", "sums", "adders", "-n", "1", "--exec", "cat").exit_code == 0
    assert adders.client.api.get_group("sums", "adders")["in_flight"] == 0


# -- listen -----------------------------------------------------------------------------------------------------------


class Hook(http.server.ThreadingHTTPServer):
    """A webhook. `answers`: those of the next calls, else 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_address[1]}/hooks?a=b"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.calls.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status, said = self.server.answers.pop(0) if self.server.answers else (204, b"")
        self.send_response(status)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield hook
        hook.shutdown()
        thread.join()


def groups(server: Server) -> list[str]:
    return [group["group"] for group in server.client.api.list_groups("orders")["groups"]]


SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


def test_messages_come_as_a_push_would_send_them(
    server: Server, hook: Hook, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECANT_LISTEN_SECRET", SECRET)
    server.client.send("orders", "before")
    process = start("listen", "orders", hook.url)
    wait_for(lambda: len(groups(server)) == 2)
    server.client.send("orders", "ü", key="k")
    wait_for(lambda: len(hook.calls) == 1)
    [(path, headers, body)] = hook.calls
    assert path == "/hooks?a=b"
    sent = json.loads(body)
    assert sent["topic"] == "orders"
    assert [message["body"] for message in sent["messages"]] == ["ü"]
    assert "receipt" not in sent["messages"][0]
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(b"k" * 24, content, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    [own] = [group for group in groups(server) if group.startswith("listen-")]
    assert process.stdout
    assert json.loads(process.stdout.readline())["status"] == 204
    assert server.client.api.get_group("orders", own)["in_flight"] == 0
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 143
    assert SECRET not in said.decode()
    assert groups(server) == ["billing"]


def test_any_other_answer_nacks(server: Server, hook: Hook, start: Start) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    hook.answers = [(500, b""), (302, b"")]
    for body in ("one", "two"):
        server.client.send("orders", body, key="k")
    start("listen", "orders", "billing", hook.url, "--batch", "1")
    wait_for(lambda: server.client.api.get_group("orders", "billing")["dead"] == 2)
    reasons = [dead["reason"] for dead in server.client.api.list_dead("orders", "billing")["messages"]]
    assert reasons == ["status 500", "status 302"]


def test_a_report_nacks_those_it_names(server: Server, hook: Hook, start: Start) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    ids = [sent.id for sent in server.client.send_all("orders", ["one", "two"])]
    hook.answers = [
        (200, json.dumps({"batchItemFailures": [{"itemIdentifier": ids[1], "reason": "no stock"}]}).encode())
    ]
    start("listen", "orders", "billing", hook.url)
    wait_for(lambda: server.client.api.get_group("orders", "billing")["dead"] == 1)
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert (dead["message_id"], dead["reason"]) == (ids[1], "no stock")
    wait_for(lambda: server.client.api.get_group("orders", "billing")["in_flight"] == 0)


def _reporting(delay_ms: Any, *ids: str) -> tuple[int, bytes]:
    failures = [{"itemIdentifier": id_, "delay_ms": delay_ms} for id_ in ids]
    return 200, json.dumps({"batchItemFailures": failures}).encode()


def test_a_report_without_a_delay_has_the_message_again_at_once(server: Server, hook: Hook, start: Start) -> None:
    hook.answers = [_reporting(0, server.client.send("orders", "one").id)]
    start("listen", "orders", "billing", hook.url)  # whose backoff is a minute
    wait_for(lambda: len(hook.calls) == 2)


def test_a_report_of_a_delay_that_is_none_nacks_the_whole_call(server: Server, hook: Hook, start: Start) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    hook.answers = [_reporting("soon", server.client.send("orders", "one").id)]
    process = start("listen", "orders", "billing", hook.url)
    wait_for(lambda: server.client.api.get_group("orders", "billing")["dead"] == 1)
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert dead["reason"] == "status 200, but a 'delay_ms' in batchItemFailures is 'soon', not from 0 to 31536000000"
    assert process.poll() is None


def test_a_port_where_nothing_listens_acks_nothing(server: Server, start: Start) -> None:
    server.client.send("orders", "one")
    process = start("listen", "orders", "billing", str(servers.free_port()))
    assert process.stdout
    assert json.loads(process.stdout.readline())["reason"] == "Connection refused"
    assert server.client.api.get_group("orders", "billing")["retrying"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert groups(server) == ["billing"]


def test_a_new_secret_is_printed(server: Server, hook: Hook, start: Start) -> None:
    process = start("listen", "orders", hook.url)
    assert process.stderr
    assert b"the secret is whsec_" in process.stderr.readline()


def test_keep_leaves_the_group(server: Server, hook: Hook, start: Start) -> None:
    process = start("listen", "orders", "local", hook.url, "--keep")
    wait_for(lambda: len(groups(server)) == 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert sorted(groups(server)) == ["billing", "local"]


@pytest.mark.parametrize("place", [["ftp://a"], ["a", "b", "3000"], ["http://localhost:99999/"], ["0"]])
def test_no_group_is_made_for_an_address_that_is_none(server: Server, run: Run, place: list[str]) -> None:
    assert run("listen", "orders", *place).exit_code == 2
    assert groups(server) == ["billing"]


def test_an_unknown_topic_ends_with_3(server: Server, run: Run) -> None:
    assert run("listen", "nowhere", "3000").exit_code == 3


# -- api and bench ----------------------------------------------------------------------------------------------------


def test_api_sends_what_it_is_given(server: Server, run: Run, tmp_path: Path) -> None:
    assert json.loads(run("api", "PUT", "/topics/new", '{"queues": 3}').stdout)["queues"] == 3
    (tmp_path / "body.json").write_text('{"queues": 5}')
    assert json.loads(run("api", "put", "/topics/new", f"@{tmp_path}/body.json").stdout)["queues"] == 5
    assert json.loads(run("api", "PUT", "/topics/new", "-", stdin='{"queues": 6}').stdout)["queues"] == 6
    assert len(json.loads(run("api", "GET", "/topics?limit=1").stdout)["topics"]) == 1
    assert run("api", "GET", "/metrics").stdout.startswith("# HELP")
    assert run("api", "DELETE", "/topics/new").output == ""
    assert run("api", "GET", "/topics/new").exit_code == 3
    assert run("api", "GET", "/no/such/{path}").exit_code == 3


@pytest.mark.parametrize(
    "arguments", [["GET", "topics"], ["PUT", "/topics/a", "{"], ["PUT", "/topics/a", "[]"], ["X", "/"]]
)
def test_api_refuses_what_is_no_call(server: Server, run: Run, arguments: list[str]) -> None:
    assert run("api", *arguments).exit_code == 2


def test_bench_leaves_nothing(server: Server, run: Run) -> None:
    result = run("bench", "-n", "300", "--batch", "64", "-j", "2")
    assert [(step["step"], step["messages"]) for step in map(json.loads, result.stdout.splitlines())] == [
        ("send", 300),
        ("pop", 300),
        ("ack", 300),
    ]
    assert [topic["topic"] for topic in server.client.api.list_topics()["topics"]] == ["orders"]


# -- completion -------------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    environment = {"_DECANT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["decant", *words])}
    environment["COMP_CWORD"] = str(len(words))
    result = CliRunner().invoke(main, [], prog_name="decant", env=environment)
    return [line.partition(",")[2] for line in result.output.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_completion(run: Run, shell: str) -> None:
    assert "_DECANT_COMPLETE" in run("completion", shell).stdout


def test_topics_and_groups_are_completed(server: Server) -> None:
    assert completed("peek", "o") == ["orders"]
    assert completed("take", "orders", "b") == ["billing"]
    assert completed("group", "sh") == ["show"]


def test_names_are_asked_for_once_a_minute(server: Server) -> None:
    assert completed("peek", "o") == ["orders"]
    server.client.api.put_topic("other")
    assert completed("peek", "o") == ["orders"]


def test_no_names_are_no_failure(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_URL", f"http://127.0.0.1:{servers.free_port()}")
    assert completed("peek", "o") == []


def test_a_server_that_hangs_holds_the_shell_up_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.serving("hangs") as server:
        monkeypatch.setenv("DECANT_URL", server.url)
        assert completed("peek", "o") == []


def test_a_reply_that_comes_too_late_is_refused_and_its_request_acked(adders: Server, run: Run) -> None:
    asked = adders.client.api.request("sums", body="1", wait_ms=0, timeout_ms=60_000)
    adders.client.api.reply(asked["correlation_id"], body="of another")
    result = run("reply", "sums", "adders", "-n", "1", "--exec", "cat")
    assert result.exit_code == 0
    assert "the reply is refused: AlreadyReplied" in result.stderr
    assert adders.client.api.get_group("sums", "adders")["in_flight"] == 0


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.startswith("decant, version ")
