"""Each file of `examples` runs as a user copies it, against the real service."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from decant import Decant
from decant.testing import Server
from tests.local.serving import ANSWER_SECONDS, environment
from tests.support import moto_aws
from tests.support.emulators import ROOT, free_port

FOLDER = ROOT / "examples"
Test = Callable[..., None]
_tested: set[str] = set()


def example(name: str) -> Callable[[Test], Test]:
    """Says which example the test runs."""
    _tested.add(name)
    return lambda test: test


def test_each_example_has_a_test_and_can_be_copied() -> None:
    files = sorted(FOLDER.iterdir())
    assert {path.stem for path in files if path.suffix == ".py"} == _tested
    assert [path.name for path in files if len(path.read_text().splitlines()) > 50] == []


def test_the_guide_shows_each_example() -> None:
    page = (ROOT / "docs/examples.md").read_text()
    assert {path.name for path in FOLDER.glob("*.py")} == {*re.findall(r"\(\.\./examples/(\w+\.py)\)", page)}
    assert {*re.findall(r'^--8<-- "examples/(\w+)\.py"$', page, re.M)} == _tested - {"orders"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        monkeypatch.setenv("DECANT_URL", server.url)
        monkeypatch.delenv("DECANT_TOKEN", raising=False)
        yield server


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Runs an example as a program that ends when no message is ready. Returns its names."""
    monkeypatch.setattr(Decant, "run", Decant.work)
    return lambda name: runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The lines printed since the last call."""
    return lambda: capsys.readouterr().out.splitlines()


Run = Callable[[str], dict[str, Any]]
Said = Callable[[], list[str]]


@example("first_message")
def test_a_first_message_is_sent_and_taken(run: Run, said: Said) -> None:
    run("first_message")
    sent, took = said()
    assert sent.startswith("sent ")
    assert took == "took 'Hello'"


@example("worker")
def test_the_worker_handles_typed_messages_and_buries_others(server: Server, run: Run, said: Said) -> None:
    module, mq = run("worker"), server.client
    mq.send("invoices", {"number": 4711, "total": 9.9})
    mq.send("invoices", "no invoice")
    module["declare"](mq)
    for _ in range(5):
        mq.work()
        server.clock.advance(minutes=30)
    assert said() == ["mailed invoice 4711: 9.90"]
    assert len(mq.api.list_dead("invoices", "mail")["messages"]) == 1


@example("fan_out")
def test_each_group_gets_each_purchase_that_it_wants(run: Run, said: Said) -> None:
    run("fan_out")
    assert sorted(said()) == [
        *("billing: purchase 1", "billing: purchase 2"),
        *("search: purchase 1", "search: purchase 2"),
        "shipping: purchase 2",
    ]


@example("retries")
def test_failed_payments_come_again_or_become_dead_letters(server: Server, run: Run, said: Said) -> None:
    module, mq = run("retries"), server.client
    module["declare"](mq)
    failures = [module["BankBusy"](), OSError("the network")]

    def charge(payment: str) -> None:
        if payment == "rubbish":
            raise ValueError(payment)
        if failures:
            raise failures.pop(0)

    module["declare"].__globals__["charge"] = charge
    mq.send("payments", "rubbish")
    mq.send("payments", "4711")
    for delay in (timedelta(minutes=5), timedelta(seconds=60)):
        mq.work()
        server.clock.advance(delay - timedelta(seconds=1))
        mq.work()
        assert said() == []
        server.clock.advance(seconds=2)
    mq.work()
    assert said() == ["paid 4711 at attempt 3"]
    [dead] = mq.api.list_dead("payments", "cards")["messages"]
    assert dead["reason"] == "no payment: 'rubbish'"


@example("reminder")
def test_a_reminder_comes_late_unless_it_is_cancelled(server: Server, run: Run, said: Said) -> None:
    module, mq = run("reminder"), server.client
    module["declare"](mq)
    server.clock.advance(seconds=2)
    mq.work()
    assert said() == ["mail to customer-7: your cart still waits"]
    late = module["cart_left"](mq, "customer-9", timedelta(days=1))
    server.clock.advance(days=2)
    mq.work()
    assert said() == ["mail to customer-9: your cart still waits"]
    assert module["paid"](mq, late.id) is False


@example("order_by_customer")
def test_the_events_of_a_customer_come_in_order_through_retries(server: Server, run: Run, said: Said) -> None:
    module, mq = run("order_by_customer"), server.client
    module["declare"](mq)
    lines = said()
    for _ in range(4):
        server.clock.advance(seconds=1)
        mq.work()
        lines += said()
    for customer in ("customer-7", "customer-8"):
        assert [line for line in lines if customer in line] == [f"{customer}: {event}" for event in module["EVENTS"]]


@example("request_reply")
def test_callers_get_their_replies_or_give_up(server: Server, said: Said) -> None:
    runpy.run_path(str(FOLDER / "request_reply.py"), run_name="__main__")
    assert sorted(said()) == ["1 + 1 = 2", "2 + 3 + 4 = 9", "one + one: no reply"]


@example("webhook")
def test_the_webhook_is_called_for_each_message(server: Server) -> None:
    command = [sys.executable, str(FOLDER / "webhook.py"), str(free_port())]
    settings = environment(DECANT_URL=server.url, PYTHONPATH=str(ROOT))
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("export WEBHOOK_SECRET=whsec_")
            server.client.send("shipments", "4711")
            assert process.stdout.readline() == "label for 4711\n"
        finally:
            process.kill()
    until = time.monotonic() + ANSWER_SECONDS
    while server.client.api.get_group("shipments", "labels")["lag"]:
        assert time.monotonic() < until
        time.sleep(0.01)


@example("lambda_consumer")
def test_the_function_reports_the_messages_that_failed(server: Server, run: Run, said: Said) -> None:
    handler, mq = run("lambda_consumer")["handler"], server.client
    mq.api.put_topic("invoices", queues=1)
    mq.api.put_group("invoices", "mail")
    for total in (9.9, -1.0):
        mq.send("invoices", {"number": 4711, "total": total})
    paid, credit = mq.api.pop("invoices", "mail", max_messages=10)["messages"]
    event = {"topic": "invoices", "group": "mail", "messages": [paid, credit]}
    failure = {
        "itemIdentifier": credit["message_id"],
        "delay_ms": 60_000,
        "reason": "the credit note is not booked yet",
    }
    assert handler(event) == {"batchItemFailures": [failure]}
    assert handler(event) == {"batchItemFailures": [failure]}
    assert said() == ["mailed invoice 4711"]


@example("replay")
def test_a_replay_corrects_what_a_bug_did(server: Server, run: Run, said: Said) -> None:
    module, mq = run("replay"), server.client
    assert said() == ["before: {'4711': 191.0, '4712': 95.5}", "after: {'4711': 119.0, '4712': 59.5}"]
    module["declare"](mq, 0.0)
    module["replay"](mq, datetime.now(UTC))
    assert mq.work() == 0


@example("outbox")
def test_the_outbox_sends_a_message_for_each_order_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """On moto, with the table of users beside that of Decant."""
    api = Api(service_on_moto(monkeypatch))
    api.put_topic("orders", {"queues": 1})
    api.put_group("orders", "billing", {})
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    wiring.use(api)
    try:
        module = runpy.run_path(str(FOLDER / "outbox.py"), run_name="__main__")
        with pytest.raises(dynamodb.exceptions.TransactionCanceledException):
            module["store"](dynamodb, "4711", "customer-8")
        popped = api.pop("orders", "billing", {"wait_ms": 300, "max_messages": 10})["messages"]
    finally:
        wiring.use(None)
    assert [message["body"] for message in popped] == ["order 4711 paid"]


@example("orders")
def test_the_sample_traffic_leaves_messages_in_each_state(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    subprocess.run([sys.executable, str(FOLDER / "orders.py"), port], check=True, capture_output=True, timeout=30)
    server.sweep()
    progress = server.client.api.get_group("shop", "billing")
    assert (progress["ready"], progress["retrying"], progress["dead"]) == (15, 1, 1)


def test_the_sample_traffic_without_a_server_says_what_to_start() -> None:
    command = [sys.executable, str(FOLDER / "orders.py"), str(port := free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"nothing answers at http://127.0.0.1:{port}: start it with make run\n"


def service_on_moto(monkeypatch: pytest.MonkeyPatch) -> Any:
    from chalicelib.service import Service

    moto_aws.empty("decant-outbox")
    monkeypatch.setenv("DECANT_TABLE", "decant-outbox")
    return Service(moto_aws.store("decant-outbox"), system())
