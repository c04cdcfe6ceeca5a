"""The attributes of queues: values, defaults, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sqs.client import Sqs
from tests.support.client import Client

DEFAULTS = {
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "QueueArn": "arn:aws:sqs:us-east-1:000000000000:orders",
}
POLICY = '{"Version": "2012-10-17", "Statement": []}'


@pytest.fixture
def made(sqs: Sqs) -> Sqs:
    sqs.CreateQueue(QueueName="orders")
    return sqs


def get(sqs: Sqs, *names: str) -> dict[str, str]:
    found: dict[str, str] = sqs.GetQueueAttributes(QueueUrl="orders", AttributeNames=names).get("Attributes", {})
    return found


def put(sqs: Sqs, **attributes: str) -> None:
    assert sqs.SetQueueAttributes(QueueUrl="orders", Attributes=attributes) == {}


def refusal(sqs: Sqs, **attributes: str) -> tuple[str, str]:
    """The same of a change and of a creation."""
    changed = sqs.refused("SetQueueAttributes", QueueUrl="orders", Attributes=attributes)
    created = sqs.refused("CreateQueue", QueueName="new", Attributes=attributes)
    assert changed == created
    return changed.code, changed.message


def test_a_new_queue_shows_the_twelve_attributes_of_a_standard_one(made: Sqs, client: Client) -> None:
    now = str(client.clock.ms // 1_000)
    assert get(made, "All") == {**DEFAULTS, "CreatedTimestamp": now, "LastModifiedTimestamp": now}


def test_only_the_named_attributes_are_shown(made: Sqs) -> None:
    assert get(made, "VisibilityTimeout", " QueueArn ") == {
        "VisibilityTimeout": "30",
        "QueueArn": DEFAULTS["QueueArn"],
    }
    assert made.GetQueueAttributes(QueueUrl="orders") == {}
    assert get(made, "Policy", "RedrivePolicy") == {}


@pytest.mark.parametrize("name", ["not-existing", "", "all", "FifoQueue", "DeduplicationScope"])
def test_an_unknown_attribute_is_named(made: Sqs, name: str) -> None:
    refused = made.refused("GetQueueAttributes", QueueUrl="orders", AttributeNames=["QueueArn", name])
    assert (refused.code, refused.message) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("VisibilityTimeout", ["0", "43200"]),
        ("MessageRetentionPeriod", ["60", "1209600"]),
        ("DelaySeconds", ["0", "900"]),
        ("MaximumMessageSize", ["1024", "1048576"]),
        ("ReceiveMessageWaitTimeSeconds", ["0", "20"]),
        ("KmsDataKeyReusePeriodSeconds", ["60", "86400"]),
    ],
)
def test_numbers_are_kept_within_their_range(made: Sqs, name: str, values: list[str]) -> None:
    for value in values:
        put(made, **{name: f" {value} "})
        assert get(made, name) == {name: value}
    wrong = [str(int(values[0]) - 1), str(int(values[1]) + 1), "", "x", "1.5", "٣", "9" * 30]
    for value in wrong:
        assert refusal(made, **{name: value}) == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    assert get(made, name) == {name: values[1]}


@pytest.mark.parametrize("name", ["QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "Other", "All"])
def test_what_cannot_be_set_is_unknown(made: Sqs, name: str) -> None:
    assert refusal(made, **{name: "1"}) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ContentBasedDeduplication", "Unknown Attribute ContentBasedDeduplication."),
        ("DeduplicationScope", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ("FifoThroughputLimit", "You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
    ],
)
def test_a_standard_queue_has_no_attributes_of_fifo_queues(made: Sqs, name: str, text: str) -> None:
    assert refusal(made, **{name: "true"}) == ("InvalidAttributeName", text)


def test_a_standard_queue_is_not_told_its_kind(made: Sqs) -> None:
    assert refusal(made, FifoQueue="false") == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")


@pytest.mark.parametrize("name", ["Policy", "RedriveAllowPolicy"])
def test_policies_are_kept_as_they_are_and_taken_away_by_nothing(made: Sqs, name: str) -> None:
    policy = POLICY if name == "Policy" else '{"redrivePermission": "denyAll"}'
    put(made, **{name: policy})
    assert get(made, "All")[name] == policy
    put(made, DelaySeconds="1")
    assert get(made, name) == {name: policy}
    put(made, **{name: ""})
    assert get(made, name) == {}


@pytest.mark.parametrize("name", ["Policy", "RedriveAllowPolicy"])
def test_policies_are_compared_as_json(sqs: Sqs, name: str) -> None:
    policy = {"redrivePermission": "denyAll", "sourceQueueArns": []}
    for text in (json.dumps(policy), json.dumps(dict(reversed(policy.items())), indent=2)):
        sqs.CreateQueue(QueueName="orders", Attributes={name: text})
    for text in ('{"redrivePermission": "allowAll"}', ""):
        refused = sqs.refused("CreateQueue", QueueName="orders", Attributes={name: text})
        assert refused.shape == "QueueNameExists"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Policy", "x"),
        ("Policy", "[]"),
        ("Policy", json.dumps({"a": "b" * 8192})),
        ("RedriveAllowPolicy", "x"),
        ("RedriveAllowPolicy", '{"redrivePermission": "some"}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue"}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll", "sourceQueueArns": ["a"]}'),
        ("RedriveAllowPolicy", json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["a"] * 11})),
        ("SqsManagedSseEnabled", "yes"),
        ("KmsMasterKeyId", "k" * 2049),
    ],
)
def test_values_that_cannot_be_are_refused(made: Sqs, name: str, value: str) -> None:
    code, text = refusal(made, **{name: value})
    assert code == "InvalidAttributeValue"
    assert text.startswith(f"Invalid value for the parameter {name}.")


def test_a_key_of_ones_own_takes_the_place_of_the_managed_one(made: Sqs) -> None:
    put(made, KmsMasterKeyId="alias/mine")
    assert get(made, "KmsMasterKeyId", "SqsManagedSseEnabled") == {
        "KmsMasterKeyId": "alias/mine",
        "SqsManagedSseEnabled": "false",
    }
    both = {"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"}
    assert refusal(made, **both)[0] == "InvalidAttributeName"
    for _ in range(2):  # the later one counts, whichever was set before
        put(made, SqsManagedSseEnabled="TRUE")
        assert get(made, "KmsMasterKeyId", "SqsManagedSseEnabled") == {"SqsManagedSseEnabled": "true"}
        put(made, KmsMasterKeyId="alias/mine")
        assert get(made, "SqsManagedSseEnabled") == {"SqsManagedSseEnabled": "false"}


def test_a_key_that_was_taken_away_leaves_nothing_of_it(made: Sqs) -> None:
    """As AWS answers."""
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    assert get(made, *names) == {"SqsManagedSseEnabled": "true"}
    put(made, KmsMasterKeyId="alias/mine", KmsDataKeyReusePeriodSeconds="6000")
    assert get(made, *names) == dict(zip(names, ("alias/mine", "6000", "false"), strict=True))
    put(made, KmsMasterKeyId="", KmsDataKeyReusePeriodSeconds="300")
    assert get(made, *names) == {"SqsManagedSseEnabled": "false"}
    assert made.CreateQueue(QueueName="orders", Attributes={"KmsDataKeyReusePeriodSeconds": "300"})["QueueUrl"]


def test_a_change_is_heard_by_group_and_topic_and_noted(made: Sqs, client: Client) -> None:
    client.clock.ms += 5_000
    put(made, VisibilityTimeout="45", MessageRetentionPeriod="120")
    assert client.get("/topics/orders").json["retention_ms"] == 120_000
    assert client.get("/topics/orders/groups/orders").json["invisible_ms"] == 45_000
    times = get(made, "CreatedTimestamp", "LastModifiedTimestamp")
    assert int(times["LastModifiedTimestamp"]) - int(times["CreatedTimestamp"]) == 5
    client.put("/topics/orders/groups/orders", invisible_ms=7_000)
    assert get(made, "VisibilityTimeout") == {"VisibilityTimeout": "7"}, "set over JSON"


def test_nothing_to_set_is_refused(made: Sqs) -> None:
    members: dict[str, Any]
    for members in ({}, {"Attributes": {}}):
        refused = made.refused("SetQueueAttributes", QueueUrl="orders", **members)
        assert (refused.code, refused.message) == (
            "MissingParameter",
            "The request must contain the parameter Attributes.",
        )


def test_a_change_with_one_wrong_value_changes_nothing(made: Sqs) -> None:
    attributes: dict[str, Any] = {"VisibilityTimeout": "45", "DelaySeconds": "901"}
    assert made.refused("SetQueueAttributes", QueueUrl="orders", Attributes=attributes).code == "InvalidAttributeValue"
    assert get(made, "VisibilityTimeout") == {"VisibilityTimeout": "30"}


def test_messages_are_counted_where_they_are(made: Sqs, client: Client) -> None:
    messages = [{"body": str(number), "queue": 0} for number in range(5)]
    client.post("/topics/orders/messages", messages=messages)
    client.post("/topics/orders/messages", messages=[{"body": "later", "delay_ms": 60_000}])
    taken = client.post("/topics/orders/groups/orders/pop", max_messages=3).json["messages"]
    nacked = {"receipts": [taken[0]["receipt"]], "delay_ms": 60_000}
    assert client.post("/topics/orders/groups/orders/nack", **nacked).status == 200
    shown = get(made, "All")
    counts = [shown[f"ApproximateNumberOfMessages{kind}"] for kind in ("", "NotVisible", "Delayed")]
    assert counts == ["2", "3", "1"]
