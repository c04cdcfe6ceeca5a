"""`decant take`: nothing is acked that was not done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decant.calls import HttpRequest, HttpResponse, NoAnswer
from decant.cli.service import Impatient
from decant.testing import Server
from tests.cli.conftest import Run

Start = Callable[..., subprocess.Popen[bytes]]


def sent(server: Server, *bodies: str, **options: Any) -> None:
    for body in bodies:
        server.client.send("orders", body, **options)


def progress(server: Server) -> dict[str, int]:
    group: Any = server.client.api.get_group("orders", "billing")
    return {name: group[name] for name in ("ready", "in_flight", "retrying", "dead") if group[name]}


def wait_for(server: Server, **counts: int) -> None:
    until = time.monotonic() + 10
    while progress(server) != counts:
        assert time.monotonic() < until, progress(server)
        time.sleep(0.02)


# -- printed ----------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_acked(server: Server, run: Run) -> None:
    sent(server, "one", "two", "three")
    result = run("take", "orders", "billing")
    assert result.exit_code == 0
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(message["body"] for message in messages) == ["one", "three", "two"]
    assert "receipt" not in messages[0]
    assert progress(server) == {}


def test_no_more_is_taken_than_was_asked_for(server: Server, run: Run) -> None:
    sent(server, *map(str, range(12)))
    assert len(run("take", "orders", "billing", "-n", "3").stdout.splitlines()) == 3
    assert progress(server) == {"ready": 9}
    assert len(run("take", "orders", "billing").stdout.splitlines()) == 9


def test_never_leaves_the_leases_and_prints_the_receipts(server: Server, run: Run) -> None:
    sent(server, "one")
    message = json.loads(run("take", "orders", "billing", "--ack", "never", "--lease", "1h").stdout)
    assert progress(server) == {"in_flight": 1}
    receipts = json.dumps({"receipts": [message["receipt"]]})
    answer = run("api", "post", "/topics/orders/groups/billing/ack", receipts).stdout
    assert json.loads(answer) == {"acked": 1, "failed": []}


def test_an_empty_group_is_no_failure_unless_it_is_asked_for(server: Server, run: Run) -> None:
    result = run("take", "orders", "billing")
    assert (result.exit_code, result.output) == (0, "")
    assert run("take", "orders", "billing", "--fail-empty").exit_code == 6


def test_it_waits_for_the_first_message(server: Server, start: Start) -> None:
    process = start("take", "orders", "billing", "--wait", "30s", "--template", "{body}")
    time.sleep(1)
    sent(server, "late")
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, b"late\n")


def test_it_says_that_a_group_is_paused(server: Server, run: Run) -> None:
    sent(server, "one")
    assert run("group", "pause", "orders", "billing").exit_code == 0
    assert run("take", "orders", "billing").stderr == "decant: the group billing is paused\n"
    assert run("group", "resume", "orders", "billing").exit_code == 0
    assert run("take", "orders", "billing", "-o", "ids").stdout != ""


def test_following_goes_on_until_a_signal(server: Server, start: Start) -> None:
    process = start("take", "orders", "billing", "--follow", "--template", "{body}")
    assert process.stdout
    for body in ("one", "two"):
        sent(server, body)
        assert process.stdout.readline() == f"{body}\n".encode()
    wait_for(server)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (143, b"decant: ended by SIGTERM\n")


def test_a_reader_that_is_gone_has_no_message_acked(server: Server, start: Start) -> None:
    sent(server, "one", "two")
    ours, theirs = os.pipe()
    os.close(ours)
    process = start("take", "orders", "billing", stdout=theirs)
    os.close(theirs)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert said.decode().splitlines() == [
        "decant: not acked, so delivered again: 2 messages",
        "decant: the reader of the output has closed it",
    ]
    assert progress(server) == {"ready": 2}


def test_a_full_disk_has_no_message_acked(server: Server, start: Start) -> None:
    sent(server, "one")
    with Path("/dev/full").open("wb") as full:
        process = start("take", "orders", "billing", stdout=full)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert said.decode().splitlines() == [
        "decant: not acked, so delivered again: 1 message",
        "decant: No space left on device",
    ]
    assert progress(server) == {"ready": 1}


def test_an_ack_of_a_lost_lease_is_told(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(server, "one")
    original = server.client.api.pop

    def slow(items: Any, self: Any) -> None:
        server.clock.advance(minutes=5)
        assert original("orders", "billing")["messages"]

    monkeypatch.setattr("decant.cli.output.Out.many", lambda self, items: slow(items, self))
    result = run("take", "orders", "billing")
    assert result.exit_code == 1
    assert result.stderr == "decant: not acked, since the lease is lost: 1 message; others may have them\n"


# -- commands ---------------------------------------------------------------------------------------------------------


def test_a_command_that_ends_with_0_acks(server: Server, run: Run, tmp_path: Path) -> None:
    sent(server, "4711", key="k", tag="t", properties={"a": "ü"})
    file = tmp_path / "said"
    script = f'cat > {file}; printf " %s" "$DECANT_KEY" "$DECANT_TAG" "$DECANT_PROPERTIES" "$DECANT_ATTEMPT" >> {file}'
    result = run("take", "orders", "billing", "--exec", f"sh -c '{script}'")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "decant: 1 acked\n")
    assert file.read_text() == '4711 k t {"a": "ü"} 1'
    assert progress(server) == {}


def test_fields_that_a_message_lacks_are_unset(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_KEY", "of another")
    sent(server, "one")
    assert run("take", "orders", "billing", "--exec", "sh -c 'test -z ${DECANT_KEY+x}'").exit_code == 0


def test_exit_code_75_has_the_message_again_without_a_reason(server: Server, run: Run) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    sent(server, "one")
    assert run("take", "orders", "billing", "--exec", "sh -c 'exit 75'").exit_code == 1
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert "75" not in dead["reason"]


@pytest.mark.parametrize(("ends", "reason"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9")])
def test_any_other_end_nacks_with_the_reason(server: Server, run: Run, ends: str, reason: str) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    sent(server, "one")
    result = run("take", "orders", "billing", "--exec", f"sh -c '{ends}'")
    assert result.exit_code == 1
    assert reason in result.stderr
    assert [dead["reason"] for dead in server.client.api.list_dead("orders", "billing")["messages"]] == [reason]


def test_braces_are_the_body_and_no_shell_reads_it(server: Server, start: Start) -> None:
    sent(server, "$(echo no) 'quoted'; a  b")
    out, _ = start("take", "orders", "billing", "--exec", "printf '<%s>' {}").communicate(timeout=10)
    assert out == b"<$(echo no) 'quoted'; a  b>"


def test_a_body_that_is_no_argument_is_nacked(server: Server, run: Run) -> None:
    sent(server, "nul\0")
    result = run("take", "orders", "billing", "--exec", "echo {}")
    assert result.exit_code == 1
    assert "the command was not run: embedded null byte" in result.stderr
    assert progress(server) == {"retrying": 1}


def test_a_command_that_does_not_read_its_input_is_no_failure(server: Server, run: Run) -> None:
    sent(server, "x" * 1_000_000)
    assert run("take", "orders", "billing", "--exec", "true").exit_code == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_messages_that_a_closed_pipe_has_not_taken_come_again(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    server.client.send_all("orders", [f"{number} {'x' * 3_000}" for number in range(100)])
    process = start("take", "orders", "billing", "-n", "100", "--template", "{body}")
    assert process.stdout
    process.stdout.read(16_384)
    process.stdout.close()
    assert process.wait(20) == 1
    assert progress(server) == {"ready": 100}


def test_commands_whose_output_nobody_reads_are_not_begun(server: Server, start: Start) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=2, backoff_ms=[100])
    sent(server, "one", "two", "three")
    ours, theirs = os.pipe()
    os.close(ours)
    process = start("take", "orders", "billing", "--follow", "--exec", "cat", stdout=theirs)
    os.close(theirs)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert said.decode().splitlines()[-1] == "decant: the reader of the output has closed it"
    assert progress(server) == {"ready": 3}


@pytest.mark.parametrize("template", ["{bdy}", "{key} {propertys.a}"])
def test_a_template_of_no_field_takes_no_message(server: Server, run: Run, template: str) -> None:
    sent(server, "one")
    result = run("take", "orders", "billing", "--template", template)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--template: there is no field" in result.stderr
    assert progress(server) == {"ready": 1}


@pytest.mark.parametrize("command", ["", " ", "no-such-command {}", "'unclosed"])
def test_a_command_that_there_is_not_takes_nothing(server: Server, run: Run, command: str) -> None:
    sent(server, "one")
    assert run("take", "orders", "billing", "--exec", command).exit_code == 2
    assert progress(server) == {"ready": 1}


def test_leases_are_extended_while_a_command_runs(server: Server, start: Start) -> None:
    sent(server, "one")
    process = start("take", "orders", "billing", "--lease", "1s", "--exec", "sleep 3")
    wait_for(server, in_flight=1)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        assert server.client.api.pop("orders", "billing")["messages"] == []
        time.sleep(0.05)
    assert process.wait(10) == 0
    assert progress(server) == {}


def test_a_lost_answer_to_an_extend_loses_no_lease(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(server, "one")
    send = Impatient.send
    lost: list[HttpRequest] = []

    def lossy(self: Impatient, request: HttpRequest, timeout_s: float) -> HttpResponse:
        response = send(self, request, timeout_s)
        if request.operation == "extend" and not lost:
            lost.append(request)
            raise NoAnswer("the connection broke")
        return response

    monkeypatch.setattr(Impatient, "send", lossy)
    result = run("take", "orders", "billing", "--lease", "2s", "--exec", "sleep 2")
    assert (result.exit_code, result.stderr) == (0, "decant: 1 acked\n")
    assert len(lost) == 1
    assert progress(server) == {}


def test_several_commands_run_at_once(server: Server, run: Run, tmp_path: Path) -> None:
    sent(server, "one", "two", "three")
    meet = f"touch {tmp_path}/{{}}; until [ $(ls {tmp_path} | grep -c -E 'one|two|three') = 3 ]; do sleep 0.02; done"
    script = tmp_path / "meet.sh"
    script.write_text(meet.replace("{}", "$1"))
    assert run("take", "orders", "billing", "-j", "3", "--exec", f"timeout 20 sh {script} {{}}").exit_code == 0


def test_a_signal_lets_the_command_end_and_acks_it(server: Server, start: Start, tmp_path: Path) -> None:
    sent(server, "one", "two")
    script = f"touch {tmp_path}/begun; sleep 2; echo done >> {tmp_path}/done"
    process = start("take", "orders", "billing", "--follow", "--exec", f"sh -c '{script}'")
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 143
    assert (tmp_path / "done").read_text() == "done\n"
    assert "waiting for 1 command" in said.decode()
    assert progress(server) == {"ready": 1}


def test_a_second_signal_ends_the_command_and_acks_nothing(server: Server, start: Start, tmp_path: Path) -> None:
    sent(server, "one")
    process = start("take", "orders", "billing", "--exec", f"sh -c 'touch {tmp_path}/begun; sleep 60'")
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert process.stderr.readline().startswith(b"decant: waiting for 1 command")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert progress(server) == {"retrying": 1}


def test_a_kill_loses_nothing(server: Server, start: Start) -> None:
    sent(server, *map(str, range(20)))
    process = start("take", "orders", "billing", "-n", "20", "-j", "4", "--exec", "sleep 0.2")
    wait_for(server, in_flight=4, ready=16)
    process.kill()
    process.wait()
    server.clock.advance(seconds=31)
    left = progress(server)["ready"]
    taken = server.client.api.pop("orders", "billing", max_messages=256, fill=True)["messages"]
    assert len(taken) == left
    assert left >= 12


@pytest.mark.parametrize("way", ["printing", "a command"])
def test_signals_at_any_moment_ack_nothing_that_was_not_done(
    server: Server, start: Start, tmp_path: Path, way: str
) -> None:
    server.client.api.put_group("orders", "billing", max_in_flight=20_000, max_attempts=1_000)
    ids = {sent.id for sent in server.client.send_all("orders", [str(number) for number in range(3_000)])}
    done = tmp_path / "done"
    chance = random.Random(7)
    command = ["--exec", f"sh -c 'echo $DECANT_MESSAGE_ID >> {done}'", "-j", "3"]
    options = command if way == "a command" else ["-n", "300", "-o", "ids"]
    for number in [signal.SIGTERM, signal.SIGKILL, signal.SIGINT] * 3:
        with done.open("ab") as file:
            process = start("take", "orders", "billing", "--follow", *options, stdout=file)
            size, until = done.stat().st_size, time.monotonic() + 10
            while done.stat().st_size == size and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.3)
            process.send_signal(number)
            process.wait(20)
    time.sleep(0.5)  # commands that a kill has left behind
    server.clock.advance(minutes=10)
    left = set()
    while messages := server.client.api.pop("orders", "billing", max_messages=256, fill=True)["messages"]:
        left |= {message["message_id"] for message in messages}
    acked = ids - left
    assert acked - set(done.read_text().split()) == set()
    assert acked != set()


@pytest.mark.parametrize(
    "arguments",
    [["--ack", "after-command"], ["--ack", "auto", "--exec", "true"], ["-n", "0"], ["--lease", "0"], ["--wait", "5"]],
)
def test_wrong_usage_ends_with_2(server: Server, run: Run, arguments: list[str]) -> None:
    sent(server, "one")
    assert run("take", "orders", "billing", *arguments).exit_code == 2
    assert progress(server) == {"ready": 1}
