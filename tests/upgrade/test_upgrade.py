"""A release reads tables and folders of those before it, and delivers and settles each message as they would."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chalicelib import wiring
from chalicelib.api import Demand
from chalicelib.core.base.limits import ENTRY_LATE_MS, HEARD_MS, HOUR_MS, SECOND_MS
from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb import boto, client
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.keys import FORM
from local.memory.disk import Disk
from local.memory.store import MemoryStore
from tests.local.serving import running
from tests.sqs.client import Sqs
from tests.sqs.test_move_tasks import sweep
from tests.support.client import Client, Group, Json, Topic, bodies, failed
from tests.support.consumer import Consumer
from tests.support.data_dictionary import ITEMS, kind_of
from tests.upgrade import world
from tests.upgrade.recording import READER, Recording, items_of, record, recordings

SOON_MS = world.SOON_MS
READABLE = [recording for recording in recordings() if recording.form == FORM]
"""A release refuses other forms: tests/local/test_disk.py."""
JSON = {"content-type": "application/json"}
NEVER_LEFT = {"grave", "late message", "sweep"}
"""Kinds of items that only an interrupted call leaves behind."""


@pytest.fixture(params=READABLE, ids=lambda recording: recording.folder.name)
def recording(request: pytest.FixtureRequest) -> Recording:
    recording: Recording = request.param
    return recording


@pytest.fixture(scope="session")
def emulator(dynoxide: str) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynoxide)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield dynoxide


@pytest.fixture(params=["folder", "emulator"])
def store(request: pytest.FixtureRequest, recording: Recording, tmp_path: Path) -> Any:
    """The folder `DATA` as it was, or a DynamoDB table with the items that were in one."""
    if request.param == "folder":
        return MemoryStore(keeps_blobs=True, keeper=Disk(recording.copy_data(tmp_path / "data")))
    request.getfixturevalue("emulator")
    name = f"upgrade-{uuid4().hex}"
    boto.ensure(boto.connect("dynamodb"), name)
    store = DynamoStore(client.open_client(system(), os.environ), name, system())
    store.put_all(recording.items)
    return store


class Opened:
    """An instance of today, at the instant of the recording."""

    def __init__(self, store: Any, recording: Recording) -> None:
        self.client = Client(store, recording.clock(), READER)
        self.clock = self.client.clock
        self.sweeps = self.client.api.service.sweeps
        self._kept = recording.about["kept"]

    def kept(self, part: str) -> Any:
        """Returns what the callers of a part remember. Skips the test if the recording is older than the part."""
        if part not in self._kept:
            pytest.skip(f"{part} is younger than the recording")
        return self._kept[part]

    def group(self, topic: str, name: str) -> Group:
        return Group(self.client, Topic(self.client, topic), name)


@pytest.fixture
def opened(store: Any, recording: Recording) -> Iterator[Opened]:
    yield Opened(store, recording)
    wiring.use(None)


def with_fields_of(recorded: list[Json], messages: list[Json]) -> list[Json]:
    """The messages in the order of the recorded ones, with the fields that those have."""
    by_id = {message["message_id"]: message for message in messages}
    assert by_id.keys() == {message["message_id"] for message in recorded}
    return [{field: by_id[each["message_id"]].get(field) for field in each} for each in recorded]


def ids(messages: list[Json]) -> list[str]:
    return [message["message_id"] for message in messages]


# -- recordings -------------------------------------------------------------------------------------------------------


def test_the_form_of_today_is_recorded() -> None:
    assert READABLE, "python -m tests.upgrade records it"


def test_a_new_recording_has_items_of_every_kind(tmp_path: Path) -> None:
    record(tmp_path / "next")
    new = Recording(tmp_path / "next")
    assert {kind_of(item["pk"], item["sk"]) for item in new.items} == ITEMS.keys() - NEVER_LEFT
    assert (new.form, new.about["kept"].keys()) == (FORM, world.PARTS.keys())


def test_a_table_and_a_folder_hold_the_same(recording: Recording, tmp_path: Path) -> None:
    store = MemoryStore(keeper=Disk(recording.copy_data(tmp_path / "data")))
    assert sorted(map(by_key, items_of(store))) == sorted(map(by_key, recording.items))


def by_key(item: Any) -> tuple[str, str, Any]:
    return item["pk"], item["sk"], str(sorted(item.items()))


def test_make_run_serves_the_folder(recording: Recording, tmp_path: Path) -> None:
    """By its clock the recorded messages have expired long ago."""
    folder = recording.copy_data(tmp_path / "data")
    with running(DATA=str(folder)) as server:
        status, _, body = server.ask("GET", "/topics?limit=1000")
        assert status == 200
        assert {"bodies", "leased", "jobs"} <= {topic["topic"] for topic in json.loads(body)["topics"]}
        new = json.dumps({"messages": [{"body": "new"}]})
        assert server.ask("POST", "/topics/bodies/messages", new, **JSON)[0] == 200
        status, _, body = server.ask("POST", "/topics/bodies/groups/reader/pop", "{}", **JSON)
        assert [message["body"] for message in json.loads(body)["messages"]] == ["new"]


# -- messages ---------------------------------------------------------------------------------------------------------


def test_every_message_is_read_as_it_was(opened: Opened) -> None:
    recorded = opened.kept("bodies")["messages"]
    assert with_fields_of(recorded, list(world.everything(Topic(opened.client, "bodies")))) == recorded


def test_every_message_is_delivered_once_in_order(opened: Opened) -> None:
    recorded = opened.kept("bodies")["messages"]
    came = opened.group("bodies", "reader").drained()
    assert with_fields_of(recorded, came) == recorded
    for queue in (0, 1):
        offsets = [message["offset"] for message in came if message["queue"] == queue]
        assert offsets == list(range(len(offsets)))
    assert opened.group("bodies", "reader").totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("store", ["folder"], indirect=True)  # there is no bucket beside the emulator
def test_a_body_in_s3_is_delivered(opened: Opened) -> None:
    recorded = opened.kept("blob")["messages"]
    assert with_fields_of(recorded, opened.group("blob", "reader").drained()) == recorded


def test_delayed_messages_come_when_they_are_due(opened: Opened) -> None:
    kept, late = opened.kept("delayed"), opened.group("delayed", "late")
    assert late.drained() == []
    opened.clock.sleep(SOON_MS)
    opened.sweeps.forward()
    assert sorted(bodies(late.drained())) == sorted(kept["soon"])
    waiting = opened.client.get("/topics/delayed/delayed").json["messages"]
    assert ids(waiting) == [kept["far"]]
    assert opened.client.delete(f"/topics/delayed/delayed/{kept['far']}").status == 200


def test_only_what_a_filter_wants_and_has_not_expired_is_delivered(opened: Opened) -> None:
    kept = opened.kept("filtered")
    opened.clock.sleep(SOON_MS)
    for name, wanted in kept.items():
        assert bodies(opened.group("filtered", name).drained()) == wanted


def test_a_repeated_dedup_id_gets_the_stored_message(opened: Opened) -> None:
    stored = opened.kept("deduplicated")["stored"]
    again = Topic(opened.client, "once").produce({"body": "a", "dedup_id": "id"}, {"body": "b", "dedup_id": "later"})
    assert ids(again) == ids(stored)
    opened.clock.sleep(1_000)
    assert sorted(bodies(opened.group("once", "reader").drained())) == ["a", "b"]


def test_messages_are_found_by_key_also_when_they_are_late(opened: Opened) -> None:
    kept, topic = opened.kept("indexed"), Topic(opened.client, "indexed")
    assert bodies(topic.read(key="k0")["messages"]) == kept["k0"]
    opened.clock.sleep(SOON_MS)
    opened.sweeps.forward()
    assert bodies(topic.read(key="k0")["messages"]) == [*kept["k0"], kept["later"]]


def test_queues_that_leave_are_drained(opened: Opened) -> None:
    wanted = opened.kept("draining")["bodies"]
    assert sorted(bodies(opened.group("draining", "slow").drained())) == wanted
    opened.clock.sleep(HEARD_MS + ENTRY_LATE_MS)
    opened.sweeps.check()
    assert "draining" not in Topic(opened.client, "draining").details()


# -- leases -----------------------------------------------------------------------------------------------------------


def test_old_receipts_settle(opened: Opened) -> None:
    first, second, third = opened.kept("leased")["receipts"]
    workers = opened.group("leased", "workers")
    assert workers.ack(first) == {"acked": 1, "failed": []}
    workers.nack(second, delay_ms=0)
    assert [(message["body"], message["attempt"]) for message in workers.take(1)] == [("c", 2)]
    workers.extend(third, invisible_ms=2 * SOON_MS)
    assert workers.pop()["messages"] == []


def test_leases_end_when_they_should(opened: Opened) -> None:
    opened.kept("leased")
    workers = opened.group("leased", "workers")
    assert workers.pop()["messages"] == []
    opened.clock.sleep(SOON_MS)
    came = workers.take(4)
    assert [(message["body"], message["attempt"]) for message in came] == [(body, 2) for body in "bcde"]


def test_a_repeated_attempt_returns_the_same_lease(opened: Opened) -> None:
    kept = opened.kept("leased")["repeated"]
    again = opened.group("leased", "workers").take_one(attempt_id="once")
    assert {field: again[field] for field in kept} == kept


@pytest.mark.parametrize(("rule", "old"), [("receipt", ["LeaseLost"]), ("delivery", []), ("message", [])])
def test_receipts_count_by_the_rule_of_their_group(opened: Opened, rule: str, old: list[str]) -> None:
    kept, workers = opened.kept("settled_by")[rule], opened.group("rules", f"by-{rule}")
    assert failed(workers.ack(kept["old"])) == old
    assert failed(workers.ack(kept["new"])) == []
    assert workers.totals() == (0, 0, 0, 0)


def test_retries_come_back_from_cursors_and_pages(opened: Opened) -> None:
    in_page, slow = opened.kept("retrying")["in_page"], opened.group("retrying", "slow")
    assert slow.totals()[2] == in_page + 1
    opened.clock.sleep(SOON_MS)
    assert [(message["body"], message["attempt"]) for message in slow.drained()] == [("soon", 2)]
    opened.clock.sleep(HOUR_MS)
    assert [message["attempt"] for message in slow.drained()] == [2] * in_page
    assert slow.totals() == (0, 0, 0, 0)


def test_an_ordered_group_waits_for_what_is_leased(opened: Opened) -> None:
    kept, whole, by_key = opened.kept("ordered"), opened.group("ordered", "by-true"), opened.group("ordered", "by-key")
    assert whole.pop()["messages"] == by_key.pop()["messages"] == []
    whole.ack(kept["by-true"])
    by_key.ack(kept["by-key"])
    assert bodies(whole.drained()) == ["a2", "b1"]
    assert bodies(by_key.take(1)) == ["a2"]
    assert by_key.ack(kept["b1"])["acked"] == 1


def test_each_consumer_of_a_broadcast_group_goes_on(opened: Opened) -> None:
    everyone, held = opened.group("news", "everyone"), opened.kept("broadcast")["bob"]
    for consumer, rest in {"ann": ["c"], "bob": ["b", "c"], "new": ["a", "b", "c"]}.items():
        assert bodies(everyone.pop(consumer_id=consumer, max_messages=9)["messages"]) == rest
    assert everyone.ack(held)["acked"] == 1
    assert everyone.totals()[3] == 1


def test_resets_count(opened: Opened) -> None:
    kept = opened.kept("reset")
    assert failed(opened.group("reset", "purged").ack(kept["old_receipt"])) == ["LeaseLost"]
    for name in ("again", "purged"):
        assert sorted(bodies(opened.group("reset", name).drained())) == kept[name]


# -- dead letters -----------------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_redriven_and_delivered(opened: Opened) -> None:
    dead, strict = opened.kept("dead")["ids"], opened.group("dead", "strict")
    listed = opened.client.get(f"{strict.path}/dead").json["messages"]
    assert [(each["message_id"], each["reason"]) for each in listed] == list(
        zip(dead, ["no <stock>", "no <stock>", "failed"], strict=True)
    )
    assert opened.client.post(f"{strict.path}/dead/redrive", message_ids=dead[:2]).json["redriven"] == 2
    assert bodies(strict.drained()) == ["a", "b"]
    assert opened.client.delete(f"{strict.path}/dead").json["purged"] == 1
    assert strict.totals() == (0, 0, 0, 0)


def test_dead_messages_in_a_topic_are_delivered(opened: Opened) -> None:
    recorded = opened.kept("dead_in_topic")["messages"]
    assert with_fields_of(recorded, opened.group("graves", "reader").drained()) == recorded


# -- transactions, requests -------------------------------------------------------------------------------------------


def decide(opened: Opened, transaction_id: str, verb: str) -> Any:
    return opened.client.ask("POST", f"/topics/halves/transactions/{transaction_id}/{verb}")


def test_open_transactions_are_decided_and_decisions_stand(opened: Opened) -> None:
    kept = opened.kept("transactions")
    assert decide(opened, kept["committed"], "commit").json == kept["placed"]
    assert decide(opened, kept["rolled_back"], "commit").problem == (409, "TransactionEnded")
    listed = opened.client.get("/topics/halves/transactions").json["transactions"]
    assert {each["transaction_id"] for each in listed} == {kept["open"], kept["open_too"]}
    assert decide(opened, kept["open"], "commit").status == 200
    assert decide(opened, kept["open_too"], "rollback").status == 200
    came = bodies(opened.group("halves", "outcome").drained())
    assert sorted(came) == sorted([*["committed 1", "committed 2", "open 1", "open 2"], *[world.noise(2_000)] * 2])


def test_requests_are_answered_fetched_and_timed_out(opened: Opened) -> None:
    kept, workers = opened.kept("requests"), opened.group("questions", "workers")
    taken, waiting = kept["taken"], kept["waiting"]
    answer = opened.client.post(f"/requests/{taken}/reply", body="done", receipt=kept["receipt"])
    assert answer.json == {"acked": 1, "failed": []}
    request = workers.take_one()
    assert (request["body"], request["correlation_id"]) == ("waiting?", waiting)
    assert opened.client.post(f"/requests/{waiting}/reply", body="late", receipt=request["receipt"]).status == 201
    replies = [opened.client.get(f"/requests/{kept[name]}").json["reply"]["body"] for name in NAMES]
    assert replies == ["done", "yes", "late"]
    assert opened.client.get(f"/requests/{kept['timed_out']}").problem == (504, "ReplyTimeout")


NAMES = ("taken", "replied", "waiting")


# -- operations -------------------------------------------------------------------------------------------------------


def test_limits_hold_where_they_were(opened: Opened) -> None:
    receipt, slow = opened.kept("limited")["taken"], opened.group("limited", "slow")
    assert slow.progress()["alarm_state"] == "raised"
    refused = opened.client.post("/topics/limited/messages", messages=[{"body": "d"}])
    assert refused.problem == (429, "QueueFull")
    slow.ack(receipt)
    assert slow.pop()["messages"] == []
    for body in "bc":
        opened.clock.sleep(100 * SECOND_MS)
        assert bodies(slow.drained()) == [body]
    opened.clock.sleep(HEARD_MS)
    opened.sweeps.check()
    assert slow.progress()["alarm_state"] == "cleared"
    assert len(Topic(opened.client, "limited").produce("d")) == 1


def test_a_pushed_group_calls_again_after_its_pause_and_signs(opened: Opened, store: Any) -> None:
    secret_id, consumer = opened.kept("pushed")["secret"]["secret_id"], Consumer()
    pushing = Client(store, opened.clock, READER + 1, consumer.outside())
    Topic(opened.client, "pushed").produce("c")
    pushing.api.service.pushing.run("pushed")
    assert consumer.calls == []
    opened.clock.sleep(HOUR_MS)
    pushing.api.service.pushing.run("pushed")
    assert sorted(body for call in consumer.bodies for body in call) == ["a", "b", "c"]
    assert all("webhook-signature" in call.headers and call.url == world.WEBHOOK for call in consumer.calls)
    secrets = opened.client.get("/topics/pushed/groups/called/push/secrets").json["secrets"]
    assert [secret["secret_id"] for secret in secrets] == [secret_id]


def test_a_trace_tells_what_happened(opened: Opened) -> None:
    sent = opened.kept("traced")["id"]
    [told] = opened.client.get(f"/topics/traced/messages/{sent}/trace").json["groups"]
    assert [(event["event"], event.get("consumer_id")) for event in told["events"]] == [
        *(("popped", "ann"), ("nacked", None))
    ]


def test_settings_are_as_they_were_set(opened: Opened) -> None:
    for name, path in {"topic": "/topics/settings", "group": "/topics/settings/groups/all"}.items():
        recorded, now = opened.kept("settings")[name], opened.client.get(path).json
        assert {field: now[field] for field in recorded} == recorded


def test_tokens_open_what_they_did(opened: Opened, store: Any) -> None:
    guarded = Client(store, opened.clock, READER + 1, demand=Demand(requests=True))
    for guarded.token in opened.kept("tokens")["tokens"]:
        assert guarded.get("/topics/bodies/messages", limit=1).status == 200
        assert guarded.get("/topics/leased/messages", limit=1).problem == (403, "Forbidden")


# -- queues of SQS clients --------------------------------------------------------------------------------------------


def test_queues_of_sqs_clients_go_on(opened: Opened) -> None:
    kept, sqs = opened.kept("sqs"), Sqs(opened.client)
    assert sqs.ListQueueTags(QueueUrl="jobs")["Tags"]["team"] == "shop"
    for queue, receipt in kept["held"].items():
        assert sqs.DeleteMessage(QueueUrl=queue, ReceiptHandle=receipt) == {}
    [message] = sqs.ReceiveMessage(QueueUrl="jobs", MessageAttributeNames=["All"], MaxNumberOfMessages=9)["Messages"]
    assert (message["Body"], message["MessageId"]) == ("b", kept["ids"][1])
    assert message["MessageAttributes"]["n"]["StringValue"] == "7"
    [turn] = sqs.ReceiveMessage(QueueUrl="turns.fifo")["Messages"]
    assert turn["Body"] == "2"
    sqs.DeleteMessage(QueueUrl="jobs", ReceiptHandle=message["ReceiptHandle"])
    opened.clock.sleep(SOON_MS)
    [later] = sqs.ReceiveMessage(QueueUrl="jobs")["Messages"]
    assert later["Body"] == "later"


def test_a_move_task_goes_on(opened: Opened) -> None:
    handle, sqs = opened.kept("sqs")["task"], Sqs(opened.client)
    [task] = sqs.ListMessageMoveTasks(SourceArn=world.ARN + "lost")["Results"]
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    for _ in range(3):
        sweep(opened.client)
        opened.clock.sleep(SECOND_MS)
    [task] = sqs.ListMessageMoveTasks(SourceArn=world.ARN + "lost")["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 2)
    back = sqs.ReceiveMessage(QueueUrl="mortal", MaxNumberOfMessages=9)["Messages"]
    assert sorted(message["Body"] for message in back) == ["x", "y"]
