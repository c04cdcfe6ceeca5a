"""`ReceiveMessage`, and the actions that settle what it gave."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from chalicelib.core.base.limits import LEASES_MAX, MIB
from chalicelib.core.cursors import cursor_writes
from tests.sqs.client import Refused, Sqs, queue
from tests.sqs.query_client import QuerySqs, form
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock

Json = dict[str, Any]


def receive(sqs: Sqs, url: str, **more: Any) -> list[Json]:
    messages: list[Json] = sqs.ReceiveMessage(QueueUrl=url, **more).get("Messages", [])
    return messages


def handle(sqs: Sqs, url: str, **more: Any) -> str:
    [message] = receive(sqs, url, **more)
    return str(message["ReceiptHandle"])


@pytest.fixture
def sent(sqs: Sqs, url: str) -> str:
    """The URL of a queue with one message."""
    sqs.SendMessage(QueueUrl=url, MessageBody="a")
    return url


def text_of(value: str) -> Json:
    return {"DataType": "String", "StringValue": value}


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("MaxNumberOfMessages", 11, "Reason: Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", 21, "Reason: Must be >= 0 and <= 20, if provided."),
        ("VisibilityTimeout", 43201, "Reason: Must be between 0 and 43200, if provided."),
        (
            "ReceiveRequestAttemptId",
            "a",
            "Reason: The request include parameter that is not valid for this queue type.",
        ),
    ],
)
def test_a_receive_beyond_the_limits_is_refused(sqs: Sqs, url: str, member: str, value: Any, reason: str) -> None:
    refused = sqs.refused("ReceiveMessage", QueueUrl=url, **{member: value})
    text = f"Value {value} for parameter {member} is invalid. {reason}"
    assert refused == Refused(400, "InvalidParameterValueException", "InvalidParameterValue", text)


def test_a_receive_waits_for_a_message(client: Client, sqs: Sqs, clock: Clock) -> None:
    url, patient = queue(client, "now"), queue(client, "patient", ReceiveMessageWaitTimeSeconds="7")
    for asked, waited_ms in (((url, {}), 0), ((url, {"WaitTimeSeconds": 20}), 20_000), ((patient, {}), 7_000)):
        began = clock.now()
        assert receive(sqs, asked[0], **asked[1]) == []
        assert clock.now() - began == waited_ms


def test_with_too_much_in_flight_only_a_long_poll_is_no_error(
    client: Client, sqs: Sqs, sent: str, clock: Clock
) -> None:
    Group(client, Topic(client, "orders"), "orders").change(max_in_flight=1)
    sqs.SendMessage(QueueUrl=sent, MessageBody="b")
    assert receive(sqs, sent)
    refused = sqs.refused("ReceiveMessage", QueueUrl=sent)
    assert (refused.status, refused.shape) == (403, "OverLimit")
    began = clock.now()
    assert receive(sqs, sent, WaitTimeSeconds=5) == []
    assert clock.now() - began == 5_000


def test_a_paused_group_gives_nothing(client: Client, sqs: Sqs, sent: str) -> None:
    Group(client, Topic(client, "orders"), "orders").change(paused=True)
    assert receive(sqs, sent) == []


LAMBDA_BYTES_MAX = 6 * MIB


def receive_by_function(sqs: Sqs, url: str) -> list[Json]:
    """Ten messages at most, in an answer that Lambda can carry, as a string in JSON."""
    asked: Json = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
    answer = (
        sqs.send(form("ReceiveMessage", asked)) if isinstance(sqs, QuerySqs) else sqs.ask("ReceiveMessage", **asked)
    )
    assert len(json.dumps(answer.raw.decode())) < LAMBDA_BYTES_MAX
    messages: list[Json] = (sqs.translated(answer) if isinstance(sqs, QuerySqs) else answer).json["Messages"]
    return messages


@pytest.mark.parametrize("letter", ['"', "&"])
def test_answers_fit_into_those_of_a_function(client: Client, sqs: Sqs, url: str, letter: str) -> None:
    properties = {f"{number:03}": letter for number in range(400)}
    Topic(client, "orders").produce(*[{"body": letter * 300_000, "properties": properties}] * 7)
    received = 0
    while received < 7:
        received += len(receive_by_function(sqs, url))
    assert received == 7
    assert receive(sqs, url) == []


@pytest.mark.parametrize("letter", ['"', "&"])
def test_the_largest_message_of_a_sender_fits(client: Client, url: str, letter: str) -> None:
    text = letter * (MIB // 2 - len("abcString"))
    Sqs(client).SendMessage(QueueUrl=url, MessageBody=letter * (MIB // 2), MessageAttributes={"abc": text_of(text)})
    [message] = receive_by_function(QuerySqs(client), url)
    assert set(message["Body"]) == {letter}


def test_a_larger_one_is_in_base64_where_it_would_not_fit_as_text(client: Client, sqs: Sqs, url: str) -> None:
    body = "&" * 2 * MIB
    Topic(client, "orders").produce(body)
    [message] = receive(sqs, url, MessageAttributeNames=["All"])
    if isinstance(sqs, QuerySqs):
        assert message["MessageAttributes"] == {"decant.encoding": text_of("base64")}
        message["Body"] = base64.b64decode(message["Body"]).decode()
    assert message["Body"] == body


# -- settling ---------------------------------------------------------------------------------------------------------


def test_a_deleted_message_is_gone(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    for _ in range(2):
        answer = sqs.ask("DeleteMessage", QueueUrl=sent, ReceiptHandle=own)
        assert (answer.status, answer.raw) == (200, b"")
    clock.sleep(60_000)
    assert receive(sqs, sent) == []


def test_a_handle_of_another_queue_deletes_nothing(client: Client, sqs: Sqs, sent: str) -> None:
    other = queue(client, "other")
    own = handle(sqs, sent)
    for name in (own, "junk", "ö", "x" * 5_000):
        refused = sqs.refused("DeleteMessage", QueueUrl=other, ReceiptHandle=name)
        text = f'The input receipt handle "{name}" is not a valid receipt handle.'
        assert refused == Refused(400, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", text)
        refused = sqs.refused("ChangeMessageVisibility", QueueUrl=other, ReceiptHandle=name, VisibilityTimeout=1)
        text = "The input receipt handle is invalid."
        assert refused == Refused(400, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", text)


def test_visibility_counts_from_the_change(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    clock.sleep(20_000)
    assert sqs.ask("ChangeMessageVisibility", QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=40).raw == b""
    clock.sleep(39_999)
    assert receive(sqs, sent) == []
    clock.sleep(1)
    assert receive(sqs, sent)


def test_a_handle_outlives_any_number_of_changes(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    for _ in range(50):
        clock.sleep(20_000)
        sqs.ChangeMessageVisibility(QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=30)
    assert receive(sqs, sent) == []
    sqs.DeleteMessage(QueueUrl=sent, ReceiptHandle=own)
    clock.sleep(60_000)
    assert receive(sqs, sent) == []


def test_a_visibility_of_zero_gives_the_message_back_at_once(sqs: Sqs, sent: str) -> None:
    for number in range(1, 4):
        [message] = receive(sqs, sent, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == str(number)
        sqs.ChangeMessageVisibility(QueueUrl=sent, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    for number in range(4, 7):
        [message] = receive(sqs, sent, VisibilityTimeout=0, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == str(number)


def test_a_queue_may_hide_its_messages_not_at_all(sqs: Sqs) -> None:
    url = sqs.CreateQueue(QueueName="open", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    sqs.SendMessage(QueueUrl=url, MessageBody="a")
    first, second = handle(sqs, url), handle(sqs, url)
    sqs.DeleteMessage(QueueUrl=url, ReceiptHandle=first)
    assert receive(sqs, url) == []
    sqs.DeleteMessage(QueueUrl=url, ReceiptHandle=second)


def test_an_expired_handle_still_changes_and_deletes(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    clock.sleep(31_000)
    sqs.ChangeMessageVisibility(QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=100)
    assert receive(sqs, sent) == []
    clock.sleep(101_000)
    sqs.DeleteMessage(QueueUrl=sent, ReceiptHandle=own)
    assert receive(sqs, sent) == []


def test_a_purged_message_can_be_deleted_but_not_changed(sqs: Sqs, sent: str) -> None:
    own = handle(sqs, sent)
    sqs.PurgeQueue(QueueUrl=sent)
    sqs.DeleteMessage(QueueUrl=sent, ReceiptHandle=own)
    refused = sqs.refused("ChangeMessageVisibility", QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=1)
    assert refused.message.endswith("Message does not exist or is not available for visibility timeout change.")


def test_a_receive_fills_up_from_several_queues(client: Client, sqs: Sqs) -> None:
    url = queue(client, "wide", queues=4)
    for number in range(4):
        Topic(client, "wide").produce("a", queue=number)
    assert len(receive(sqs, url, MaxNumberOfMessages=10)) == 4


@pytest.mark.parametrize("seconds", [-1, 43201])
def test_a_visibility_beyond_the_limits_is_refused(sqs: Sqs, sent: str, seconds: int) -> None:
    asked = {"QueueUrl": sent, "ReceiptHandle": handle(sqs, sent), "VisibilityTimeout": seconds}
    refused = sqs.refused("ChangeMessageVisibility", **asked)
    text = f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer"
    assert refused.message == text + " between 0 and 43200"


def test_visibility_ends_twelve_hours_after_the_receive(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    clock.sleep(1_000)
    sqs.ask("ChangeMessageVisibility", QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=43_199)
    refused = sqs.refused("ChangeMessageVisibility", QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=43_200)
    text = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    assert refused.message == f"Value 43200 for parameter VisibilityTimeout is invalid. Reason: {text}"


def test_the_visibility_of_a_deleted_message_cannot_change(sqs: Sqs, sent: str) -> None:
    own = handle(sqs, sent)
    sqs.DeleteMessage(QueueUrl=sent, ReceiptHandle=own)
    refused = sqs.refused("ChangeMessageVisibility", QueueUrl=sent, ReceiptHandle=own, VisibilityTimeout=1)
    reason = "Message does not exist or is not available for visibility timeout change."
    text = f"Value {own} for parameter ReceiptHandle is invalid. Reason: {reason}"
    assert refused == Refused(400, "InvalidParameterValueException", "InvalidParameterValue", text)


def test_a_batch_deletes_what_it_can(sqs: Sqs, sent: str, clock: Clock) -> None:
    own = handle(sqs, sent)
    entries = [{"Id": "1", "ReceiptHandle": own}, {"Id": "2", "ReceiptHandle": own}, {"Id": "3", "ReceiptHandle": "x"}]
    answer = sqs.DeleteMessageBatch(QueueUrl=sent, Entries=[*entries, {"Id": "4"}])
    assert answer["Successful"] == [{"Id": "1"}, {"Id": "2"}]
    codes = [(each["Id"], each["SenderFault"], each["Code"]) for each in answer["Failed"]]
    assert codes == [("3", True, "ReceiptHandleIsInvalid"), ("4", True, "MissingParameter")]
    clock.sleep(60_000)
    assert receive(sqs, sent) == []


def test_a_batch_changes_each_by_its_own_timeout(sqs: Sqs, sent: str, clock: Clock) -> None:
    sqs.SendMessage(QueueUrl=sent, MessageBody="b")
    first, second = receive(sqs, sent, MaxNumberOfMessages=2)
    changes = [(first["ReceiptHandle"], 10), (second["ReceiptHandle"], 50), ("x", 10), (first["ReceiptHandle"], -1)]
    entries = [
        {"Id": str(number), "ReceiptHandle": own, "VisibilityTimeout": seconds}
        for number, (own, seconds) in enumerate(changes)
    ]
    answer = sqs.ChangeMessageVisibilityBatch(QueueUrl=sent, Entries=entries)
    assert answer["Successful"] == [{"Id": "0"}, {"Id": "1"}]
    assert [each["Code"] for each in answer["Failed"]] == ["ReceiptHandleIsInvalid", "InvalidParameterValue"]
    for passed_ms, message in ((10_000, first), (40_000, second)):
        clock.sleep(passed_ms)
        assert [each["MessageId"] for each in receive(sqs, sent, VisibilityTimeout=100)] == [message["MessageId"]]


def test_a_queue_of_which_very_much_was_changed_alone_is_throttled(
    sqs: Sqs, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in "bcd":
        sqs.SendMessage(QueueUrl=sent, MessageBody=body)
    alone, *others = [each["ReceiptHandle"] for each in receive(sqs, sent, MaxNumberOfMessages=4)]
    monkeypatch.setattr(cursor_writes, "LEASES_ROOM", 2 - LEASES_MAX)
    for handles, refused in (([alone], []), (others, ["RequestThrottled"] * 3)):
        entries = [
            {"Id": own[-9:], "ReceiptHandle": own, "VisibilityTimeout": 60 + at} for at, own in enumerate(handles)
        ]
        answer = sqs.ChangeMessageVisibilityBatch(QueueUrl=sent, Entries=entries)
        assert [each["Code"] for each in answer.get("Failed", [])] == refused
    sqs.DeleteMessage(QueueUrl=sent, ReceiptHandle=alone)


BATCHES = {
    "SendMessageBatch": {"MessageBody": "a"},
    "DeleteMessageBatch": {"ReceiptHandle": "x"},
    "ChangeMessageVisibilityBatch": {"ReceiptHandle": "x", "VisibilityTimeout": 1},
}


@pytest.mark.parametrize(("action", "entry"), BATCHES.items())
def test_a_batch_is_checked_as_a_whole_first(sqs: Sqs, url: str, action: str, entry: Json) -> None:
    name = f"{action}RequestEntry"
    bad_id = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
        " It can be at most 80 letters long."
    )
    for ids, shape, text in [
        ([], "EmptyBatchRequest", f"There should be at least one {name} in the request."),
        (
            range(11),
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", "b", "b"], "BatchEntryIdsNotDistinct", "Id b repeated."),
        (["a", "a", "ö"], "InvalidBatchEntryId", bad_id),
        (["x" * 81], "InvalidBatchEntryId", bad_id),
        ([""], "InvalidBatchEntryId", bad_id),
    ]:
        refused = sqs.refused(action, QueueUrl=url, Entries=[{"Id": str(id_), **entry} for id_ in ids])
        assert refused == Refused(400, shape, shape, text)
    refused = sqs.refused(action, QueueUrl=url, Entries=[{"Id": "1", **entry}, entry])
    assert refused.message == f"The request must contain the parameter {name}.2.Id."
    without = sqs.refused(action, QueueUrl=url)
    if isinstance(sqs, QuerySqs):
        assert without.shape == "EmptyBatchRequest", "a form cannot tell none from no entries"
    else:
        assert without.message == "The request must contain the parameter Entries."


def test_a_queue_that_does_not_exist_comes_before_all_else(sqs: Sqs) -> None:
    for action in (*BATCHES, "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"):
        text = "The specified queue does not exist."
        refused = sqs.refused(action, QueueUrl="http://sqs.test/000000000000/none")
        assert refused == Refused(400, "QueueDoesNotExist", "NonExistentQueue", text)
        assert sqs.refused(action).message == "The request must contain the parameter QueueUrl."


def test_the_queue_may_stand_in_the_path(sqs: Sqs, sent: str) -> None:
    answer = sqs.ask("ReceiveMessage", "/000000000000/orders")
    assert answer.json["Messages"][0]["Body"] == "a"
