"""Topics, groups, dead letters, delayed messages, transactions and tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decant.testing import Server
from tests.cli.conftest import Run


def lines(run: Run, *arguments: str) -> list[Any]:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_settings_are_set(server: Server, run: Run) -> None:
    [topic] = lines(run, "topic", "set", "orders", "retention_ms=7d", "max_depth=1000")
    assert (topic["retention_ms"], topic["max_depth"], topic["queues"]) == (604_800_000, 1_000, 2)
    settings = ["max_attempts=null", "ordered=key", "backoff_ms=10s,1m", 'filter={"tags": ["paid"]}', "alarm.age_ms=5m"]
    [group] = lines(run, "group", "set", "orders", "audit", *settings)
    assert group["max_attempts"] is None
    assert group["ordered"] == "key"
    assert group["backoff_ms"] == [10_000, 60_000]
    assert group["filter"]["tags"] == ["paid"]
    assert group["alarm"]["age_ms"] == 300_000


def test_a_setting_that_there_is_not_names_those_that_are(server: Server, run: Run) -> None:
    result = run("group", "set", "orders", "billing", "max_attempt=5")
    assert result.exit_code == 2
    assert "max_attempts" in result.stderr
    assert run("group", "set", "orders", "billing", "max_attempts").exit_code == 2


def test_lists_have_all_pages(server: Server, run: Run) -> None:
    for number in range(120):
        server.client.api.put_topic(f"t{number}")
    assert len(lines(run, "topic", "ls")) == 121
    assert len(lines(run, "topic", "ls", "-n", "5")) == 5


def test_a_group_that_there_is_not_is_not_made_by_a_pause(server: Server, run: Run) -> None:
    assert run("group", "pause", "orders", "nobody").exit_code == 3
    assert [group["group"] for group in lines(run, "group", "ls", "orders")] == ["billing"]


@pytest.fixture
def halfway(server: Server) -> Server:
    """Six messages in queue 0, of which three are acked, one is in flight and one waits for a retry."""
    for number in range(6):
        server.client.send("orders", str(number), queue=0)
        server.clock.advance(minutes=1)
    api = server.client.api
    receipts = [message["receipt"] for message in api.pop("orders", "billing", max_messages=5)["messages"]]
    api.ack("orders", "billing", receipts=receipts[:3])
    api.nack("orders", "billing", receipts=receipts[3:4])
    return server


@pytest.mark.parametrize(
    ("to", "again", "skipped"), [("earliest", 5, 0), ("latest", 0, 2), ("now", 0, 2), ("0:3", 2, 0), ("-150s", 1, 0)]
)
def test_a_dry_run_tells_what_would_come_again(halfway: Server, run: Run, to: str, again: int, skipped: int) -> None:
    before = halfway.client.api.get_group("orders", "billing")
    if to.startswith("-"):
        to = str(halfway.clock.now_ms() - 150_000)
    result = run("group", "reset", "orders", "billing", "--to", to, "--dry-run")
    moves = [json.loads(line) for line in result.stdout.splitlines()]
    assert (sum(move["again"] for move in moves), sum(move["skipped"] for move in moves)) == (again, skipped)
    assert "1 retry dropped" in result.stderr
    assert halfway.client.api.get_group("orders", "billing") == before


@pytest.mark.parametrize(("to", "ready"), [("earliest", 6), ("latest", 0), ("0:3", 3)])
def test_a_reset_does_what_the_dry_run_told(halfway: Server, run: Run, to: str, ready: int) -> None:
    result = run("group", "reset", "orders", "billing", "--to", to, "--yes")
    assert result.exit_code == 0
    assert halfway.client.api.get_group("orders", "billing")["ready"] == ready


def test_a_reset_wants_a_place(server: Server, run: Run) -> None:
    assert run("group", "reset", "orders", "billing", "--yes").exit_code == 2
    assert run("group", "reset", "orders", "billing", "--to", "-10", "--yes").exit_code == 2


def dead(server: Server, count: int) -> list[str]:
    server.client.send_all("orders", [str(number) for number in range(count)])
    ids = []
    while messages := server.client.api.pop("orders", "billing", max_messages=256)["messages"]:
        ids += [message["message_id"] for message in messages]
        server.client.api.bury("orders", "billing", receipts=[message["receipt"] for message in messages], reason="bad")
    return ids


def test_dead_letters_are_shown_with_their_reason(server: Server, run: Run) -> None:
    [id_] = dead(server, 1)
    [message] = lines(run, "dead", "ls", "orders", "billing")
    assert message["reason"] == "bad"
    assert lines(run, "dead", "show", "orders", "billing", id_) == [message]
    assert run("dead", "show", "orders", "billing", "none").exit_code == 3


def test_some_or_all_dead_letters_are_redriven(server: Server, run: Run) -> None:
    ids = dead(server, 300)
    assert run("dead", "redrive", "orders", "billing", ids[0]).stderr == "decant: redrove 1 dead letter\n"
    assert server.client.api.get_group("orders", "billing")["dead"] == 299
    assert run("dead", "redrive", "orders", "billing", *ids[1:280]).exit_code == 0
    assert run("dead", "redrive", "orders", "billing", "--all").stderr == "decant: redrove 20 dead letters\n"
    assert server.client.api.get_group("orders", "billing")["dead"] == 0
    assert run("dead", "redrive", "orders", "billing", ids[0]).exit_code == 3
    assert run("dead", "redrive", "orders", "billing").exit_code == 2


def test_dead_letters_are_purged(server: Server, run: Run) -> None:
    dead(server, 3)
    assert run("dead", "purge", "orders", "billing", "--yes").stderr == "decant: purged 3 dead letters\n"
    assert lines(run, "dead", "ls", "orders", "billing") == []


def test_delayed_messages_are_cancelled_once(server: Server, run: Run) -> None:
    id_ = server.client.send("orders", "later", delay=60).id
    assert [message["message_id"] for message in lines(run, "delayed", "ls", "orders")] == [id_]
    assert run("delayed", "cancel", "orders", id_).exit_code == 0
    assert run("delayed", "cancel", "orders", id_).exit_code == 3


def test_transactions_are_decided(server: Server, run: Run) -> None:
    ids = [
        server.client.api.begin_transaction("orders", messages=[{"body": str(n)}])["transaction_id"] for n in range(2)
    ]
    assert {each["transaction_id"] for each in lines(run, "transaction", "ls", "orders")} == {*ids}
    [stored] = lines(run, "transaction", "commit", "orders", ids[0])
    assert server.client.api.get_message("orders", stored["message_id"])
    assert run("transaction", "rollback", "orders", ids[1]).exit_code == 0
    assert run("transaction", "rollback", "orders", ids[0]).exit_code == 1
    assert run("transaction", "commit", "orders", "none").exit_code == 3


def test_a_token_may_do_what_it_is_made_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(access=True) as server:
        monkeypatch.setenv("DECANT_URL", server.url)
        admin = str(server.client.settings.target.token)
        monkeypatch.setenv("DECANT_TOKEN", admin)
        server.client.api.put_topic("orders-eu")
        [made] = lines(run, "token", "make", "sender", "--can", "produce", "--topics", "orders*", "--expires", "1h")
        monkeypatch.setenv("DECANT_TOKEN", made["token"])
        assert run("send", "orders-eu", "x").exit_code == 0
        assert run("peek", "orders-eu").exit_code == 4
        monkeypatch.setenv("DECANT_TOKEN", admin)
        [rotated] = lines(run, "token", "rotate", made["token_id"], "--old-valid", "0")
        assert rotated["token"] != made["token"]
        assert made["token_id"] in [token["token_id"] for token in lines(run, "token", "ls")]
        assert made["token"] not in run("token", "ls").stdout
        assert run("token", "rm", made["token_id"]).exit_code == 2
        assert run("token", "rm", made["token_id"], "--yes").exit_code == 0
        assert run("token", "make", "x", "--can", "fly").exit_code == 2
