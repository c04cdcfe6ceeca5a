"""No request of a client of MQ over HTTP is a defect, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.api import Demand
from tests.mqhttp.client import Mq, elements_of, refusal_in, root_of
from tests.mqhttp.keyed import Keyed
from tests.support.client import ALL_RIGHTS, Answer, Client

HANDLE = "a handle"
"""Stands for one of a message that was taken just now."""
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
"""When the clock of a test starts."""

TEXTS = st.sampled_from([HANDLE, "a", "KEYS:k|a:b|", "__TransCheckT:10", "__STARTDELIVERTIME:9", "|", ":", "é", ""])
texts = TEXTS | st.text(max_size=20)
names = st.sampled_from(["Message", "ReceiptHandles", "MessageBody", "MessageTag", "Properties", "ReceiptHandle", "x"])
elements = st.builds(lambda name, text: f"<{name}>{escape(text)}</{name}>", names, texts)
documents = st.builds(
    lambda root, inside, end: f"<{root}>{''.join(inside)}</{end or root}>",
    names,
    st.lists(elements, max_size=5),
    st.none() | names,
)
pieces = st.sampled_from(
    ["<Message>", "</Message>", "<MessageBody>", "</MessageBody>", "<![CDATA[", "]]>", "<!DOCTYPE a>", "&a;", "&#0;"]
)
soup = st.lists(pieces | st.text(max_size=3), max_size=12).map("".join)
bodies = st.one_of(documents, documents, soup).map(lambda text: text.encode(errors="surrogatepass"))
queries = st.dictionaries(
    st.sampled_from(["consumer", "ns", "numOfMessages", "waitseconds", "tag", "trans", "x", ""]),
    st.sampled_from(["billing", "order", "pop", "commit", "rollback", "1", "16", "a||b", "*", "", "-1", "9" * 30])
    | st.text(st.characters(codec="utf-8"), max_size=10),
    max_size=5,
)
headers = st.dictionaries(
    st.sampled_from(["host", "content-md5", "user-agent", "traceparent", "x-forwarded-proto", "authorization", "date"]),
    st.text(max_size=20) | st.sampled_from(["mq-nodejs-sdk/1.0.4", "MQ id:c2ln", DATE]),
    max_size=3,
)
paths = st.sampled_from(["/topics/orders/messages"] * 5 + ["/topics/none/messages", "/topics/%ff/messages", "/", ""])


@cache
def client() -> Client:
    client = Client()
    client.topic("orders").group("billing", invisible_ms=0)
    return client


@cache
def guarded() -> Client:
    """It demands signatures, and gets what is none."""
    return Client(client().store, client().clock, demand=Demand(requests=True))


@cache
def keyed() -> Client:
    return Keyed(client(), {**ALL_RIGHTS, "topics": "orders"})


def handle() -> str:
    mq = Mq(client())
    mq.publish("a", "a", a="b")
    return (mq.consume() or [{"ReceiptHandle": "a"}])[0]["ReceiptHandle"]


def judged(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status == 404 and b"<Errors" in answer.raw:
        assert all(elements_of(each) for each in root_of(answer, "Errors"))
    elif answer.status >= 400:
        refusal_in(answer)
    elif answer.status != 204:
        assert list(root_of(answer, "Message" if answer.status == 201 else "Messages"))


@example(
    "POST", "/topics/orders/messages", b"<Message><MessageBody>\xed\xa0\x80</MessageBody></Message>", {}, {}, client
)
@example("GET", "/topics/orders/messages", b"", {"consumer": "billing", "tag": "\uffff"}, {}, client)
@given(
    method=st.sampled_from(["POST", "GET", "DELETE"]) | st.sampled_from(["PUT", "HEAD", "post", "\ud800"]),
    path=paths | st.text(max_size=20),
    raw=bodies | st.binary(max_size=40) | st.just(b""),
    query=queries,
    sent=headers,
    asked=st.sampled_from([client, guarded, keyed]),
)
def test_no_request_is_a_defect(
    method: str, path: str, raw: bytes, query: Any, sent: dict[str, str], asked: Callable[[], Client]
) -> None:
    raw = raw.replace(HANDLE.encode(), handle().encode())
    judged(Mq(asked()).ask(method, raw, query, path=path or "/", **sent))
