"""No request of an SQS client is a defect, whatever is in it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.api import Demand
from chalicelib.core.store.paging import token_of
from chalicelib.doors.sqs.action import Blob, Integer, Kind, List, Map, Structure
from chalicelib.doors.sqs.actions import ACTIONS
from tests.sqs.client import Sqs, refusal_in
from tests.sqs.keyed import Keyed
from tests.sqs.query_client import QuerySqs, form
from tests.store.strict import StrictStore
from tests.support.client import ALL_RIGHTS, Answer, Client
from tests.support.events import JUNK, replaced

Json = dict[str, Any]

QUEUES = ("orders", "billing")
TARGETS = [*ACTIONS, "Fly", "", "\ud800"]

numbers = (
    st.integers(0, 10) | st.sampled_from([-1, 0, 1, 10, 11, 20, 900, 43200, 43201, 2**63, 10**400]) | st.integers()
)


HANDLE = "a handle"
"""Stands for one of a message that was received just now."""

KNOWN = [
    *(HANDLE, *QUEUES, "orders.fifo", *(f"http://sqs.test/000000000000/{name}" for name in (*QUEUES, "none"))),
    *("All", "Policy", "VisibilityTimeout", "DelaySeconds", "QueueArn", "RedrivePolicy", "FifoQueue", "SenderId"),
    *("String", "Number", "Binary.x", "decant.tag", "decant:topic", "decant:filter", "AWSTraceHeader", "1", "1e5"),
    *("", ".", "-", "x" * 300, "\0", "ö", "AAE=", "{}"),
    '{"deadLetterTargetArn": "billing", "maxReceiveCount": 1}',
]
"""Names that a client could know, and wrong guesses."""


@cache
def client() -> Client:
    return Client(StrictStore())


@cache
def guarded(insider: Client) -> Client:
    """A client with a key for one topic."""
    return Keyed(insider, {**ALL_RIGHTS, "topics": QUEUES[0]})


def furnished() -> tuple[Sqs, str]:
    """A client, and a handle."""
    sqs = Sqs(client())
    sqs.ask("CreateQueue", QueueName=QUEUES[0])
    sqs.ask("CreateQueue", QueueName=QUEUES[1], tags={"decant:topic": QUEUES[0], "decant:start": "earliest"})
    sqs.ask("SendMessage", QueueUrl=QUEUES[0], MessageBody="a")
    answer = sqs.ask("ReceiveMessage", QueueUrl=QUEUES[0])
    if answer.status == 200 and "Messages" in answer.json:
        return sqs, answer.json["Messages"][0]["ReceiptHandle"]
    client.cache_clear()  # earlier requests have deleted the queue and left its topic, or delay all messages
    return furnished()


def of_kind(kind: Kind) -> st.SearchStrategy[Any]:
    """Values of the kind."""
    texts = st.sampled_from(KNOWN) | st.text(max_size=10)
    if isinstance(kind, Structure):
        right: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {}, optional={name: of_kind(own) for name, own in kind.members.items()}
        )
    elif isinstance(kind, List):
        right = st.lists(of_kind(kind.of), max_size=11)
    elif isinstance(kind, Map):
        right = st.dictionaries(texts, of_kind(kind.of), max_size=4)
    elif isinstance(kind, Integer):
        right = numbers
    else:
        right = st.just("AAE=") if isinstance(kind, Blob) else texts
    return right


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Json]:
    action = draw(st.sampled_from([*ACTIONS.values()]))
    kinds = {name: of_kind(kind) for name, kind in action.members.members.items() if name != "QueueUrl"}
    needed = {name: kinds.pop(name) for name in action.required if name in kinds}
    members = draw(st.fixed_dictionaries(needed, optional=kinds))
    request = {"QueueUrl": draw(st.just("orders") | st.sampled_from(KNOWN)), **members}
    return action.name, replaced(draw, request) if draw(st.integers(0, 3)) == 0 else request


def judged(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status >= 400 and "x-amzn-query-error" in answer.headers:
        refusal_in(answer)


def judged_xml(answer: Answer) -> None:
    assert answer.status < 500, answer
    assert answer.headers["Content-Type"] == "text/xml"
    ElementTree.fromstring(answer.raw)  # noqa: S314 - of our own


@example(("ListQueues", {"QueueNamePrefix": "a", "NextToken": token_of("orders")}), True)
@example(("SendMessage", {"QueueUrl": "orders", "MessageBody": "\ud800"}), True)
@example(("DeleteMessage", {"QueueUrl": "orders", "ReceiptHandle": "\ud800"}), True)
@example(("ReceiveMessage", {"QueueUrl": "orders", "MaxNumberOfMessages": 10**400}), True)
@given(requests(), st.booleans())
def test_no_request_to_an_action_is_a_defect(request: tuple[str, Json], has_key: bool) -> None:
    name, members = request
    sqs, handle = furnished()
    if has_key:
        sqs = Sqs(guarded(client()))
    judged(sqs.ask(name, raw=json.dumps(members).replace(HANDLE, handle).encode()))


@example(("SendMessage", {"QueueUrl": "orders", "MessageBody": "\ud800"}))
@example(("ReceiveMessage", {"QueueUrl": "orders", "MaxNumberOfMessages": 10**400}))
@given(requests())
def test_no_form_for_an_action_is_a_defect(request: tuple[str, Json]) -> None:
    name, members = request
    _, handle = furnished()
    text = form(name, members, errors="surrogatepass") if isinstance(members, dict) else f"Action={name}"
    judged_xml(QuerySqs(client()).send(text.replace(quote_plus(HANDLE), handle)))


NAMES = st.sampled_from(
    [
        *(
            "Action",
            "Version",
            "QueueUrl",
            "AttributeName",
            "Attribute",
            "Attribute.1",
            "Attribute.1.Name",
            "Tag.1.Key",
        ),
        *("Attribute.1.Value", "MessageAttribute.1.Value.DataType", "SendMessageBatchRequestEntry.1.Id", "." * 9),
        *("MessageBody", "MaxNumberOfMessages", "ReceiptHandle.1", "DeleteMessageBatchRequestEntry", "Label"),
    ]
)


@given(
    pairs=st.lists(st.tuples(NAMES | st.text(max_size=5), st.sampled_from([*ACTIONS, *KNOWN]) | st.text(max_size=5))),
    action=st.sampled_from([*ACTIONS]),
    method=st.sampled_from(["GET", "POST"]),
    raw=st.binary(max_size=40) | st.just(b"&" * 5_000) | st.just(b"QueueUrl=%ff"),
)
def test_no_form_is_a_defect(pairs: list[tuple[str, str]], action: str, method: str, raw: bytes) -> None:
    furnished()
    sent = [("Action", action), *pairs]
    judged_xml(client().ask(method, "/000000000000/orders", raw=raw, query=sent))


@given(
    target=st.sampled_from(TARGETS) | st.text(max_size=20),
    path=st.sampled_from(["/", "", "/000000000000/orders", "/000000000000/%ff", "/000000000000/\ud800"])
    | st.text(max_size=30),
    raw=st.binary(max_size=60) | JUNK.map(lambda value: json.dumps(value).encode()) | st.just(b"Action=SendMessage"),
    headers=st.dictionaries(
        st.sampled_from(["host", "authorization", "x-forwarded-proto", "x-amzn-trace-id", "content-type"]),
        st.text(st.characters(), max_size=20) | st.just("Credential=123456789012/20260101/us-east-1/sqs/aws4_request"),
    ),
    demand=st.sampled_from([Demand(), Demand(requests=True)]),
)
def test_no_raw_request_is_a_defect(
    target: str, path: str, raw: bytes, headers: dict[str, str], demand: Demand
) -> None:
    asked = Client(client().store, client().clock, demand=demand)
    judged(Sqs(asked).ask(target, path if path.startswith("/") else "/" + path, raw, headers))
