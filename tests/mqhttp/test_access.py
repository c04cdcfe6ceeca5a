"""Access control over MQ: every call with every right, signatures, and refusals that reveal nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

import pytest

import app
from chalicelib import wiring
from chalicelib.api import Api, Demand
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.mqhttp.calls import CALLS
from chalicelib.doors.mqhttp.signatures import SKEW_MS_MAX
from tests.mqhttp.client import Mq, message, receipt_handles, refusal_in
from tests.mqhttp.keyed import Keyed
from tests.support.client import ALL_RIGHTS, Client, Json
from tests.support.events import FRONTS, Sent
from tests.support.rights import rights_around

PATH = "/topics/orders/messages"


@pytest.fixture
def insider() -> Iterator[Client]:
    """A client that needs no key, of a table with the topic `orders`, which has the group `billing`."""
    client = Client()
    client.topic("orders").group("billing")
    yield client
    wiring.use(None)


# -- calls x rights ---------------------------------------------------------------------------------------------------

REQUESTS: dict[str, tuple[str, bytes, Json]] = {
    "mq_publish": ("POST", message("a"), {}),
    "mq_consume": ("GET", b"", {"consumer": "billing"}),
    "mq_ack": ("DELETE", receipt_handles("a"), {"consumer": "billing"}),
    "mq_check": ("GET", b"", {"consumer": "billing", "trans": "pop"}),
    "mq_commit": ("DELETE", receipt_handles("a"), {"consumer": "billing", "trans": "commit"}),
    "mq_rollback": ("DELETE", receipt_handles("a"), {"consumer": "billing", "trans": "rollback"}),
}
OPERATIONS = {operation.name: operation for operation in CALLS.operations}
CONSUMES = {"mq_consume", "mq_ack"}

RIGHTS = rights_around("billing")


def is_allowed(call: str, rights: str) -> bool:
    """Restates the rules of the page on access."""
    verb = "consume" if call in CONSUMES else "produce"
    if call == "mq_check" and rights in ("only produce", "all but consume"):
        return False  # it answers bodies
    if rights.startswith("only "):
        return rights == f"only {verb}"
    if rights.startswith("all but "):
        return rights != f"all but {verb}"
    return {
        "all": True,
        "in its topic": True,
        "in its group": True,
        "elsewhere": False,
        "in another group": call not in CONSUMES,
        "denied in its topic": False,
        "denied in its group": False,
        "denied elsewhere": True,
    }[rights]


def test_every_call_is_tried() -> None:
    assert REQUESTS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("rights", RIGHTS)
def test_a_call_needs_its_right_in_its_place(insider: Client, rights: str) -> None:
    mq = Mq(Keyed(insider, *RIGHTS[rights]))
    before = repr(insider.store._items)
    refused = {call for call in REQUESTS if not is_allowed(call, rights)}
    for call in refused:
        assert refusal_in(mq.ask(*REQUESTS[call])).code == "AccessDenied", call
    assert repr(insider.store._items) == before, "a refused call changes nothing"
    for call in REQUESTS.keys() - refused:
        assert mq.ask(*REQUESTS[call]).status != 403, call


@pytest.mark.parametrize("call", REQUESTS)
def test_what_one_may_not_touch_is_denied_whether_it_is_there_or_not(insider: Client, call: str) -> None:
    insider.topic("secret")
    keyed = Keyed(insider, {**ALL_RIGHTS, "topics": "refunds"})
    refusals = {
        refused.message.replace(topic, "?")
        for topic in ("orders", "secret", "absent")
        for refused in [Mq(keyed, topic).refused(*REQUESTS[call])]
    }
    assert len(refusals) == 1
    method, _, query = REQUESTS[call]
    assert Mq(keyed).refused(method, b"junk", {**query, "junk": "x"}).code == "AccessDenied"


# -- signatures -------------------------------------------------------------------------------------------------------


def said(mq: Mq, **headers: str) -> tuple[int, str | None]:
    """Status and code of a publish."""
    answer = mq.ask("POST", message("a"), {"ns": "any"}, **headers)
    return answer.status, None if answer.status == 201 else refusal_in(answer).code


LET_IN = (201, None)


def test_whoever_signs_publishes_consumes_and_acks(insider: Client) -> None:
    mq = Mq(Keyed(insider))
    sent = mq.publish("grüß", "paid")
    [taken] = mq.consume(tag="paid||due")
    assert (taken["MessageId"], taken["MessageBody"]) == (sent["MessageId"], "grüß")
    assert mq.delete(taken["ReceiptHandle"]) == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"authorization": ""}, "InvalidAuthorizationHeader"),
        ({"authorization": "MQ a"}, "InvalidAuthorizationHeader"),
        ({"authorization": "Bearer a:b"}, "InvalidAuthorizationHeader"),
        ({"authorization": "MQ a:b", "date": ""}, "InvalidDateHeader"),
        ({"date": "yesterday"}, "InvalidDateHeader"),
        ({"date": "Thu, 01 Jan 1970 00:00:00 UTC"}, "InvalidDateHeader"),
    ],
)
def test_what_is_no_signature_is_told(insider: Client, headers: dict[str, str], code: str) -> None:
    assert said(Mq(Keyed(insider)), **headers) == (400, code)


def test_a_request_without_a_signature_learns_nothing(insider: Client) -> None:
    client = Client(insider.store, insider.clock, demand=Demand(requests=True))
    for method, raw, query in (*REQUESTS.values(), ("GET", b"", {"x": "y"}), ("PUT", b"", {})):
        assert Mq(client).refused(method, raw, query).code == "MissingAuthorizationHeader"
    assert said(Mq(client), authorization="MQ a:b") == (400, "MissingDateHeader")


def test_a_request_is_good_for_fifteen_minutes(insider: Client) -> None:
    keyed = Keyed(insider)
    for keyed.lag_ms, expected in (
        (SKEW_MS_MAX, LET_IN),
        (-SKEW_MS_MAX, LET_IN),
        (SKEW_MS_MAX + 1_000, (408, "TimeExpired")),
        (-SKEW_MS_MAX - 1_000, (408, "TimeExpired")),
    ):
        assert said(Mq(keyed)) == expected


@pytest.mark.parametrize(
    "altered",
    [
        {"content-type": "text/plain"},
        {"x-mq-version": "2015-06-07"},
        {"x-mq-more": "x"},
        {
            "content-md5": base64.b64encode(
                hashlib.md5(message("b"), usedforsecurity=False).hexdigest().encode()
            ).decode()
        },
        {"date": "Thu, 01 Jan 2026 00:00:01 GMT"},
        {"method": "DELETE"},
        {"path": "/topics/refunds/messages"},
        {"query": {"ns": "other"}},
    ],
)
def test_nothing_that_is_signed_can_be_altered(insider: Client, altered: Json) -> None:
    keyed = Keyed(insider)
    headers = {"content-type": "text/xml;charset=UTF-8", "x-mq-version": "2015-06-06"}
    sent: Json = {"method": "POST", "path": PATH, "query": {"ns": "any"}, **headers}
    signature = keyed.signed("POST", PATH, sent["query"], headers)
    sent = {**sent, **signature, **altered}
    method, path, query = (sent.pop(part) for part in ("method", "path", "query"))
    answer = Client.ask(keyed, method, path, raw=message("b"), query=query, **sent)
    assert refusal_in(answer).code == "SignatureDoesNotMatch"


def test_the_wrong_secret_and_a_key_that_is_none_are_told_apart(insider: Client) -> None:
    keyed = Keyed(insider)
    mq, pair = Mq(keyed), keyed.pair
    keyed.pair = {**pair, "secret_access_key": "a" * 40}
    assert said(mq) == (403, "SignatureDoesNotMatch")
    assert mq.refused("GET", query={"trans": "none"}).code == "SignatureDoesNotMatch"
    for key_id in ("AKIDEXAMPLE", "DCTK" + 16 * "A"):
        keyed.pair = {**pair, "access_key_id": key_id}
        assert said(mq) == (403, "InvalidAccessKeyId")


def test_a_query_is_spelled_for_a_known_key_and_a_few_parameters(insider: Client) -> None:
    """A front that decodes the query may bring thousands."""
    keyed = Keyed(insider)
    wiring.use(keyed.api)
    query = [("numOfMessages", str(number)) for number in range(17)]
    signature = keyed.signed("GET", PATH, query, {"content-type": "", "x-mq-version": "2015-06-06"})

    def code(authorization: str) -> str:
        named = {"X-Mq-Version": "2015-06-06", "Date": signature["date"], "Authorization": authorization}
        response = app.app(FRONTS["rest"](Sent("GET", PATH, query=query, **named)), None)
        [found] = re.findall("<Code>(.*)</Code>", response["body"])
        return str(found)

    assert code(signature["authorization"]) == "InvalidQueryString"
    assert code(f"MQ AKIDEXAMPLE:{'a' * 28}") == "InvalidAccessKeyId"


def test_a_key_ends_with_its_token(insider: Client) -> None:
    keyed = Keyed(insider)
    assert said(Mq(keyed)) == LET_IN
    insider.api.delete_token(keyed.pair["token_id"])
    insider.clock.ms += METADATA_AGE_MS_MAX + 1
    assert said(Mq(keyed)) == (403, "InvalidAccessKeyId")


@pytest.mark.parametrize(("demand", "has_keys"), [(Demand(iam=True), True), (Demand(requests=True), False)])
def test_a_stage_without_access_keys_refuses_all(insider: Client, demand: Demand, has_keys: bool) -> None:
    keyed = Keyed(insider)
    keyed.api = Api(keyed.api.service, demand)
    keyed.api.service.access.has_access_keys = has_keys
    assert said(Mq(keyed)) == (403, "AccessDenied")


@pytest.mark.parametrize("front", FRONTS)
def test_a_signature_comes_through(insider: Client, front: str) -> None:
    """Though some fronts decode the query, lose its order, or add a type to a request without a body."""
    keyed = Keyed(insider)
    wiring.use(keyed.api)
    query = [("numOfMessages", "16"), ("consumer", "billing"), ("ns", "MQ_INST 1"), ("tag", "paid||*")]
    headers = {"content-type": "", "x-mq-version": "2015-06-06"}
    signature = keyed.signed("GET", PATH, query, headers)
    named = {"X-Mq-Version": "2015-06-06", "Date": signature["date"], "Authorization": signature["authorization"]}
    response = app.app(FRONTS[front](Sent("GET", PATH, query=query, **named)), None)
    assert (response["statusCode"], "MessageNotExist" in response["body"]) == (404, True)
