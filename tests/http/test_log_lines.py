"""The log line of each call: what it tells, what it never tells, and the metrics that it carries."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from app import app, ingest, pop
from chalicelib import wiring
from chalicelib.api import Demand
from chalicelib.doors.ingest.sources import UnknownEvent
from local.http1 import Head
from local.server import judge
from tests.mqhttp.client import Mq
from tests.mqhttp.keyed import Keyed as MqKeyed
from tests.sqs.client import Sqs
from tests.sqs.keyed import Keyed
from tests.support import aws_events
from tests.support.client import Client, Group, Json, Topic
from tests.support.clock import Clock
from tests.support.events import FRONTS, Sent
from tests.support.troubled_store import TroubledStore, broken, unavailable, unknown

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


class Log(list[Json]):
    """The lines that a client's instance has written."""

    def __init__(self, client: Client) -> None:
        client.api.service.telemetry.log_to(lambda line: self.append(json.loads(line)), "decant-dev")

    def only(self, **fields: Any) -> Json:
        """The one line with these fields."""
        [line] = [line for line in self if fields.items() <= line.items()]
        return line


@pytest.fixture
def log(client: Client, group: Group) -> Log:
    return Log(client)


def metrics(line: Json) -> dict[tuple[str, ...], dict[str, Any]]:
    """The values of a line by their dimensions, as CloudWatch reads them."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for directive in line["_aws"]["CloudWatchMetrics"]:
        assert directive["Namespace"] == "Decant"
        for dimensions in directive["Dimensions"]:
            values = found.setdefault(tuple(line[name] for name in dimensions), {})
            values |= {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}
    return found


def test_a_request_writes_one_line(topic: Topic, log: Log, clock: Clock) -> None:
    topic.produce("first")  # of an instance that knows nothing of the log yet
    log.clear()
    topic.produce("a", "b")
    [line] = log
    assert line["_aws"]["Timestamp"] == clock.ms
    told = {name: value for name, value in line.items() if name.islower() and name != "_aws"}
    assert told == {
        "at_ms": clock.ms,
        "operation": "produce",
        "topic": "orders",
        "status": 200,
        "produced": 2,
        "ms": 0,
        "store_calls": 1,
        "write_units": 1,
    }


@pytest.mark.parametrize("name", [{}, {"group": None}, {"group": []}, {"group": "a/b"}])
def test_an_invocation_with_a_name_that_is_none_writes_a_line(client: Client, log: Log, name: Json) -> None:
    wiring.use(client.api)
    pop({"topic": "orders", **name}, None)
    [line] = log
    assert (line["operation"], line["topic"], line["status"]) == ("pop", "orders", 400)


def test_a_line_counts_what_happened_to_messages(topic: Topic, group: Group, log: Log) -> None:
    topic.produce("a", "b", "c")
    taken = group.take(3)
    group.ack(taken[0], "no receipt")
    group.nack(taken[1], delay_ms=0)
    group.extend(taken[2])
    group.pop(ack=[taken[2]["receipt"]])
    names = ("operation", "group", "popped", "redelivered", "acked", "nacked", "extended")
    assert [{name: line[name] for name in names if name in line} for line in log[1:]] == [
        {"operation": "pop", "group": "billing", "popped": 3},
        {"operation": "ack", "group": "billing", "acked": 1},
        {"operation": "nack", "group": "billing", "nacked": 1},
        {"operation": "extend", "group": "billing", "extended": 1},
        {"operation": "pop", "group": "billing", "popped": 1, "redelivered": 1},
    ]


def test_the_sleep_of_a_long_poll_is_told_apart(group: Group, log: Log) -> None:
    path, wait = group.topic.path, {"wait_ms": 5_000}
    group.pop(**wait)
    group.client.post(f"{path}/transactions/check", **wait)
    group.client.post(f"{path}/requests", body="a", timeout_ms=60_000, **wait)
    assert len(log) == 3
    for line in log:
        assert line["ms"] == line["waited_ms"] == 5_000
        assert metrics(line)["decant-dev", line["operation"]] == {"Latency": 0}


def test_a_line_has_the_trace_of_its_request(topic: Topic, log: Log) -> None:
    traced: list[Json] = [
        {"traceparent": PARENT},
        {"x-amzn-trace-id": f"Self=1;Root=1-{TRACE_ID[:8]}-{TRACE_ID[8:]};Sampled=1"},
    ]
    for header in traced:
        topic.client.ask("GET", topic.path, **header)
        assert log.pop()["trace_id"] == TRACE_ID
    untraced: list[Json] = [{}, {"traceparent": "00-1-1-00"}, {"x-amzn-trace-id": "Root=2-1"}]
    for header in untraced:
        topic.client.ask("GET", topic.path, **header)
        assert "trace_id" not in log.pop()


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (unavailable("write"), {"status": 503, "code": "StoreUnavailable"}),
        (unknown("write"), {"status": 503, "code": "StoreUnavailable", "outcome": "unknown"}),
        (broken("inside"), {"status": 500, "code": "Internal"}),
    ],
)
def test_a_line_says_how_a_request_failed(
    topic: Topic, store: TroubledStore, log: Log, trouble: Any, expected: Json
) -> None:
    store.before = trouble
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}])
    line = log.pop()
    assert expected.items() <= line.items()
    overall = metrics(line)["decant-dev",]
    assert (overall["ServerErrors"], overall.get("Defects", 0)) == (1, answer.status == 500)
    if answer.status == 500:
        assert line["defect"] in answer.json["detail"]


ARN = "arn:aws:sts::123456789012:assumed-role/deployer/ann"
IAM: dict[str, Json] = {
    **{front: {"identity": {"userArn": ARN, "sourceIp": "192.0.2.1"}} for front in ("rest", "http_api_1")},
    **{front: {"authorizer": {"iam": {"userArn": ARN}}} for front in ("http_api", "staged_http_api", "url")},
}
"""By the front that says whom IAM has let in, as it says it. A load balancer asks nobody."""


@pytest.mark.parametrize("front", IAM)
def test_a_line_names_the_principal_whom_iam_let_in(client: Client, log: Log, front: str) -> None:
    event = FRONTS[front](Sent("DELETE", "/topics/orders"))
    wiring.use(client.api)
    response = app({**event, "requestContext": {**event["requestContext"], **IAM[front]}}, None)
    assert response["statusCode"] == 204
    assert log.only(operation="delete_topic", topic="orders")["caller"] == ARN


@pytest.mark.parametrize("context", [{"authorizer": "x"}, {"identity": []}, {"authorizer": {"iam": {"userArn": 7}}}])
def test_a_context_that_no_front_writes_names_nobody(client: Client, log: Log, context: Json) -> None:
    event = FRONTS["url"](Sent("GET", "/topics/orders"))
    wiring.use(client.api)
    assert app({**event, "requestContext": {**event["requestContext"], **context}}, None)["statusCode"] in (200, 400)
    assert "caller" not in "".join(map(str, log))


def test_a_line_has_the_id_by_which_cloudtrail_names_who_invoked(client: Client, log: Log) -> None:
    wiring.use(client.api)
    pop({"topic": "orders", "group": "billing"}, SimpleNamespace(aws_request_id="8f507cfc"))
    assert log.only(operation="pop")["caller"] == "invocation:8f507cfc"


def test_a_line_names_the_token_or_the_access_key_on_every_front(client: Client, group: Group) -> None:
    """Also that of a call which is refused; and nothing of their secrets."""
    guarded = Client(client.store, client.clock, 4, demand=Demand(requests=True))
    log = Log(guarded)
    guarded.token = guarded.make_token({"operations": ["read"], "topics": "orders"})
    token_id = guarded.token.split("_")[1]
    for front in FRONTS.values():
        for method, code in (("GET", 200), ("DELETE", 403)):
            wiring.use(guarded.api)
            sent = Sent(method, "/topics/orders", authorization=f"Bearer {guarded.token}")
            assert app(front(sent), None)["statusCode"] == code
            assert log.pop()["caller"] == token_id
    pop({"topic": "orders", "group": "billing", "token": guarded.token}, None)
    assert (log[-1]["caller"], log[-1]["status"]) == (token_id, 403)
    assert guarded.token not in str(log)


def test_a_line_names_the_access_key_of_clients_of_sqs_and_mq(client: Client, group: Group) -> None:
    sqs, mq = Keyed(client), MqKeyed(client)
    for keyed, call in ((sqs, lambda: Sqs(sqs).ask("ListQueues")), (mq, lambda: Mq(mq).publish("a"))):
        log = Log(keyed)
        call()
        assert log.pop()["caller"] == keyed.pair["access_key_id"]
        assert keyed.pair["secret_access_key"] not in str(log)


@pytest.mark.parametrize("code", ["http", "mq"])
def test_a_line_names_whom_the_head_alone_has_refused(client: Client, group: Group, code: str) -> None:
    """Before a large body is received."""
    guarded = MqKeyed(client, {"operations": ["read"], "topics": "orders"})
    log, target = Log(guarded), "/topics/orders/messages"
    headers = {"host": "localhost", "x-mq-version": "2015-06-06", "content-type": "text/xml"}
    if code == "mq":
        headers |= guarded.signed("POST", target, (), headers)
        caller = guarded.pair["access_key_id"]
    else:
        headers = {"host": "localhost", "authorization": f"Bearer {guarded.pair['token']}"}
        caller = guarded.pair["token_id"]
    wiring.use(guarded.api)
    refused = judge(Head("", "POST", target, headers, keeps=True))
    assert refused
    assert refused.status == 403
    assert log.pop()["caller"] == caller


def test_a_stranger_is_no_caller(client: Client, group: Group) -> None:
    """The id that somebody shows without its secret."""
    guarded = Client(client.store, client.clock, 4, demand=Demand(requests=True))
    log = Log(guarded)
    guarded.token = guarded.make_token()[:-1] + "-"
    assert guarded.get("/topics/orders").status == 401
    assert "caller" not in log.only(operation="get_topic")


def test_a_refused_request_tells_no_name_that_is_none(client: Client, log: Log) -> None:
    assert client.get("/topics/secret%20text/groups").status == 400
    assert (log[0]["code"], log[0].get("topic")) == ("InvalidName", None)
    assert client.get("/topics/unknown").status == 404
    assert log[1]["topic"] == "unknown"
    assert metrics(log[1])["decant-dev",]["ServerErrors"] == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"DECANT_LOG": "json"}, True),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-dev"}, True),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-dev", "DECANT_LOG": "off"}, False),
    ],
)
def test_lines_are_on_in_lambda(environment: Json, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wiring.settings.is_logging is expected


def test_any_other_choice_of_a_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_LOG", "yes")
    with pytest.raises(ValueError, match="DECANT_LOG must be json or off; it is 'yes'"):
        _ = wiring.settings.is_logging


def test_a_closed_log_fails_no_request(topic: Topic) -> None:
    def closed(_line: str) -> None:
        raise BrokenPipeError

    topic.client.api.service.telemetry.log_to(closed, "decant-dev")
    topic.produce("a")


def test_lines_without_metrics_are_short_and_leave_out_idle_sweeps(topic: Topic, group: Group) -> None:
    service, lines = topic.client.api.service, list[str]()
    service.telemetry.log_to(lines.append)
    service.sweeps.forward()
    topic.details()
    [line] = lines
    assert line.endswith("\n")
    assert set(json.loads(line)) == {"at_ms", "operation", "topic", "status", "ms", "store_calls", "read_units"}
    group.change(max_attempts=1, alarm={"ready": 9})
    topic.produce("a")
    group.take_one(invisible_ms=1)
    topic.client.clock.sleep(1)
    lines.clear()
    service.sweeps.revive()
    service.sweeps.check()
    assert [json.loads(line).get("done") for line in lines] == [1]


def test_an_ingest_tells_what_became_of_its_records(topic: Topic, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    wiring.use(topic.client.api)
    topic.client.topic("rejects")
    monkeypatch.setenv("DECANT_INGEST", '[{"topic": "orders"}]')
    monkeypatch.setenv("DECANT_INGEST_REJECTS", "rejects")
    log.clear()
    ingest(aws_events.event(aws_events.sqs("a"), aws_events.sqs("", 2)), aws_events.Context(60_000))
    assert [line["operation"] for line in log] == ["produce", "produce", "ingest"]
    assert {name: log[-1].get(name) for name in ("records", "rejected", "not_stored")} == {
        "records": 2,
        "rejected": 1,
        "not_stored": None,
    }
    with pytest.raises(UnknownEvent):
        ingest({"secret": "text"}, aws_events.Context(60_000))
    assert log[-1]["code"] == "UnknownEvent"
    assert "secret" not in str(log[-1])


# -- sweeps and pushes ------------------------------------------------------------------------------------------------


def test_a_sweep_writes_a_line_when_it_is_done(
    group: Group, topic: Topic, client: Client, log: Log, clock: Clock
) -> None:
    group.change(max_attempts=1)
    topic.produce("a")
    group.take_one(invisible_ms=1)
    clock.sleep(1)
    client.api.service.sweeps.revive()
    line = log.only(sweep="revive")
    assert {"operation": "sweep", "done": 1, "dead": 1}.items() <= line.items()
    assert metrics(line) == {("decant-dev", "revive"): {"SweepDuration": 0}, ("decant-dev",): {"Dead": 1}}


def test_a_sweep_that_fails_has_not_run(client: Client, store: TroubledStore, log: Log) -> None:
    store.before = unavailable("read")
    with pytest.raises(Exception, match="throttled"):
        client.api.service.sweeps.forward()
    [line] = log
    assert (line["code"], "_aws" in line) == ("StoreUnavailable", False)


def test_a_check_tells_the_backlog_of_groups_with_an_alarm(
    topic: Topic, group: Group, client: Client, log: Log, clock: Clock
) -> None:
    group.change(alarm={"ready": 2}, max_attempts=1)
    topic.group("unwatched")
    topic.produce("a", "b")
    group.nack(group.take_one())
    clock.sleep(700)
    check = client.api.service.sweeps.check
    log.clear()
    check()
    worst = {"AlarmsRaised": 0, "OldestAge": 700, "Ready": 1, "DeadLetters": 1}
    assert metrics(log[0])["decant-dev",] == worst
    found = {"topic": "orders", "group": "billing", "ready": 1, "oldest_age_ms": 700, "dead_letters": 1}
    assert found.items() <= log[1].items()
    assert (len(log), "_aws" in log[1]) == (2, False)
    topic.produce("c")
    log.clear()
    check()
    assert metrics(log[0])["decant-dev",]["AlarmsRaised"] == 1
    assert (log[1]["ready"], log[1]["is_raised"]) == (2, True)
    group.ack(*group.take(2))
    log.clear()
    check()
    check()
    assert [line["oldest_age_ms"] for line in log if line["operation"] == "backlog"] == [0, 0]
