"""Event sources: what the records of each become, and where a record goes with which something is wrong."""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from app import ingest
from chalicelib import wiring
from chalicelib.core.base.errors import DecantError, InvalidField, StoreUnavailable
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, DEDUP_MS, MIB
from chalicelib.doors.ingest.delivery import RecordsNotStored
from chalicelib.doors.ingest.rules import parse
from chalicelib.doors.ingest.sources import UnknownEvent
from tests.support import aws_events as aws
from tests.support.aws_events import Context, event
from tests.support.client import Client, Json, Topic, bodies
from tests.support.troubled_store import TroubledStore, throttled_queue, unavailable, unknown

ALL_STORED: Json = {"batchItemFailures": []}

Setting = pytest.MonkeyPatch


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Everything goes to `orders`, and what cannot to `rejects`."""
    rules(monkeypatch, {"topic": "orders"})
    monkeypatch.setenv("DECANT_INGEST_REJECTS", "rejects")
    return monkeypatch


@pytest.fixture
def rejects(client: Client, setting: Setting) -> Topic:
    return client.topic("rejects")


def rules(setting: Setting, *given: Json) -> None:
    setting.setenv("DECANT_INGEST", json.dumps(given))


def given(client: Client, *records: Json, left_ms: int = 60_000) -> Json:
    """The answer to an event of these records; of EventBridge, of the event itself."""
    wiring.use(client.api)
    one = records[0] if "detail-type" in records[0] else event(*records)
    answer: Json = ingest(one, Context(left_ms))
    return answer


def failed(answer: Json) -> list[str]:
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def stored(topic: Topic) -> list[Json]:
    messages: list[Json] = topic.read(limit=1_000)["messages"]
    return messages


def the_message(topic: Topic) -> Json:
    [message] = stored(topic)
    return message


# -- what records become ----------------------------------------------------------------------------------------------


def test_a_message_of_sqs_keeps_its_body_and_attributes(setting: Setting, topic: Topic) -> None:
    attributes = {
        "region": {"stringValue": "eu", "dataType": "String", "stringListValues": [], "binaryListValues": []},
        "raw": {"binaryValue": "AAE=", "dataType": "Binary"},
    }
    record = aws.sqs("order 4711", attributes=attributes)
    assert given(topic.client, record) == ALL_STORED
    message = the_message(topic)
    assert (message["body"], message["key"], message["tag"]) == ("order 4711", None, None)
    origin = {"aws_origin": aws.QUEUE, "aws_id": record["messageId"]}
    assert message["properties"] == {"region": "eu", "raw": "AAE=", **origin}


def test_the_group_of_a_fifo_queue_is_the_key(setting: Setting, topic: Topic) -> None:
    given(topic.client, aws.fifo("a", group="customer-1"))
    assert the_message(topic)["key"] == "customer-1"


def test_the_group_of_a_standard_queue_is_no_key(setting: Setting, topic: Topic) -> None:
    record = aws.sqs("a")
    record["attributes"]["MessageGroupId"] = "tenant-1"
    given(topic.client, record)
    assert the_message(topic)["key"] is None


def test_a_message_of_sns_keeps_its_subject_and_attributes(setting: Setting, topic: Topic) -> None:
    record = aws.sns("paid", subject="4711", attributes={"region": {"Type": "String", "Value": "eu"}})
    assert given(topic.client, record) == ALL_STORED
    message = the_message(topic)
    assert message["body"] == "paid"
    assert message["properties"].items() >= {"subject": "4711", "region": "eu", "aws_origin": aws.SNS_TOPIC}.items()


def test_a_message_of_sns_may_lack_its_subject(setting: Setting, topic: Topic) -> None:
    record = aws.sns("paid")
    del record["Sns"]["Subject"]
    given(topic.client, record)
    assert "subject" not in the_message(topic)["properties"]


def test_an_event_of_eventbridge_is_stored_whole(setting: Setting, topic: Topic) -> None:
    record = aws.eventbridge({"order": 4711, "large": 2**70, "name": "J\u00fcrgen"})
    assert given(topic.client, record) == ALL_STORED
    message = the_message(topic)
    assert json.loads(message["body"]) == record
    assert (message["tag"], message["properties"]["aws_origin"]) == ("Order paid", "shop")


@pytest.mark.parametrize("kind", ["a|b", " padded", "x" * 129, ""])
def test_a_detail_type_that_can_be_no_tag_stays_in_the_body(setting: Setting, topic: Topic, kind: str) -> None:
    given(topic.client, aws.eventbridge({}, kind=kind))
    message = the_message(topic)
    assert (message["tag"], json.loads(message["body"])["detail-type"]) == (None, kind)


def test_an_event_of_s3_has_the_object_as_its_key(setting: Setting, topic: Topic) -> None:
    record = aws.s3("summer+2026/J%C3%BCrgen.jpg")
    assert given(topic.client, record) == ALL_STORED
    message = the_message(topic)
    assert (message["key"], message["tag"]) == ("summer 2026/J\u00fcrgen.jpg", "ObjectCreated:Put")
    assert json.loads(message["body"]) == record


def test_a_record_of_kinesis_is_its_data_under_its_partition_key(setting: Setting, topic: Topic) -> None:
    assert given(topic.client, aws.kinesis("gr\u00fcn".encode(), 1), aws.kinesis(b"\xff\x00", 2, "l")) == ALL_STORED
    text, binary = stored(topic)
    assert (text["body"], text["key"]) == ("gr\u00fcn", "k")
    assert (base64.b64decode(binary["body_base64"]), binary["key"]) == (b"\xff\x00", "l")


def test_a_change_of_a_table_is_stored_under_the_keys_of_the_item(setting: Setting, topic: Topic) -> None:
    record = aws.dynamodb({"id": {"S": "1"}, "at": {"N": "2"}})
    assert given(topic.client, record) == ALL_STORED
    message = the_message(topic)
    assert (message["key"], message["tag"]) == ('{"at":{"N":"2"},"id":{"S":"1"}}', "INSERT")
    assert json.loads(message["body"]) == record


@pytest.mark.parametrize("key", ["k" * 257, "\u00fc" * 129])
def test_a_key_that_is_too_long_becomes_its_hash(setting: Setting, topic: Topic, key: str) -> None:
    given(topic.client, aws.kinesis(b"a", 1, key), aws.kinesis(b"b", 2, key), aws.kinesis(b"c", 3, f"{key}x"))
    keys = [message["key"] for message in stored(topic)]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("sha256:")


def test_text_that_is_half_a_surrogate_pair_stays_escaped(setting: Setting, topic: Topic) -> None:
    record = aws.eventbridge({"name": "\ud83d"})
    given(topic.client, record)
    assert json.loads(the_message(topic)["body"]) == record


def test_an_event_without_records_stores_nothing(setting: Setting, topic: Topic) -> None:
    wiring.use(topic.client.api)
    assert ingest({"Records": []}, None) == ALL_STORED
    assert stored(topic) == []


# -- rules ------------------------------------------------------------------------------------------------------------


def test_a_rule_maps_what_is_in_the_record(setting: Setting, topic: Topic) -> None:
    rules(
        setting,
        {
            "topic": "orders",
            "key": "json.customer",
            "tag": "json.kind",
            "properties": {"region": "awsRegion", "total": "json.total", "none": "json.none"},
            "body": "json.order",
        },
    )
    order = {"id": 1, "lines": ["a"]}
    given(topic.client, aws.sqs(json.dumps({"customer": 17, "kind": "paid", "order": order, "total": 1.5})))
    message = the_message(topic)
    assert (message["key"], message["tag"], json.loads(message["body"])) == ("17", "paid", order)
    about = {name: message["properties"].pop(name) for name in ("aws_origin", "aws_id")}
    assert all(about.values())
    assert message["properties"] == {"region": aws.REGION, "total": "1.5"}


def test_an_expression_finds_nothing_in_a_body_that_is_no_json(setting: Setting, topic: Topic) -> None:
    rules(setting, {"topic": "orders", "key": "json.customer"})
    given(topic.client, aws.sqs("plain"), aws.sqs("[" * 100_000, 2))
    assert [message["key"] for message in stored(topic)] == [None, None]


def test_a_mapped_body_takes_the_place_of_bytes(setting: Setting, topic: Topic) -> None:
    rules(setting, {"topic": "orders", "body": "kinesis.data"})
    given(topic.client, aws.kinesis(b"\xff"))
    assert the_message(topic)["body"] == "/w=="


@pytest.mark.parametrize(
    ("source", "takes"),
    [
        ("sqs", True),
        ("arn:aws:sqs:*:orders", True),
        (aws.QUEUE, True),
        ("*", True),
        ("sns", False),
        ("arn:aws:sqs:*:order", False),
        (aws.QUEUE.replace("-", "."), False),
    ],
)
def test_the_first_rule_for_the_source_counts(client: Client, setting: Setting, source: str, takes: bool) -> None:
    first, second = client.topic("first"), client.topic("second")
    rules(setting, {"topic": "first", "source": source}, {"topic": "second"})
    given(client, aws.sqs("a"))
    assert (len(stored(first)), len(stored(second))) == (takes, not takes)


def test_records_of_eventbridge_are_told_by_their_source(client: Client, setting: Setting) -> None:
    shop = client.topic("shop")
    rules(setting, {"topic": "nowhere", "source": "aws.*"}, {"topic": "shop", "source": "sh*p"})
    given(client, aws.eventbridge({}))
    assert len(stored(shop)) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "DECANT_INGEST is not set"),
        ("{", "must be JSON"),
        ("{}", "must be a list of rules"),
        ("[]", "must be a list of rules"),
        ("[7]", "'DECANT_INGEST[0]' must be a JSON object, not 7"),
        ('[{"topic": "a", "tags": "b"}]', "'DECANT_INGEST[0].tags' is not known"),
        ('[{"topic": "a"}, {}]', "'DECANT_INGEST[1].topic' must be a string"),
        ('[{"topic": "a b"}]', "'DECANT_INGEST[0].topic' must be a topic's name"),
        ('[{"topic": "a", "key": "json."}]', "'DECANT_INGEST[0].key' is not JMESPath"),
        ('[{"topic": "a", "key": "size(@)"}]', "'DECANT_INGEST[0].key' calls size()"),
        ('[{"topic": "a", "key": ""}]', "'DECANT_INGEST[0].key' must be a string of at least 1"),
        ('[{"topic": "a", "properties": {"x": 1}}]', "'DECANT_INGEST[0].properties.x' must be a string"),
        ('[{"topic": "a", "properties": "x"}]', "'DECANT_INGEST[0].properties' must be an object"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_stored(
    setting: Setting, topic: Topic, text: str | None, says: str
) -> None:
    if text is None:
        setting.delenv("DECANT_INGEST")
    else:
        setting.setenv("DECANT_INGEST", text)
    with pytest.raises(DecantError) as wrong:
        given(topic.client, aws.sqs("a"))
    assert says in wrong.value.detail
    assert stored(topic) == []


def test_the_rules_that_the_page_shows_are_sound() -> None:
    page = (Path(__file__).parents[2] / "docs/ingest.md").read_text()
    shown = re.findall(r"^    \[\{.*?\}\]$", page, re.DOTALL | re.MULTILINE)
    assert [len(parse(text)) for text in shown] == [1, 3]


def test_a_name_that_the_topic_of_rejects_cannot_have_is_refused(setting: Setting, topic: Topic) -> None:
    setting.setenv("DECANT_INGEST_REJECTS", "a b")
    with pytest.raises(DecantError) as wrong:
        given(topic.client, aws.sqs("a"))
    assert "setting 'DECANT_INGEST_REJECTS' must be a topic's name" in wrong.value.detail
    assert stored(topic) == []


# -- repeats ----------------------------------------------------------------------------------------------------------

EACH = [
    aws.sqs("a"),
    aws.fifo("a"),
    aws.sns("a"),
    aws.eventbridge({}),
    aws.s3("a"),
    aws.kinesis(b"a"),
    aws.dynamodb({"id": {"S": "a"}}),
]
each_source = pytest.mark.parametrize("record", EACH, ids=["sqs", "fifo", "sns", "events", "s3", "kinesis", "dynamodb"])


@each_source
def test_a_record_that_comes_again_is_stored_once_in_five_minutes(setting: Setting, topic: Topic, record: Json) -> None:
    assert given(topic.client, record) == given(topic.client.another(), record) == ALL_STORED
    assert len(stored(topic)) == 1
    topic.client.clock.sleep(DEDUP_MS)
    given(topic.client, record)
    assert len(stored(topic)) == 2


@pytest.mark.parametrize("make", [aws.sqs, aws.sns, aws.eventbridge, aws.s3])
def test_records_of_different_ids_are_different(setting: Setting, topic: Topic, make: Any) -> None:
    for number in range(2):
        given(topic.client, make("a", number))
    assert len(stored(topic)) == 2


def test_a_record_that_is_twice_in_an_event_is_stored_once(setting: Setting, topic: Topic) -> None:
    assert given(topic.client, aws.sqs("a", 1), aws.sqs("a", 1)) == ALL_STORED
    assert len(stored(topic)) == 1


def test_a_rule_can_say_what_repeats_have_in_common(setting: Setting, topic: Topic) -> None:
    rules(setting, {"topic": "orders", "dedup_id": "json.id"})
    given(topic.client, aws.sqs('{"id": 7}', 1), aws.sqs('{"id": 7}', 2), aws.sqs('{"id": 8}', 3))
    assert bodies(stored(topic)) == ['{"id": 7}', '{"id": 8}']


def test_a_rule_can_leave_repeats_alone_and_saves_the_writes(
    setting: Setting, topic: Topic, store: TroubledStore
) -> None:
    rules(setting, {"topic": "orders", "dedup_id": "`null`"})
    records = [aws.sqs("a" * 200, number) for number in range(100)]
    given(topic.client, records[0])
    before = store.meter.write_units
    assert given(topic.client, *records) == ALL_STORED
    assert store.meter.write_units - before < 20
    assert len(stored(topic)) == 101


# -- large events -----------------------------------------------------------------------------------------------------


def test_an_event_may_have_more_records_than_a_produce(setting: Setting, topic: Topic) -> None:
    count = 2 * BATCH_MESSAGES_MAX + 1
    assert given(topic.client, *[aws.kinesis(b"%d" % number, number) for number in range(count)]) == ALL_STORED
    assert bodies(stored(topic)) == [str(number) for number in range(count)]


def test_an_event_may_have_more_bytes_than_a_produce(setting: Setting, topic: Topic) -> None:
    data = random.Random(1).randbytes(int(1.4 * MIB))
    assert given(topic.client, *[aws.kinesis(data + b"%d" % number, number) for number in range(4)]) == ALL_STORED
    assert [topic.read(offset=offset, queue=0, limit=1)["messages"][0]["offset"] for offset in range(4)] == [0, 1, 2, 3]


# -- what can never be stored -----------------------------------------------------------------------------------------


def test_a_bad_record_does_not_fail_its_batch(topic: Topic, rejects: Topic) -> None:
    records = [aws.kinesis(data, number) for number, data in enumerate([b"a", b"", b"b"])]
    assert given(topic.client, *records) == ALL_STORED
    assert bodies(stored(topic)) == ["a", "b"]
    reject = the_message(rejects)
    assert json.loads(reject["body"]) == records[1]
    reason = reject["properties"].pop("reason")
    assert reason.startswith("InvalidField: field 'kinesis.data' must be a string of at least 1")
    assert reject["properties"] == {
        "aws_origin": aws.STREAM,
        "aws_id": records[1]["kinesis"]["sequenceNumber"],
        "source": "kinesis",
        "topic": "orders",
        "part": "1/1",
    }


def test_a_rejected_record_that_comes_again_is_rejected_once(topic: Topic, rejects: Topic) -> None:
    for _ in range(2):
        given(topic.client, aws.kinesis(b""))
    assert len(stored(rejects)) == 1


BAD_SQS = [
    ("no body", {"body": None}),
    ("a body that is no text", {"body": 7}),
    ("half a surrogate pair", {"body": "\ud83d"}),
    ("attributes that are none", {"messageAttributes": "x"}),
    ("attributes over 16 KiB", {"messageAttributes": {"a": {"stringValue": "x" * 17_000}}}),
]


@pytest.mark.parametrize("wrong", [wrong for _, wrong in BAD_SQS], ids=[name for name, _ in BAD_SQS])
def test_whatever_is_wrong_with_a_record_it_is_rejected_whole(topic: Topic, rejects: Topic, wrong: Json) -> None:
    record = {**aws.sqs("a"), **wrong}
    assert given(topic.client, record, aws.sqs("b", 2)) == ALL_STORED
    assert bodies(stored(topic)) == ["b"]
    assert json.loads(the_message(rejects)["body"]) == record


def test_data_that_is_no_base64_is_rejected(topic: Topic, rejects: Topic) -> None:
    record = aws.kinesis(b"a")
    record["kinesis"]["data"] = "%%%"
    assert given(topic.client, record) == ALL_STORED
    assert "body_base64" in the_message(rejects)["properties"]["reason"]


@pytest.mark.parametrize("key", ["length(`1`)", "json.empty"])
def test_a_record_that_an_expression_cannot_take_is_rejected(
    topic: Topic, rejects: Topic, setting: Setting, key: str
) -> None:
    rules(setting, {"topic": "orders", "key": key})
    record = aws.sqs('{"empty": ""}')
    assert given(topic.client, record) == ALL_STORED
    assert json.loads(the_message(rejects)["body"]) == record


def test_json_nested_as_deep_as_can_be_read_fails_nothing(topic: Topic, rejects: Topic, setting: Setting) -> None:
    rules(setting, {"topic": "orders", "body": "json"})
    depths = range(sys.getrecursionlimit() - 100, sys.getrecursionlimit())
    assert given(topic.client, *[aws.sqs("[" * n + "]" * n, n) for n in depths], aws.sqs("[]", 1)) == ALL_STORED
    kept, rejected = stored(topic), stored(rejects)
    assert len(kept) + len(rejected) == len(depths) + 1
    assert kept[-1]["body"] == "[]"


def test_a_record_that_no_rule_takes_is_rejected(client: Client, rejects: Topic, setting: Setting) -> None:
    rules(setting, {"topic": "orders", "source": "sns"})
    assert given(client, aws.sqs("a")) == ALL_STORED
    assert aws.QUEUE in the_message(rejects)["properties"]["reason"]


def test_a_record_that_is_too_large_is_rejected_in_parts(topic: Topic, rejects: Topic) -> None:
    record = aws.kinesis(random.Random(1).randbytes(BODY_BYTES_MAX + 1))
    assert given(topic.client, record, aws.kinesis(b"b", 2)) == ALL_STORED
    assert bodies(stored(topic)) == ["b"]
    parts = [rejects.read(queue=0, offset=offset, limit=1)["messages"][0] for offset in range(6)]
    assert [part["properties"]["part"] for part in parts] == [f"{number}/6" for number in range(1, 7)]
    assert parts[0]["properties"]["reason"].startswith("MessageTooLarge: ")
    assert json.loads("".join(bodies(parts))) == record


def test_a_body_that_no_response_could_carry_is_rejected_in_parts(topic: Topic, rejects: Topic) -> None:
    record = aws.sqs('"' * 3 * MIB)
    assert given(topic.client, record) == ALL_STORED
    parts = [rejects.read(queue=0, offset=offset, limit=1)["messages"][0] for offset in range(7)]
    assert json.loads("".join(bodies(parts))) == record


@pytest.mark.parametrize("is_named", [False, True])
def test_without_a_topic_of_rejects_a_bad_record_is_reported(
    topic: Topic, setting: Setting, caplog: pytest.LogCaptureFixture, is_named: bool
) -> None:
    setting.setenv("DECANT_INGEST_REJECTS", "missing" if is_named else "")
    good, bad = aws.sqs("secret", 1), {**aws.sqs("x", 2), "body": None}
    with caplog.at_level(logging.WARNING, "decant"):
        assert failed(given(topic.client, good, bad)) == [bad["messageId"]]
    assert bodies(stored(topic)) == ["secret"]
    assert bad["messageId"] in caplog.text
    assert "secret" not in caplog.text


def test_what_a_hook_refuses_is_rejected_alone(client: Client, setting: Setting, rejects: Topic) -> None:
    topic = client.topic("orders")

    def hook(name: str, messages: Any) -> None:
        if name == "orders" and any(message.text == "bad" for message in messages):
            raise InvalidField("not in this house")

    client.api.service.producing.hooks.before.append(hook)
    texts = ["a", "bad", "b"]
    assert given(client, *[aws.sqs(text, number) for number, text in enumerate(texts)]) == ALL_STORED
    assert bodies(stored(topic)) == ["a", "b"]
    assert the_message(rejects)["properties"]["reason"] == "InvalidField: not in this house"


# -- what cannot be stored now ----------------------------------------------------------------------------------------


def test_messages_of_sqs_that_are_not_stored_are_each_reported(
    setting: Setting, client: Client, store: TroubledStore
) -> None:
    topic = client.topic("orders", queues=2)
    rules(setting, {"topic": "orders", "key": "body"})
    records = [aws.sqs(f"k{number}", number) for number in range(8)]
    store.before = throttled_queue(0)
    answer = failed(given(client, *records))
    store.before = unavailable()
    kept = set(bodies(stored(topic)))
    assert 0 < len(kept) < 8
    assert answer == [record["messageId"] for record in records if record["body"] not in kept]


@pytest.mark.parametrize("make", [aws.kinesis, lambda data, number: aws.dynamodb({"id": {"B": data.decode()}}, number)])
def test_streams_are_told_the_first_record_that_is_not_stored(
    setting: Setting, client: Client, store: TroubledStore, make: Any
) -> None:
    topic = client.topic("orders", queues=2)
    records = [make(b"%d" % number, number) for number in range(8)]
    for number, record in enumerate(records):
        record.get("kinesis", {})["partitionKey"] = f"k{number}"
    store.before = throttled_queue(0)
    [first] = failed(given(client, *records))
    store.before = unavailable()
    numbers = [record.get("kinesis", record["dynamodb" if "dynamodb" in record else "kinesis"]) for record in records]
    ids = [number.get("sequenceNumber", number.get("SequenceNumber")) for number in numbers]
    kept = {message["properties"]["aws_id"] for message in stored(topic)}
    assert first == next(each for each in ids if each not in kept)
    assert len(kept) < 8


@pytest.mark.parametrize("record", [aws.sns("a"), aws.eventbridge({}), aws.s3("a")], ids=["sns", "events", "s3"])
def test_asynchronous_events_are_raised_so_that_lambda_repeats_them(
    setting: Setting, topic: Topic, store: TroubledStore, record: Json
) -> None:
    store.before = unavailable("write", "write_together")
    with pytest.raises(RecordsNotStored, match=r"1 not stored \(1 StoreUnavailable\)"):
        given(topic.client, record)
    store.before = unavailable()
    assert given(topic.client, record) == ALL_STORED
    assert len(stored(topic)) == 1


def test_an_asynchronous_event_that_fails_has_stored_its_other_records(setting: Setting, topic: Topic) -> None:
    setting.delenv("DECANT_INGEST_REJECTS")
    bad = aws.s3("b", 2)
    bad["eventName"] = None
    rules(setting, {"topic": "orders", "body": "eventName"})
    for _ in range(2):
        with pytest.raises(RecordsNotStored):
            given(topic.client, aws.s3("a", 1), bad)
    assert len(stored(topic)) == 1


def test_a_record_whose_outcome_is_unknown_is_reported_and_stored_once(
    setting: Setting, topic: Topic, store: TroubledStore
) -> None:
    store.after = unknown("write", "write_together")
    record = aws.sqs("a")
    assert failed(given(topic.client, record)) == [record["messageId"]]
    store.after = unavailable()
    assert given(topic.client.another(), record) == ALL_STORED
    assert len(stored(topic)) == 1


def test_records_for_a_topic_that_does_not_exist_are_reported(client: Client, rejects: Topic) -> None:
    record = aws.sqs("a")
    assert failed(given(client, record)) == [record["messageId"]]
    assert stored(rejects) == []


def test_records_for_a_full_topic_are_reported(client: Client, rejects: Topic) -> None:
    client.put("/topics/orders", queues=1, max_depth=1)
    topic = Topic(client, "orders")
    topic.group("g")
    assert given(client, aws.sqs("a", 1)) == ALL_STORED
    second = aws.sqs("b", 2)
    assert failed(given(client, second)) == [second["messageId"]]
    assert stored(rejects) == []


def test_a_defect_is_reported_and_stores_the_rest(client: Client, setting: Setting) -> None:
    orders, others = client.topic("orders"), client.topic("others")
    rules(setting, {"topic": "others", "source": aws.FIFO}, {"topic": "orders"})

    def hook(name: str, _messages: Any) -> None:
        if name == "orders":
            raise RuntimeError("broken inside")

    client.api.service.producing.hooks.before.append(hook)
    broken, fine = aws.sqs("a", 1), aws.fifo("b", 2)
    assert failed(given(client, broken, fine)) == [broken["messageId"]]
    assert (len(stored(orders)), len(stored(others))) == (0, 1)


def test_without_time_the_rest_is_reported(setting: Setting, topic: Topic) -> None:
    record = aws.sqs("a")
    assert failed(given(topic.client, record, left_ms=900)) == [record["messageId"]]
    assert stored(topic) == []


def test_when_time_runs_out_what_is_stored_is_stored(setting: Setting, topic: Topic) -> None:
    context = Context()
    topic.client.api.service.producing.hooks.after.append(lambda *_: setattr(context, "left_ms", 900))
    records = [aws.kinesis(b"%d" % number, number) for number in range(BATCH_MESSAGES_MAX + 2)]
    wiring.use(topic.client.api)
    assert failed(ingest(event(*records), context)) == [records[BATCH_MESSAGES_MAX]["kinesis"]["sequenceNumber"]]
    assert len(stored(topic)) == BATCH_MESSAGES_MAX


# -- order ------------------------------------------------------------------------------------------------------------


def test_a_failed_record_of_a_group_holds_back_that_group_only(
    setting: Setting, client: Client, store: TroubledStore
) -> None:
    client.topic("orders", queues=8)
    groups = [f"g{number % 4}" for number in range(2 * BATCH_MESSAGES_MAX)]
    records = [aws.fifo(f"{number}", number, group) for number, group in enumerate(groups)]
    given(client, aws.fifo("first", 9_999, "g0"))
    [first] = stored(Topic(client, "orders"))
    store.before = throttled_queue(first["queue"])
    answer = set(failed(given(client, *records)))
    store.before = unavailable()
    lost = {group for group, record in zip(groups, records, strict=True) if record["messageId"] in answer}
    assert "g0" in lost
    assert len(lost) < 4
    for group, record in zip(groups, records, strict=True):
        assert (record["messageId"] in answer) == (group in lost)


def test_behind_a_failed_record_of_a_shard_nothing_more_is_tried(
    setting: Setting, topic: Topic, store: TroubledStore
) -> None:
    records = [aws.kinesis(b"%d" % number, number) for number in range(2 * BATCH_MESSAGES_MAX)]
    left = [1]

    def trouble(verb: str, about: Any) -> DecantError | None:
        if verb == "write_together" and left:
            left.pop()
            return StoreUnavailable("the store throttled")
        return None

    store.before = trouble
    [first] = failed(given(topic.client, *records))
    assert first == records[0]["kinesis"]["sequenceNumber"]
    assert stored(topic) == []
    given(topic.client, *records)
    assert bodies(stored(topic)) == [str(number) for number in range(2 * BATCH_MESSAGES_MAX)]


# -- events of nobody -------------------------------------------------------------------------------------------------

FORGED = [
    {},
    [],
    "text",
    7,
    None,
    {"Records": "x"},
    {"Records": [7]},
    {"Records": [{}]},
    {"Records": [{"eventSource": "aws:ses"}]},
    {"Records": [{"eventSource": ["aws:sqs"]}]},
    {"Records": [aws.sqs("a"), aws.kinesis(b"a")]},
    {"Records": [aws.sqs("a"), {**aws.sqs("b"), "messageId": None}]},
    {"Records": [aws.sqs("a"), {**aws.sqs("b"), "eventSourceARN": 7}]},
    {"Records": [{**aws.kinesis(b"b"), "kinesis": "x"}]},
    {"Records": [{**aws.fifo("b"), "attributes": {}}]},
    {"detail-type": "x"},
    {"eventSource": "aws:kafka", "records": {"orders-0": []}},
    {"awslogs": {"data": "H4sIAAAAAAAA"}},
]


@pytest.mark.parametrize("forged", FORGED, ids=[json.dumps(each)[:60] for each in FORGED])
def test_an_event_of_no_known_source_is_refused_whole(setting: Setting, topic: Topic, forged: Any) -> None:
    wiring.use(topic.client.api)
    with pytest.raises(UnknownEvent) as refused:
        ingest(forged, Context())
    assert str(refused.value).startswith("the event ")
    assert refused.value.__cause__ is None
    assert stored(topic) == []
