"""The wire of the SQS door: paths, encodings, errors."""

from __future__ import annotations

import json

import pytest

from tests.sqs.client import Refused, Sqs, queue, refusal_in
from tests.sqs.query_client import QuerySqs
from tests.support.client import Client, Json
from tests.support.troubled_store import TroubledStore, unavailable


def test_an_unknown_action_is_refused(sqs: Sqs) -> None:
    status = 400 if isinstance(sqs, QuerySqs) else 404
    text = "The action Fly is not valid for this endpoint."
    assert sqs.refused("Fly") == Refused(status, "UnknownOperationException", "InvalidAction", text)


def test_other_paths_and_other_requests_are_as_before(client: Client) -> None:
    for method, path in (("POST", "/"), ("GET", "/"), ("PUT", "/123456789012/orders"), ("POST", "/12/orders")):
        assert client.ask(method, path, raw=b"{}").problem == (404, "NotFound")
    target = {"x-amz-target": "AmazonSQS.ListQueues"}
    for path in ("/12/orders", "/topics/", "//", "/123456789012/orders/more", "/123456789012/"):
        assert client.ask("POST", path, raw=b"{}", **target).status == 404
        assert client.ask("POST", path, raw=b"{}", **target).headers["Content-Type"] == "application/problem+json"


def test_nothing_of_the_door_is_in_the_document(client: Client) -> None:
    assert "sqs" not in json.dumps(client.get("/openapi.json").json["paths"]).lower()


CREDENTIAL = "AWS4-HMAC-SHA256 Credential={}/20260101/{}/sqs/aws4_request, SignedHeaders=host, Signature=0"


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        ({}, "http://sqs.test/000000000000/orders"),
        ({"host": "a:8000", "x-forwarded-proto": "https,http"}, "https://a:8000/000000000000/orders"),
        ({"host": "\ud800"}, "http://localhost/000000000000/orders"),
        ({"authorization": CREDENTIAL.format("123456789012", "eu-west-1")}, "http://sqs.test/123456789012/orders"),
        ({"authorization": CREDENTIAL.format("AKIA", "eu-west-1")}, "http://sqs.test/000000000000/orders"),
        ({"authorization": "junk"}, "http://sqs.test/000000000000/orders"),
    ],
)
def test_a_url_has_the_host_and_the_account_of_the_request(sqs: Sqs, headers: dict[str, str], url: str) -> None:
    answer = sqs.ask("CreateQueue", QueueName="orders", headers=headers)
    assert answer.json == {"QueueUrl": url}


def test_a_deployment_can_have_an_account(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_ACCOUNT", "210987654321")
    assert sqs.CreateQueue(QueueName="orders") == {"QueueUrl": "http://sqs.test/210987654321/orders"}


def test_the_region_of_the_signature_is_in_the_arn(sqs: Sqs, url: str) -> None:
    headers = {"authorization": CREDENTIAL.format("AKIA", "eu-west-1")}
    asked: Json = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
    assert sqs.GetQueueAttributes(**asked)["Attributes"]["QueueArn"] == "arn:aws:sqs:us-east-1:000000000000:orders"
    answer = sqs.ask("GetQueueAttributes", headers=headers, **asked)
    assert answer.json["Attributes"]["QueueArn"] == "arn:aws:sqs:eu-west-1:000000000000:orders"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{", "the request body is not JSON"),
        (b"\xff", "the request body is not JSON"),
        (b"[]", "the request must be an object; it is []"),
        (b'{"QueueUrl": 7}', "QueueUrl must be a string of text; it is 7"),
        (b'{"QueueUrl": "\\ud800"}', "QueueUrl must be a string of text"),
        (b'{"MaxNumberOfMessages": "1"}', 'MaxNumberOfMessages must be an integer; it is "1"'),
        (b'{"MaxNumberOfMessages": true}', "MaxNumberOfMessages must be an integer; it is true"),
        (b'{"AttributeNames": "All"}', 'AttributeNames must be a list; it is "All"'),
        (b'{"AttributeNames": ["All", 7]}', "AttributeNames.2 must be a string of text; it is 7"),
    ],
)
def test_a_member_of_another_type_is_refused(sqs: Sqs, url: str, raw: bytes, text: str) -> None:
    refused = refusal_in(sqs.ask("ReceiveMessage", raw=raw))
    assert (refused.status, refused.shape, refused.code) == (400, "SerializationException", "InvalidParameterValue")
    assert refused.message.startswith(text)


def test_a_url_may_end_with_a_slash(sqs: Sqs, url: str) -> None:
    assert sqs.ReceiveMessage(QueueUrl=f"{url}/") == {}


def test_a_value_of_another_type_is_named_by_its_key(client: Client, url: str) -> None:
    refused = Sqs(client).refused("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": 3})
    assert refused.message == "Attributes.DelaySeconds must be a string of text; it is 3"


@pytest.mark.parametrize("value", [7, "x", {"DataType": 7}, {"DataType": "Binary", "BinaryValue": "%"}])
def test_an_attribute_of_another_type_is_refused(client: Client, url: str, value: object) -> None:
    refused = Sqs(client).refused("SendMessage", QueueUrl=url, MessageBody="a", MessageAttributes={"a": value})
    assert refused.shape == "SerializationException"


def test_members_that_are_unknown_or_null_are_ignored(sqs: Sqs, url: str) -> None:
    sqs.SendMessage(QueueUrl=url, MessageBody="a", DelaySeconds=None, NewMember={"a": [1]})
    assert sqs.ReceiveMessage(QueueUrl=url)["Messages"][0]["Body"] == "a"


def test_a_store_in_trouble_is_worth_a_repeat() -> None:
    store = TroubledStore()
    sqs = Sqs(Client(store))
    url = queue(sqs.client)
    store.before = unavailable("write", "write_each")
    answer = sqs.ask("SendMessage", QueueUrl=url, MessageBody="a")
    refused = refusal_in(answer)
    assert (refused.status, refused.shape, refused.code) == (503, "ServiceUnavailableException", "ServiceUnavailable")
    assert answer.headers["Retry-After"] == "1"


def test_a_defect_shows_nothing_of_the_inside(sqs: Sqs, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chalicelib.doors.sqs.receiving._asked", None)
    refused = sqs.refused("ReceiveMessage", QueueUrl=url)
    assert (refused.status, refused.shape) == (500, "InternalFailure")
    assert "look for" in refused.message
    assert "NoneType" not in refused.message
