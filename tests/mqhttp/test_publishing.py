"""Messages that clients of MQ over HTTP publish."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mqhttp.client import Mq, Refused, md5, message
from tests.support.client import Client, Group


def test_a_message_arrives_with_all_that_its_publisher_said(mq: Mq, group: Group) -> None:
    sent = mq.publish("grüß", "paid", a="b", c="d")
    taken = group.take_one()
    assert sent == {
        "MessageId": taken["message_id"],
        "MessageBodyMD5": md5("grüß"),
    }
    assert (taken["body"], taken["tag"], taken["key"]) == ("grüß", "paid", None)
    assert taken["properties"] == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("properties", "key", "kept"),
    [
        ({"KEYS": "k"}, "k", {"KEYS": "k"}),
        ({"__SHARDINGKEY": "s"}, "s", {}),
        ({"KEYS": "k", "__SHARDINGKEY": "s"}, "s", {"KEYS": "k"}),
        ({"KEYS": "k", "__SHARDINGKEY": "k"}, "k", {"KEYS": "k", "__SHARDINGKEY": "k"}),
        ({"KEYS": "", "__SHARDINGKEY": "", "a": ""}, None, {"KEYS": "", "a": ""}),
    ],
)
def test_keys_choose_the_queue(mq: Mq, group: Group, properties: Any, key: str | None, kept: Any) -> None:
    mq.publish("a", **properties)
    taken = group.take_one()
    assert (taken["key"], taken["properties"]) == (key, kept)


def test_a_message_waits_until_its_time(mq: Mq, group: Group, client: Client) -> None:
    due_ms = client.clock.now() + 60_000
    sent = mq.publish("later", __STARTDELIVERTIME=due_ms)
    assert group.pop()["messages"] == []
    client.clock.ms = due_ms
    assert group.take_one()["message_id"] == sent["MessageId"]
    mq.publish("overdue", __STARTDELIVERTIME=1)
    assert group.take_one()["body"] == "overdue"


def test_messages_carry_the_trace_of_their_request(mq: Mq, group: Group) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert mq.ask("POST", message("a"), traceparent=trace).status == 201
    assert group.take_one()["properties"] == {"traceparent": trace}


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("a\r\nb\rc", "a\r\nb\rc"),
        (" \n ", " \n "),
        ("<![CDATA[", "<![CDATA["),
        ("&lt;", "&lt;"),
        ("</MessageBody>", "</MessageBody>"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_a_body_stays_as_it_is(mq: Mq, group: Group, body: str, read: str) -> None:
    mq.publish(body)
    assert group.take_one()["body"] == read


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"<Message><MessageTag>t</MessageTag><MessageBody>a</MessageBody></Message>", "a"),
        (b"<Message>\r\n  <MessageBody>a</MessageBody>\r\n</Message>\n", "a"),
        (b'<m:Message xmlns:m="http://x"><m:MessageBody>a</m:MessageBody></m:Message>', "a"),
        (b"<Message><MessageBody>a<![CDATA[<b>]]>c</MessageBody></Message>", "a<b>c"),
        (b"<Message><MessageBody>&#97;<!-- b -->c</MessageBody></Message>", "ac"),
        (b"<Message><MessageBody>a</MessageBody><MessageTag/><Properties></Properties></Message>", "a"),
        (b"<Message><MessageBody><![CDATA[a]]]]><![CDATA[>b]]></MessageBody></Message>", "a]]>b"),
        (b"<Message><MessageBody><![CDATA[a\r\n<&]]></MessageBody></Message>", "a\r\n<&"),
    ],
)
def test_documents_are_read_as_xml(mq: Mq, group: Group, raw: bytes, body: str) -> None:
    assert mq.ask("POST", raw).status == 201
    assert group.take_one()["body"] == body


@pytest.mark.parametrize("body", ["a]]>b", "]]>", "a]]]]><![CDATA[>b", "]]></MessageBody><MessageTag>x", "a\r\n]]>&<"])
def test_a_section_that_node_wrote_ends_at_its_last_end(mq: Mq, group: Group, body: str) -> None:
    inside = f"<MessageBody><![CDATA[{body}]]></MessageBody><MessageTag><![CDATA[t]]></MessageTag>"
    raw = f'<?xml version="1.0" encoding="UTF-8"?><Message xmlns="http://x">{inside}</Message>'.encode()
    assert mq.ask("POST", raw, **{"user-agent": "mq-nodejs-sdk/1.0.4"}).status == 201
    taken = group.take_one()
    assert (taken["body"], taken["tag"]) == (body, "t")


def test_a_section_with_its_end_inside_is_read_from_any_client(mq: Mq, group: Group) -> None:
    assert mq.ask("POST", b"<Message><MessageBody><![CDATA[a]]>b]]></MessageBody></Message>").status == 201
    assert group.take_one()["body"] == "a]]>b"


INVALID = "InvalidArgument"


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (b"", "MalformedXML", "not XML"),
        (b"{}", "MalformedXML", "not XML"),
        (b"<Message>", "MalformedXML", "not XML"),
        (b"<Message><MessageBody>\x01</MessageBody></Message>", "MalformedXML", "not XML"),
        (b"<Message><MessageBody>\xff</MessageBody></Message>", "MalformedXML", "not XML"),
        (b"<Message><MessageBody>&a;</MessageBody></Message>", "MalformedXML", "not XML"),
        (b'<?xml version="1.0" encoding="latin-1"?><Message>\xff</Message>', "MalformedXML", "not XML"),
        (b"<Other/>", "MalformedXML", "must be 'Message'; it is 'Other'"),
        (b"<Message>a</Message>", "MalformedXML", "it has text"),
        (b"<Message><MessageBody><b>a</b></MessageBody></Message>", "MalformedXML", "it has 'b'"),
        (b"<!DOCTYPE Message><Message><MessageBody>a</MessageBody></Message>", "MalformedXML", "document type"),
        (b"<Message/>", INVALID, "'MessageBody' must have at least 1 character"),
        (b"<Message><MessageBody/></Message>", INVALID, "'MessageBody' must have at least 1 character"),
        (b"<Message><Body>a</Body></Message>", INVALID, "'Body' is not known here"),
        (b"<Message><MessageBody>a</MessageBody><MessageBody>b</MessageBody></Message>", INVALID, "once, not 2 times"),
        (b"<Message>" + b"<a/>" * 17 + b"</Message>", INVALID, "at most 16 elements"),
        (message("a", "b|c"), INVALID, "'Message.tag' must be"),
        (message("a", "x" * 129), INVALID, "'Message.tag' must be"),
        (message("a", a="b|c"), INVALID, 'one is "c"'),
        (b"<Message><MessageBody>a</MessageBody><Properties>:b</Properties></Message>", INVALID, 'one is ":b"'),
        (b"<Message><MessageBody>a</MessageBody><Properties>a:b|a:c</Properties></Message>", INVALID, '"a" twice'),
        (message("a", __STARTDELIVERTIME="soon"), INVALID, "'__STARTDELIVERTIME' must be an integer; it is \"soon\""),
        (message("a", __STARTDELIVERTIME="9" * 15), INVALID, "'Message.deliver_at_ms' must be"),
        (message("a", a="b" * 16_384), INVALID, "at most 16384 fit"),
        (message("a", KEYS="k" * 257), INVALID, "'Message.key' must be"),
    ],
)
def test_what_is_wrong_with_a_message_is_named(mq: Mq, group: Group, raw: bytes, code: str, text: str) -> None:
    refused = mq.refused("POST", raw)
    assert (refused.status, refused.code) == (400, code)
    assert text in refused.message
    assert group.pop()["messages"] == []


def test_no_entity_is_expanded(mq: Mq) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))
    raw = f'<!DOCTYPE Message [<!ENTITY l0 "ha">{laughs}]><Message><MessageBody>&l8;</MessageBody></Message>'
    assert mq.refused("POST", raw.encode()).code == "MalformedXML"


def test_a_body_over_the_limit_is_refused(mq: Mq, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mq.refused("POST", message("a" * (4 * 1024 * 1024 + 1))).code == INVALID
    monkeypatch.setattr("chalicelib.doors.mqhttp.xml_wire.REQUEST_BYTES_MAX", 100)
    raw = b"<Message" + b" " * 100 + b"/>"
    assert mq.refused("POST", raw) == Refused(400, INVALID, "the request has more than 100 bytes")


def test_only_a_body_with_its_digest_is_taken(mq: Mq, group: Group) -> None:
    """`Content-MD5` as clients write it: base64 of the digest in hex."""
    raw = b"<Message><MessageBody>a</MessageBody></Message>"
    digest = "ODgxNDlkMTc5MTExZmYyMDIzMGRmYmEwZjc0NWUwMTg="
    refused = mq.refused("POST", raw + b" ", **{"content-md5": digest})
    assert (refused.status, refused.code) == (400, "InvalidDigest")
    assert mq.ask("POST", raw, **{"content-md5": digest}).status == 201
    assert group.take_one()["body"] == "a"


def test_a_full_queue_asks_to_come_again(client: Client, mq: Mq) -> None:
    client.put("/topics/orders", max_depth=1)
    mq.publish("a")
    client.clock.ms += 2_000
    answer = mq.ask("POST", message("b"))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert b"<Code>InternalServerError</Code>" in answer.raw
