"""From the command to the message: deploys everything to an emulator of AWS, uses it, upgrades it and rolls it back."""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from chalicelib import VERSION
from infra.packaging import commit
from tests.support.deployment import SIGNING_KEYS, Deployment, deploy, new_token, run
from tests.support.ministack import ROOT


@pytest.fixture(scope="module")
def orders(deployed: Deployment) -> Deployment:
    """With a topic and a group."""
    assert deployed.call("PUT", "/topics/orders")[0] == 201
    assert deployed.call("PUT", "/topics/orders/groups/billing")[0] == 201
    return deployed


def _popped(group: Deployment, *acked: str) -> list[dict[str, Any]]:
    """The messages of a pop that acks."""
    status, answer = group.call("POST", "/topics/orders/groups/billing/pop", {"ack": [*acked] or None, "wait_ms": 5000})
    assert (status, answer.get("acked", 0)) == (200, len(acked))
    messages: list[dict[str, Any]] = answer["messages"]
    return messages


@pytest.mark.usefixtures("delayed")  # early, so that later tests need not wait for it
def test_messages_are_produced_popped_and_acked_on_each_front(orders: Deployment) -> None:
    for front in (orders, orders.by_rest_api):
        sent = [{"body": f"text {front.url}"}, {"body_base64": "AP8="}]
        status, stored = front.call("POST", "/topics/orders/messages", {"messages": sent})
        assert (status, len(stored["messages"])) == (200, 2)
        received: list[dict[str, Any]] = []
        while len(received) < 2:
            received += _popped(front)
        assert {message.get("body", message.get("body_base64")) for message in received} == {sent[0]["body"], "AP8="}
        receipts = [message["receipt"] for message in received]
        assert front.call("POST", "/topics/orders/groups/billing/ack", {"receipts": receipts}) == (
            200,
            {"acked": 2, "failed": []},
        )


def test_functions_are_called_directly(orders: Deployment) -> None:
    assert len(orders.invoke("produce", {"topic": "orders", "messages": [{"body": "direct"}]})["messages"]) == 1
    popped = orders.invoke("pop", {"topic": "orders", "group": "billing", "wait_ms": 5000})
    assert [message["body"] for message in popped["messages"]] == ["direct"]
    receipts = [message["receipt"] for message in popped["messages"]]
    acked = orders.invoke("ack", {"topic": "orders", "group": "billing", "receipts": receipts})
    assert acked == {"acked": 1, "failed": []}
    assert orders.invoke("produce", {"topic": "none", "messages": [{"body": "x"}]})["error"]["code"] == "TopicNotFound"


def test_large_bodies_are_kept_in_the_bucket(orders: Deployment) -> None:
    body = base64.b64encode(random.Random(1).randbytes(500_000)).decode()
    assert orders.call("POST", "/topics/orders/messages", {"messages": [{"body_base64": body}]})[0] == 200
    bucket = f"{orders.table}-bodies-000000000000-eu-central-1"
    assert orders.ministack.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] == 1
    (message,) = _popped(orders)
    assert message["body_base64"] == body
    _popped(orders, message["receipt"])


def test_paths_and_methods_that_are_not_there_are_problems(orders: Deployment) -> None:
    for front in (orders, orders.by_rest_api):
        assert front.call("GET", "/nowhere")[1]["code"] == "NotFound"
        status, problem = front.call("POST", "/topics/orders", {})
        assert (status, problem["code"]) == (405, "MethodNotAllowed")


def test_calls_without_the_right_are_denied_on_each_front(orders: Deployment) -> None:
    rights = '[{"operations": ["produce"], "topics": "orders", "groups": "*"}]'
    producer = new_token(orders.ministack, "producer", rights)
    for front in (orders, orders.by_rest_api):
        for token in (None, "dct_AAAAAAAAAAAAAAAA_" + "a" * 43):
            status, problem = front.with_token(token).call("GET", "/topics/orders")
            assert (status, problem["code"]) == (401, "Unauthenticated")
        own = front.with_token(producer)
        assert own.call("GET", "/topics/orders")[0] == 403
        assert own.call("POST", "/topics/orders/groups/billing/pop", {})[0] == 403
        assert own.call("POST", "/topics/other/messages", {"messages": [{"body": "x"}]})[0] == 403
        assert own.with_token(None).call("GET", "/health")[0] == 200
    denied = orders.invoke("pop", {"topic": "orders", "group": "billing", "token": producer})
    assert denied["error"]["code"] == "Forbidden"


def test_a_sweep_is_run_by_hand(orders: Deployment) -> None:
    assert "error" not in orders.invoke("sweep", {"sweep": "revive"})


def test_a_stack_has_tags_of_its_release(orders: Deployment) -> None:
    (stack,) = orders.ministack.client("cloudformation").describe_stacks(StackName="decant-local")["Stacks"]
    known = commit()
    assert {tag["Key"]: tag["Value"] for tag in stack["Tags"]} == {
        "application": "decant",
        "stage": "local",
        "version": VERSION,
        **({"commit": known} if known else {}),
    }


def test_the_same_version_again_changes_nothing(orders: Deployment, packages: Path) -> None:
    done = run(orders.ministack, "deploy", "--stage", "local", "--out", packages, "--infra", SIGNING_KEYS)
    assert done.returncode == 0, done.stderr
    assert "nothing has changed" in done.stderr


def test_a_version_is_upgraded_and_rolled_back_under_messages(
    orders: Deployment, packages: Path, tmp_path: Path
) -> None:
    """The other version has one more function, and more memory for another."""
    assert orders.call("POST", "/topics/orders/messages", {"messages": [{"body": "kept"}]})[0] == 200
    (message,) = _popped(orders)

    upgraded = deploy(orders.ministack, packages, _own(tmp_path), clone=_next_version(tmp_path))
    upgraded = upgraded.with_token(orders.token)
    assert upgraded.invoke("newest", {}) == {"version": "next"}
    assert upgraded.table == orders.table
    _popped(upgraded, message["receipt"])
    assert upgraded.call("POST", "/topics/orders/messages", {"messages": [{"body": "after"}]})[0] == 200

    rolled_back = deploy(orders.ministack, packages).with_token(orders.token)
    assert "newest" not in rolled_back.functions
    assert [message["body"] for message in _popped(rolled_back)] == ["after"]


def _next_version(folder: Path) -> Path:
    clone = folder / "clone"
    for name in ("chalicelib", "infra", ".chalice"):
        shutil.copytree(ROOT / name, clone / name)
    for name in ("app.py", "requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    more = (
        '\n\n@app.lambda_function()\ndef newest(_event: Any, _context: Any) -> Json:\n    return {"version": "next"}\n'
    )
    with (clone / "app.py").open("a") as app:
        app.write(more)
    return clone


def _own(folder: Path) -> Path:
    own = folder / "own.yaml"
    own.write_text("Resources: {Check: {Properties: {MemorySize: 640}}}\n")
    return own
