"""Compares the rights of each function with the calls of its code: enough, and not more.

The tests record calls over moto, where every request meets a cold instance. Most come from the stories that run on
every store.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import boto3
import pytest

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.core.base.limits import DAY_MS, MINUTE_MS
from chalicelib.core.store import Store
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.upkeep import rounds
from chalicelib.core.upkeep import sweeps as upkeep
from chalicelib.doors.sqs.registry import moves_of, queues_of
from chalicelib.push.outside import ConsumerResponse
from infra.templates import PARTS, load, merged
from tests.http import test_on_every_store as on_every_store
from tests.sqs.client import queue
from tests.support import moto_aws
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.consumer import Consumer
from tests.support.orders import noise
from tests.support.recorded_calls import SWEEPS, ColdClient, Recorder, Use
from tests.support.small import small_pages

TABLE = BUCKET = "recorded"
"""Names of these tests alone, which record their clients' calls."""

ROLES = {
    "ApiHandlerRole": {operation.id for operation in OPERATIONS.values() if operation.asks_store},
    "ProduceRole": {"produce"},
    "IngestRole": {"produce"},
    "RequestRole": {"request", "getReply"},
    "PopRole": {"pop"},
    "AckRole": {"ack"},
    "NackRole": {"nack"},
    "ExtendRole": {"extend"},
    "BuryRole": {"bury"},
    "ReplyRole": {"reply"},
    "PushRole": {"run"},
    "ReviveRole": {"revive"},
    "ForwardRole": {"forward"},
    "ExpireRole": {"expire"},
    "CheckRole": {"check"},
    "MoveRole": {"move"},
    "PushAllRole": {"push"},
    "SweepRole": {*SWEEPS, "export"},
    "ExportRole": {"export"},
}
"""The operations that each role's function runs."""

NEVER_CALLED = {
    "Log": "by Lambda",
    "Trace": "by Lambda",
    "Fail": "by Lambda, for an event that it could not deliver",
    "WriteExports": "by DynamoDB, with the rights of the caller that asked for the export",
    "s3:ListBucket": "what it allows is to be told that an object is missing",
}
"""Statements and actions that our code does not use, and their users."""

OF_ONE_INSTANCE = {"test_hooks_see_each_send_and_may_refuse_it", "test_a_log_line_tells_what_the_store_charged"}
"""They look into the instance, and would find another at each request."""

LARGE = {"body": noise(1, 700_000, 700_000)[0]}
"""Goes to S3."""


# -- stories that need more than those on every store -----------------------------------------------------------------


def large_bodies_are_read_buried_and_deleted(client: Client) -> None:
    topic = client.topic(f"t{uuid4().hex}")
    group = topic.group("billing")
    (sent,) = topic.produce(LARGE)
    client.get(f"{topic.path}/messages/{sent['message_id']}")
    topic.read()
    client.post(f"{group.path}/bury", receipts=[group.take_one()["receipt"]])
    client.get(f"{group.path}/dead")
    client.post(f"{group.path}/dead/redrive")
    group.extend(group.take_one())
    asked = client.post(f"{topic.path}/requests", wait_ms=0, **LARGE).json["correlation_id"]
    client.post(f"/requests/{asked}/reply", **LARGE)
    client.get(f"/requests/{asked}")
    for verb in ("commit", "rollback"):
        half = client.post(f"{topic.path}/transactions", messages=[LARGE]).json["transaction_id"]
        assert client.post(f"{topic.path}/transactions/{half}/{verb}").status == 200
    group.delete()
    topic.delete()
    client.api.service.sweeps.expire()


def due_bodies_are_packed_anew(client: Client, name: str, promote: Callable[[Group], object]) -> None:
    """Their payloads would expire too early."""
    topic = Topic(client, name)
    client.put(topic.path, queues=1, retention_ms=MINUTE_MS)
    topic.produce(LARGE, delay_ms=2 * MINUTE_MS)
    client.put(topic.path, retention_ms=300 * DAY_MS)
    group = topic.group("g", push={"url": "https://a.example/"} if "pushed" in name else {})
    client.clock.sleep(3 * MINUTE_MS)
    promote(group)


def expired_bodies_are_removed(group: Group) -> None:
    """With a segment that is full, and has a successor."""
    group.topic.client.put(group.topic.path, retention_ms=MINUTE_MS)
    for message in (LARGE, *[{"body": noise(1, 300, 300)[0]}] * 9):
        group.topic.produce(message)
    group.topic.client.clock.sleep(2 * DAY_MS)
    assert group.topic.client.api.service.sweeps.expire().done


def whoever_delivers_packs_due_bodies_anew(client: Client) -> None:
    sweeps, run = client.api.service.sweeps, client.api.service.pushing.run
    due_bodies_are_packed_anew(client, f"expired{uuid4().hex}", expired_bodies_are_removed)
    due_bodies_are_packed_anew(client, f"popped{uuid4().hex}", lambda group: group.take_one())
    due_bodies_are_packed_anew(client, f"forwarded{uuid4().hex}", lambda _: sweeps.forward())
    due_bodies_are_packed_anew(client, f"pushed{uuid4().hex}", lambda group: run(group.topic.name))
    client.delete("/topics/decant.alarms")
    due_bodies_are_packed_anew(client, "decant.alarms", lambda _: an_alarm_is_raised(client))


def sweeps_stop_on_their_way(client: Client) -> None:
    """And note where. Time is over after a page of one topic."""
    for _ in range(2):
        a_pushed_topic_is_woken(client)
    client.clock.sleep(DAY_MS)
    with patch.object(rounds, "_PAGE", 1), patch.object(upkeep, "SWEEP_MS", -1):
        sweeps = client.api.service.sweeps
        for sweep in (sweeps.revive, sweeps.forward, sweeps.expire, sweeps.check):
            sweep()
        sweeps.push(client.outside.wake)


def dead_messages_move_with_their_bodies(client: Client) -> None:
    """And back again, in topics with pushed groups."""
    name, dead = f"t{uuid4().hex}", f"d{uuid4().hex}"
    for made in (name, dead):
        queue(client, made)
        Topic(client, made).group("pushed", push={"url": "https://a.example/"})
    group = Group(client, Topic(client, name), name)
    assert client.put(group.path, max_attempts=1, dead_letters={"topic": dead}).status == 200
    group.topic.produce(*[LARGE] * 3)
    group.nack(group.take_one())
    client.post(f"{group.path}/bury", receipts=[group.take_one()["receipt"]])
    group.take_one()
    client.clock.sleep(DAY_MS)
    assert client.api.service.sweeps.revive().done
    service = client.api.service
    moves_of(service).tasks.start(queues_of(service).current(dead), None, 1, uuid4().hex)
    assert client.api.service.sweeps.move(moves_of(client.api.service)).done == 2


def an_alarm_is_raised(client: Client) -> None:
    topic = client.topic(f"t{uuid4().hex}")
    topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    assert client.api.service.sweeps.check().done


def a_pushed_topic_is_woken(client: Client) -> None:
    topic = client.topic(f"t{uuid4().hex}")
    group = topic.group("g", push={"url": "https://a.example/"})
    client.post(f"{group.path}/push/secrets")
    client.get(f"{group.path}/push/secrets")
    client.post(f"{topic.path}/requests", body="a", wait_ms=0)
    client.api.service.sweeps.push(client.outside.wake)


def retries_come_and_go_in_pages(client: Client) -> None:
    """Which a cursor with many has."""
    topic = client.topic(f"t{uuid4().hex}")
    group = topic.group("g", max_attempts=2)
    topic.produce(*["a"] * 8)
    with small_pages():
        for message in (taken := group.take(8))[:6]:
            group.nack(message, delay_ms=MINUTE_MS)
        group.ack(taken[0])
        client.clock.sleep(MINUTE_MS)
        again = group.take(5)
        group.nack(*again[:2])
        group.nack(*again[2:], delay_ms=MINUTE_MS)
        group.reset("earliest")
    for path in ("/topics", f"{topic.path}/groups", "/health", "/metrics"):
        assert client.get(path).status == 200


def a_message_is_traced(client: Client) -> None:
    topic = Topic(client, f"t{uuid4().hex}")
    client.put(topic.path, queues=1, trace=True)
    group = topic.group("g", max_attempts=3)
    (sent, *_) = topic.produce("a", "b", "c")
    client.clock.sleep(10_000)
    taken = group.take(3)
    group.extend(taken[0])
    group.ack(taken[0])
    group.nack(taken[1], delay_ms=0)
    client.post(f"{group.path}/bury", receipts=[taken[2]["receipt"]])
    assert client.get(f"{topic.path}/messages/{sent['message_id']}/trace").status == 200


def tokens_are_made_rotated_and_deleted(client: Client) -> None:
    rights = [{"operations": ["read"], "topics": "*", "groups": "*"}]
    token_id = client.post("/tokens", name=uuid4().hex, rights=rights).json["token_id"]
    assert client.get("/tokens").status == 200
    assert client.get(f"/tokens/{token_id}").status == 200
    assert client.post(f"/tokens/{token_id}/rotate").status == 200
    assert client.delete(f"/tokens/{token_id}").status == 204


STORIES: list[Callable[..., object]] = [
    story
    for name, story in vars(on_every_store).items()
    if name.startswith("test_") and name not in OF_ONE_INSTANCE and not hasattr(story, "pytestmark")
] + [
    large_bodies_are_read_buried_and_deleted,
    whoever_delivers_packs_due_bodies_anew,
    a_pushed_topic_is_woken,
    dead_messages_move_with_their_bodies,
    retries_come_and_go_in_pages,
    a_message_is_traced,
    tokens_are_made_rotated_and_deleted,
    sweeps_stop_on_their_way,
]


# -- what they record -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template() -> Any:
    return reduce(merged, [load(path) for path in sorted(PARTS.glob("*.yaml"))], {})


@pytest.fixture(scope="module")
def recorder(template: Any) -> Recorder:
    """Which has heard all stories."""
    push = template["Resources"]["Push"]["Properties"]["FunctionName"]["Fn::Sub"]
    recorder = Recorder(f"arn:${{AWS::Partition}}:lambda:${{AWS::Region}}:${{AWS::AccountId}}:function:{push}")
    connect, clock = boto.connect, Clock()
    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr(boto, "connect", lambda *arguments: recorder.listening(connect(*arguments)))
        monkey.setattr(on_every_store, "TABLE", TABLE)
        store = moto_aws.store(TABLE)
        with recorder.recording():
            for story in STORIES:
                told(story, store, clock, recorder)
            monkey.setenv("DECANT_TABLE", TABLE)
            monkey.setenv("DECANT_EXPORT_BUCKET", BUCKET)
            with recorder.within("export"):
                exported()
    wiring.use(None)
    return recorder


def told(story: Callable[..., object], store: Store, clock: Clock, recorder: Recorder) -> None:
    """One after another, on one clock."""
    moto_aws.empty(TABLE)
    outside = replace(Consumer([ConsumerResponse(200)] * 9).outside(), wake=recorder.wake)
    client = ColdClient(store, clock, uuid4().int, outside)  # type: ignore[arg-type]
    wanted = inspect.signature(story).parameters
    given: dict[str, Any] = {"client": client, "store": store, "clock": clock}
    if {"topic", "group"} & {*wanted}:
        given["topic"] = client.topic(f"t{uuid4().hex}")
    if "group" in wanted:
        given["group"] = given["topic"].group("billing", backoff_ms=[1_000, 5_000], max_attempts=3)
    story(**{name: given[name] for name in wanted})


def exported() -> None:
    """A full one, then what the next day asks."""
    boto3.client("dynamodb").update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    assert wiring.export()["exports"]
    wiring.export()


# -- rights -----------------------------------------------------------------------------------------------------------


def statements(template: Any, role: str) -> list[Any]:
    policies = template["Resources"][role]["Properties"]["Policies"]
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def named(resource: Any) -> str:
    """`Table` for the ARN of the resource `Table`."""
    if isinstance(resource, str):
        return resource
    if "Fn::GetAtt" in resource:
        assert resource["Fn::GetAtt"][1] == "Arn"
        return str(resource["Fn::GetAtt"][0])
    return re.sub(r"\$\{(\w+)\.Arn\}", r"\1", resource["Fn::Sub"])


def allows(statement: Any, use: Use) -> bool:
    assert statement["Effect"] == "Allow"
    resources = [named(resource) for resource in each(statement["Resource"])]
    return use.action in each(statement["Action"]) and any(fnmatchcase(use.resource, name) for name in resources)


def used(recorder: Recorder, role: str) -> set[Use]:
    return {use for name in ROLES[role] for use in recorder.uses[name]}


def test_each_operation_and_sweep_is_recorded(recorder: Recorder) -> None:
    assert set().union(*ROLES.values()) - {name for name, uses in recorder.uses.items() if uses} == set()


def test_each_function_has_a_role(template: Any) -> None:
    assert {name for name in template["Resources"] if name.endswith("Role")} == {*ROLES}


@pytest.mark.parametrize("role", ROLES)
def test_a_function_may_do_what_it_does(template: Any, recorder: Recorder, role: str) -> None:
    mine = statements(template, role)
    denied = [use for use in used(recorder, role) if not any(allows(statement, use) for statement in mine)]
    assert denied == []


@pytest.mark.parametrize("role", ROLES)
def test_a_function_may_do_nothing_that_it_never_does(template: Any, recorder: Recorder, role: str) -> None:
    """A statement counts as a whole: the caches decide which way of reading or writing a call uses."""
    needless = [
        statement["Sid"]
        for statement in statements(template, role)
        if statement["Sid"] not in NEVER_CALLED and not any(allows(statement, use) for use in used(recorder, role))
    ]
    assert needless == []


def test_no_action_is_granted_that_no_function_uses(template: Any, recorder: Recorder) -> None:
    called = {use.action for uses in recorder.uses.values() for use in uses}
    granted = {
        action
        for role in ROLES
        for statement in statements(template, role)
        if statement["Sid"] not in NEVER_CALLED
        for action in each(statement["Action"])
    }
    assert granted - called - {*NEVER_CALLED} == set()


def test_rights_are_on_resources_of_the_stack_only(template: Any) -> None:
    everywhere = {
        action
        for role in ROLES
        for statement in statements(template, role)
        if statement["Resource"] == "*"
        for action in each(statement["Action"])
    }
    assert everywhere == {"dynamodb:ListExports", "xray:PutTelemetryRecords", "xray:PutTraceSegments"}


@pytest.mark.parametrize(
    ("role", "sid", "action"),
    [
        ("PopRole", "Bodies", "s3:GetObject"),
        ("ExpireRole", "Bodies", "s3:DeleteObject"),
        ("ProduceRole", "WakePush", "lambda:InvokeFunction"),
        ("ExportRole", "SeeExports", "dynamodb:DescribeExport"),
    ],
)
def test_a_right_that_is_missing_is_noticed(
    template: Any, recorder: Recorder, role: str, sid: str, action: str
) -> None:
    (statement,) = [statement for statement in statements(template, role) if statement["Sid"] == sid]
    less = {**statement, "Action": [other for other in each(statement["Action"]) if other != action]}
    uses = [use for use in used(recorder, role) if use.action == action]
    assert uses
    assert not any(allows(less, use) for use in uses)
    assert all(allows(statement, use) for use in uses)
