"""The query protocol: forms in, XML out. Most tests of the actions run in both encodings (`conftest.py`)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from chalicelib import wiring
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.query_wire import FORM_BYTES_MAX, PARAMETERS_MAX
from tests.sqs.client import Sqs, queue
from tests.sqs.query_client import NAMESPACE, QuerySqs
from tests.support.client import Answer, Client
from tests.support.troubled_store import TroubledStore, unavailable

VOID = {
    *("AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "PurgeQueue", "RemovePermission"),
    *("SetQueueAttributes", "TagQueue", "UntagQueue"),
}
"""The actions without a result."""
VERSION = "Version=2012-11-05"


@pytest.fixture
def query(client: Client) -> QuerySqs:
    return QuerySqs(client)


def code_and_text(answer: Answer) -> tuple[int, str, str]:
    """The status, code and text of an error."""
    assert answer.headers["Content-Type"] == "text/xml"
    error = re.search("<Code>(.*)</Code><Message>(.*)</Message><Detail/></Error>", answer.raw.decode())
    assert error
    return answer.status, error[1], error[2]


def at_queue(client: Client, form: str) -> Answer:
    """The answer to a GET of a queue's URL."""
    return client.ask("GET", f"/000000000000/orders{form and '?' + form}", host="sqs.test")


# -- both encodings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIONS)
def test_only_void_actions_are_without_a_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old SDKs look for the element that the others have, also where nothing is in it."""
    answer: dict[str, Any] = {} if name in VOID else {"Messages": []}
    monkeypatch.setitem(ACTIONS, name, ACTIONS[name]._replace(run=lambda _: answer, required=()))
    client = Client()
    text = QuerySqs(client).send(f"Action={name}&QueueUrl={queue(client)}").raw.decode()
    assert (f"<{name}Result/>" in text) == (name not in VOID)


@pytest.mark.parametrize("name", ["CreateQueue", "ListQueues"])
def test_a_queue_neither_makes_nor_lists_queues(client: Client, sqs: Sqs, url: str, name: str) -> None:
    text = f"The action {name} is not valid for this endpoint."
    refused = sqs.refused(name, path="/000000000000/orders", QueueName="new")
    assert (refused.code, refused.message) == ("InvalidAction", text)
    assert code_and_text(at_queue(client, f"Action={name}&QueueName=new")) == (400, "InvalidAction", text)
    assert sqs.ListQueues()["QueueUrls"] == [url]


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("form", ["", VERSION, "Expires=1"])
def test_a_get_of_a_queue_that_names_no_action_is_no_operation(client: Client, form: str) -> None:
    answer = at_queue(client, form)
    assert (answer.status, answer.raw) == (404, b"<UnknownOperationException/>")
    assert b"InvalidAction" in at_queue(client, "Action=Fly").raw


def test_answers_and_errors_look_as_clients_of_sqs_know_them(query: QuerySqs, url: str) -> None:
    answer = query.send(f"Action=SendMessage&{VERSION}&MessageBody=hi&QueueUrl={url}")
    number = answer.headers["x-amzn-RequestId"]
    sent = "<MD5OfMessageBody>49f68a5c8493ec2c0bf489821c21fc3b</MD5OfMessageBody>"
    assert re.fullmatch(
        f'<\\?xml version="1.0"\\?><SendMessageResponse xmlns="{NAMESPACE}"><SendMessageResult><MessageId>[0-9a-f-]+'
        f"</MessageId>{sent}</SendMessageResult><ResponseMetadata><RequestId>{number}</RequestId></ResponseMetadata>"
        "</SendMessageResponse>",
        answer.raw.decode(),
    )
    refused = query.send(f"Action=DeleteQueue&{VERSION}&QueueUrl=none")
    number = refused.headers["x-amzn-RequestId"]
    assert refused.raw.decode() == (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>Sender</Type>'
        "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
        "<Message>The specified queue does not exist for this wsdl version.</Message><Detail/></Error>"
        f"<RequestId>{number}</RequestId></ErrorResponse>"
    )


TEXTS = ["\"<&>'", "a\r\nb\rc\n\td", " ]]> ", "😀ÿ", "%41+%"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back_as_they_were_sent(query: QuerySqs, url: str, text: str) -> None:
    attributes = {"a": {"DataType": "String", "StringValue": text}}
    query.SendMessage(QueueUrl=url, MessageBody=text, MessageAttributes=attributes)
    [message] = query.ReceiveMessage(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == (text, attributes)


def test_quotes_and_line_ends_are_spelled_so_that_no_reader_changes_them(query: QuerySqs, url: str) -> None:
    query.SendMessage(QueueUrl=url, MessageBody='"\r')
    assert b"<Body>&quot;&#xD;</Body>" in query.send(f"Action=ReceiveMessage&QueueUrl={url}").raw


def test_what_xml_cannot_hold_does_not_break_an_answer(query: QuerySqs, url: str) -> None:
    properties = {"a": "x\0y", "b\1": "z"}
    message = {"body": "a", "properties": properties}
    assert query.client.post("/topics/orders/messages", messages=[message]).status == 200
    [message] = query.ReceiveMessage(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["MessageAttributes"] == {
        "a": {"DataType": "Binary", "BinaryValue": "eAB5"},
        "b\ufffd": {"DataType": "String", "StringValue": "z"},
    }
    refused = query.refused("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="\1")
    assert refused.message.startswith("Value \ufffd for parameter MessageGroupId is invalid.")
    assert code_and_text(query.send("Action=a%00"))[2] == "The action a\\u0000 is not valid for this endpoint."


# -- forms ------------------------------------------------------------------------------------------------------------


def test_a_form_may_come_in_the_query_string_or_in_a_body_of_any_type(query: QuerySqs, url: str) -> None:
    form = {"Action": "SendMessage", "Version": "2012-11-05", "MessageBody": "grüß"}
    path = "/000000000000/orders"
    for method, there, raw in (
        ("GET", {**form}, b""),
        ("POST", {**form}, b""),
        ("POST", {}, urlencode(form).encode()),
        ("POST", {"Action": "SendMessage"}, b"MessageBody=gr\xc3\xbc\xc3\x9f"),
    ):
        for place in (path, path + "/"):
            assert query.client.ask(method, place, raw=raw, query=there).status == 200
    bodies = [m["Body"] for _ in range(8) for m in query.ReceiveMessage(QueueUrl=url)["Messages"]]
    assert bodies == ["grüß"] * 8


@pytest.mark.parametrize(
    "names",
    ["AttributeName=DelaySeconds", "AttributeName.1=DelaySeconds", "AttributeName.7=DelaySeconds&AttributeName.10=All"],
)
def test_places_in_a_list_may_be_left_out(query: QuerySqs, url: str, names: str) -> None:
    answer = query.send(f"Action=GetQueueAttributes&QueueUrl={url}&{names}")
    assert b"<Attribute><Name>DelaySeconds</Name><Value>0</Value></Attribute>" in answer.raw


def test_a_single_value_of_a_map_may_be_without_a_place(query: QuerySqs, url: str) -> None:
    form = f"Action=SetQueueAttributes&QueueUrl={url}&Attribute.Name=DelaySeconds&Attribute.Value=7"
    assert query.send(form).status == 200
    shown = query.GetQueueAttributes(QueueUrl=url, AttributeNames=["DelaySeconds"])
    assert shown["Attributes"] == {"DelaySeconds": "7"}


def test_the_members_of_a_list_come_in_the_order_of_their_numbers(query: QuerySqs, url: str) -> None:
    entries = "&".join(
        f"SendMessageBatchRequestEntry.{n}.Id=e{n}&SendMessageBatchRequestEntry.{n}.MessageBody={n}"
        for n in (10, 9, 2, 1)
    )
    answer = query.send(f"Action=SendMessageBatch&QueueUrl={url}&{entries}")
    assert re.findall("<Id>(.*?)</Id>", answer.raw.decode()) == ["e1", "e2", "e9", "e10"]


@pytest.mark.parametrize(
    ("form", "code", "text"),
    [
        ("", "MissingAction", "The request must contain the parameter Action."),
        (VERSION, "MissingAction", "The request must contain the parameter Action."),
        ("Action=Fly", "InvalidAction", "The action Fly is not valid for this endpoint."),
        (
            "Action=ListQueues&Version=2008-01-01",
            "NoSuchVersion",
            "The requested version '2008-01-01' is not valid.",
        ),
        ("Action=SendMessage", "MissingParameter", "The request must contain the parameter MessageBody."),
        (
            "Action=SetQueueAttributes&Attribute.1.Value=1",
            "MissingParameter",
            "The request must contain the parameter Attribute.Name.",
        ),
        (
            "Action=TagQueue&Tag.1.Key=1",
            "MissingParameter",
            "The request must contain the parameter Tag.Value.",
        ),
        (
            "Action=ReceiveMessage&MaxNumberOfMessages=1.0",
            "InvalidParameterValue",
            "MaxNumberOfMessages must be an integer; it is &quot;1.0&quot;",
        ),
        (
            "Action=SendMessage&MessageBody=a&MessageAttribute.1.Name=a&MessageAttribute.1.Value.BinaryValue=%25",
            "InvalidParameterValue",
            "BinaryValue must be bytes in base64; it is &quot;%&quot;",
        ),
        (
            "Action=ListQueues&Action=DeleteQueue",
            "InvalidParameterValue",
            "The parameter 'Action' is given more than once.",
        ),
        ("Action=ListQueues&QueueNamePrefix=%ff", "InvalidParameterValue", "The request is not in UTF-8."),
        (
            "Action=ListQueues" + "&a" * PARAMETERS_MAX,
            "InvalidParameterValue",
            f"The request has more than {PARAMETERS_MAX} parameters.",
        ),
        (
            "Action=ListQueues&a=" + "x" * FORM_BYTES_MAX,
            "InvalidParameterValue",
            f"The request has more than {FORM_BYTES_MAX} bytes.",
        ),
    ],
    ids=range(13),
)
def test_a_form_that_asks_for_nothing_clear_is_refused(
    query: QuerySqs, url: str, form: str, code: str, text: str
) -> None:
    assert code_and_text(query.send(form, "/000000000000/orders")) == (400, code, text)
    if "Action=" in form and "QueueUrl" not in text:
        assert query.send(form).headers["Content-Type"] == "text/xml"


def test_a_message_of_the_largest_size_fits_a_form(query: QuerySqs, url: str) -> None:
    query.SendMessage(QueueUrl=url, MessageBody="ü" * (512 * 1024))
    [message] = query.ReceiveMessage(QueueUrl=url)["Messages"]
    assert message["Body"] == "ü" * (512 * 1024)


def test_what_does_not_name_an_action_is_not_for_the_door(client: Client) -> None:
    for raw in (b"", b"{}", b"a=b", b"\xff", b"x" * (FORM_BYTES_MAX + 1)):
        assert client.ask("POST", "/", raw=raw).problem == (404, "NotFound")


def test_a_store_in_trouble_is_the_receivers_fault() -> None:
    store = TroubledStore()
    query = QuerySqs(Client(store))
    url = queue(query.client)
    store.before = unavailable("write", "write_each")
    answer = query.send(f"Action=SendMessage&QueueUrl={url}&MessageBody=a")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert b"<Type>Receiver</Type><Code>ServiceUnavailable</Code>" in answer.raw
    wiring.use(None)
