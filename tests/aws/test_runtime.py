"""The package under AWS's own runtime client: events of every front, large bodies, little time, cold starts."""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib import VERSION
from chalicelib.core.base.limits import BODY_BYTES_MAX
from infra.packaging import commit
from tests.support import events, runtime_api
from tests.support.events import FRONTS, Json, Sent
from tests.support.ministack import ROOT, Ministack, tool
from tests.support.runtime_api import Function

PAYLOAD_BYTES_MAX = 6 * 1024 * 1024
"""The largest answer of an invocation that Lambda accepts."""

each_front = pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)


@pytest.fixture(scope="module")
def store(ministack: Ministack) -> dict[str, str]:
    """The settings of functions that share a table."""
    return {"AWS_ENDPOINT_URL_DYNAMODB": ministack.endpoint, "DECANT_TABLE": "runtime", "DECANT_ACCESS": "none"}


@pytest.fixture(scope="module")
def api(unpacked: Path, tmp_path_factory: pytest.TempPathFactory, store: dict[str, str]) -> Iterator[Function]:
    with runtime_api.running(unpacked, "app.app", tmp_path_factory.mktemp("api") / "log", store) as function:
        assert asked(function, events.rest(Sent("PUT", "/topics/orders", '{"queues": 1}')))[0] in (200, 201)
        assert asked(function, events.rest(Sent("PUT", "/topics/orders/groups/billing")))[0] in (200, 201)
        yield function


@pytest.fixture(scope="module")
def pop(
    unpacked: Path, tmp_path_factory: pytest.TempPathFactory, store: dict[str, str], api: Function
) -> Iterator[Any]:
    with runtime_api.running(unpacked, "app.pop", tmp_path_factory.mktemp("pop") / "log", store) as function:
        yield function


def asked(function: Function, event: Any) -> tuple[int, Json]:
    """Status and body."""
    invocation = function.invoke(event)
    assert invocation.kind == "response", invocation
    assert invocation.raw_bytes <= PAYLOAD_BYTES_MAX
    return invocation.result["statusCode"], json.loads(invocation.result["body"] or "null")


def passed(api: Function, front: Callable[[Sent], Json], message: Json, is_base64: bool = False) -> Json:
    """The message as it comes out."""
    body = json.dumps({"messages": [message]})
    sent = Sent("POST", "/topics/orders/messages", body.encode() if is_base64 else body)
    assert asked(api, front(sent))[0] == 200
    status, popped = asked(api, front(Sent("POST", "/topics/orders/groups/billing/pop", '{"max_messages": 1}')))
    assert status == 200
    receipts = json.dumps({"receipts": [popped["messages"][0]["receipt"]]})
    assert asked(api, front(Sent("POST", "/topics/orders/groups/billing/ack", receipts)))[1]["acked"] == 1
    taken: Json = popped["messages"][0]
    return taken


@each_front
def test_a_message_passes_through_every_front(api: Function, front: Callable[[Sent], Json]) -> None:
    content = base64.b64encode(bytes(range(256))).decode()
    assert passed(api, front, {"body_base64": content}, is_base64=True)["body_base64"] == content
    assert passed(api, front, {"body": "grüß\\n"})["body"] == "grüß\\n"


@each_front
def test_what_is_wrong_is_answered_alike(api: Function, front: Callable[[Sent], Json]) -> None:
    status, problem = asked(api, front(Sent("PATCH", "/topics/orders")))
    assert (status, problem["code"]) == (405, "MethodNotAllowed")
    status, problem = asked(api, front(Sent("GET", "/topics/orders/")))
    assert (status, problem["detail"]) == (404, "there is no path '/topics/orders/'")


def test_four_mebibytes_pass(api: Function) -> None:
    content = base64.b64encode(random.Random(1).randbytes(BODY_BYTES_MAX)).decode()
    assert passed(api, events.rest, {"body_base64": content})["body_base64"] == content


def over_mq(api: Function, method: str, raw: bytes | None, *query: tuple[str, str]) -> tuple[int, str]:
    sent = Sent(method, "/topics/mq/messages", raw, [*query], **{"x-mq-version": "2015-06-06"})
    invocation = api.invoke(events.url(sent))
    assert invocation.raw_bytes <= PAYLOAD_BYTES_MAX
    return invocation.result["statusCode"], invocation.result["body"]


def test_the_largest_body_fits_an_answer_over_mq(api: Function) -> None:
    body = "&" * BODY_BYTES_MAX
    asked(api, events.url(Sent("PUT", "/topics/mq")))
    asked(api, events.url(Sent("PUT", "/topics/mq/groups/billing")))
    sent = json.dumps({"messages": [{"body": body}]})
    assert asked(api, events.url(Sent("POST", "/topics/mq/messages", sent)))[0] == 200
    status, taken = over_mq(api, "GET", None, ("consumer", "billing"))
    assert status == 200
    text = re.findall("<MessageBody>(.*)</MessageBody>", taken)[0]
    assert base64.b64decode(text).decode() == body
    handle = re.findall("<ReceiptHandle>.*</ReceiptHandle>", taken)[0]
    acked = over_mq(api, "DELETE", f"<ReceiptHandles>{handle}</ReceiptHandles>".encode(), ("consumer", "billing"))
    assert acked == (204, "")


def test_a_package_tells_the_commit_that_it_was_made_from(api: Function) -> None:
    known = commit()
    _, health = asked(api, events.url(Sent("GET", "/health")))
    assert health == {"status": "ok", "version": VERSION, **({"commit": known} if known else {})}
    _, document = asked(api, events.url(Sent("GET", "/openapi.json")))
    assert document["info"]["version"] == (f"{VERSION}+{known}" if known else VERSION)
    metrics = api.invoke(events.url(Sent("GET", "/metrics"))).result["body"]
    assert f'decant_build_info{{commit="{known or "unknown"}",version="{VERSION}"}} 1.0' in metrics


@pytest.mark.parametrize("event", [{}, [], "text", None])
def test_an_event_that_is_no_request_is_answered_with_400(api: Function, event: Any) -> None:
    status, problem = asked(api, event)
    assert (status, problem["code"]) == (400, "InvalidField")


def test_records_of_a_source_fail_in_one_line(api: Function) -> None:
    invocation = api.invoke(events.SQS)
    assert invocation.kind == "error"
    assert invocation.result["errorType"] == "ForeignEvent"
    assert "ingest" in invocation.result["errorMessage"]
    assert "secret" not in json.dumps(invocation.result)


def test_a_function_can_be_invoked_directly(pop: Function) -> None:
    popped = pop.invoke({"topic": "orders", "group": "billing"})
    assert popped.result == {"messages": [], "acked": 0, "failed": []}
    assert pop.invoke({"topic": "orders", "group": 7}).result["error"]["code"] == "InvalidField"


def test_a_long_poll_answers_empty_before_the_function_ends(pop: Function) -> None:
    pop.timeout_seconds = 6
    popped = pop.invoke({"topic": "orders", "group": "billing", "wait_ms": 20_000})
    assert popped.result["messages"] == []
    assert 2.4 < popped.seconds < 6


def test_a_store_that_hangs_is_a_503_before_the_function_ends(unpacked: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        settings = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "DECANT_ACCESS": "none"}
        with runtime_api.running(unpacked, "app.produce", tmp_path / "log", settings) as produce:
            produce.timeout_seconds = 8
            invocation = produce.invoke({"topic": "orders", "messages": [{"body": "a"}]})
    assert invocation.result["error"]["code"] == "StoreUnavailable"
    assert invocation.seconds < 8


def test_a_function_without_its_settings_says_so_in_the_log_alone(unpacked: Path, tmp_path: Path) -> None:
    with runtime_api.running(unpacked, "app.app", tmp_path / "log", {}) as function:
        for _ in range(2):
            status, problem = asked(function, events.url(Sent("GET", "/health")))
            assert (status, problem["code"]) == (500, "Internal")
            assert "DECANT" not in problem["detail"]
        assert "the service cannot be built: DECANT_ACCESS must be one of" in function.log
        assert problem["detail"].split()[2] in function.log
        assert '"ServerErrors":1' in function.log


def test_a_log_has_lines_of_json_alone_defects_among_them(unpacked: Path, tmp_path: Path) -> None:
    settings = {"DECANT_STACK": "decant-dev", "DECANT_ACCESS": "open"}
    with runtime_api.running(unpacked, "app.app", tmp_path / "log", settings) as function:
        assert asked(function, events.url(Sent("GET", "/health")))[0] == 500
        lines = [json.loads(line) for line in function.log.splitlines()]
    defect, call = (line for line in lines if line.get("defect"))
    about = {"operation": "get_health", "defect": call["defect"]}
    assert {
        "level": "ERROR",
        "error": "ValueError",
        "trace_id": runtime_api.TRACE_ID,
        **about,
    }.items() <= defect.items()
    assert re.fullmatch("[0-9a-f-]{36}", defect["request_id"])
    assert "DECANT_ACCESS must be" in defect["stack"]


# -- cold start -------------------------------------------------------------------------------------------------------

NORMAL_MS = 156
"""CPU time of `import boto3` with byte code on the machine of the budgets. The test scales the budgets by its time on
this machine."""
IMPORT_MS_MAX = 100
FIRST_REQUEST_MS_MAX = 150
"""The import included."""
ROUNDS = 20
"""At most. On a loaded machine the cost of a process differs by half from one to the next. The least of each is
compared, and the rounds end when it is within the budget."""
REQUEST = "import sys, app; assert app.app({}, None)['statusCode'] == 200; assert 'botocore' not in sys.modules".format(
    json.dumps(events.url(Sent("GET", "/topics/orders"))).replace("false", "False").replace("null", "None")
)


def cpu_ms(task: Path, program: str, settings: dict[str, str]) -> float:
    """Returns the CPU time of a child process, which other processes on the machine disturb less than its wall time."""
    command: list[str | Path] = [tool("python"), "-s", "-c", program]
    child = subprocess.Popen(command, cwd=task, env=runtime_api.environment(task, **settings))
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, program
    return (used.ru_utime + used.ru_stime) * 1_000


def test_a_cold_start_stays_within_its_budget(unpacked: Path, store: dict[str, str], api: Function) -> None:
    """Over a table that exists, at an endpoint for which no table is made, as in a deployed stage."""
    settings = dict(store)
    settings["AWS_ENDPOINT_URL"] = settings.pop("AWS_ENDPOINT_URL_DYNAMODB")
    programs = {"python": "pass", "boto3": "import boto3", "app": "import app", "request": REQUEST}
    least = dict.fromkeys(programs, math.inf)
    for _ in range(ROUNDS):
        least = {name: min(least[name], cpu_ms(unpacked, text, settings)) for name, text in programs.items()}
        boto3, app, request = (least[name] - least["python"] for name in ("boto3", "app", "request"))
        if app <= IMPORT_MS_MAX * boto3 / NORMAL_MS and request <= FIRST_REQUEST_MS_MAX * boto3 / NORMAL_MS:
            return
    pytest.fail(f"{least} ms of CPU, where {NORMAL_MS} would be normal for boto3")


@pytest.mark.parametrize(
    ("settings", "is_built"),
    [
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant", "DECANT_STACK": "decant-dev"}, True),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant", "AWS_CHALICE_CLI_MODE": "true"}, False),
        ({}, False),
    ],
)
def test_the_service_is_built_when_a_function_starts(settings: dict[str, str], is_built: bool) -> None:
    program = "import sys, app; print('chalicelib.core.store.dynamodb.client' in sys.modules)"
    variables = runtime_api.environment(ROOT, DECANT_ACCESS="none", **settings)
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=variables, capture_output=True, check=True)
    assert said.stdout.decode().strip() == str(is_built)
