"""A client of the door for MQ over HTTP, over the routes of one instance."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.client import Answer, Client

NAMESPACE = "{http://mq.aliyuncs.com/doc/v1/}"
VERSION = "2015-06-06"

Elements = dict[str, str]


@dataclass(frozen=True)
class Refused:
    """An error as clients see it."""

    status: int
    code: str
    message: str


class Mq:
    """The calls about one topic; each must succeed. `refused` sends a request that must not."""

    def __init__(self, client: Client, topic: str = "orders") -> None:
        self.client, self.topic = client, topic

    def ask(self, method: str, raw: bytes = b"", query: Any = (), path: str | None = None, **headers: str) -> Answer:
        known = {"x-mq-version": VERSION, "host": "mq.test", "content-type": "text/xml;charset=UTF-8"}
        path = path or f"/topics/{self.topic}/messages"
        answer = self.client.ask(method, path, raw=raw, query=query, **{**known, **headers})
        assert re.fullmatch("[0-9A-F]{24}", answer.headers["x-mq-request-id"])
        assert answer.headers["x-mq-version"] == VERSION
        assert answer.headers["Content-Type"] == "text/xml;charset=utf-8"
        return answer

    def publish(self, body: str, tag: str | None = None, **properties: Any) -> Elements:
        answer = self.ask("POST", message(body, tag, **properties))
        assert answer.status == 201, answer
        return elements_of(root_of(answer, "Message"))

    def consume(self, group: str = "billing", **parameters: Any) -> list[Elements]:
        """None where there is no message."""
        answer = self.ask("GET", query={"consumer": group, "numOfMessages": 16, **parameters})
        if answer.status == 404:
            assert refusal_in(answer) == Refused(404, "MessageNotExist", "Message not exist.")
            return []
        assert answer.status == 200, answer
        return [elements_of(each) for each in root_of(answer, "Messages")]

    def delete(self, *handles: str, **parameters: str) -> list[Elements]:
        """An ack, or a decision about a half message. Returns the failed handles."""
        answer = self.ask("DELETE", receipt_handles(*handles), {"consumer": "billing", **parameters})
        if answer.status == 204:
            assert answer.raw == b""
            return []
        assert answer.status == 404, answer
        return [elements_of(each) for each in root_of(answer, "Errors")]

    def refused(self, method: str, raw: bytes = b"", query: Any = (), **more: Any) -> Refused:
        return refusal_in(self.ask(method, raw, query, **more))


def message(body: str | None, tag: str | None = None, **properties: Any) -> bytes:
    """The document of a publish."""
    listed = "".join(f"{name}:{value}|" for name, value in properties.items())
    known = {"MessageBody": body, "Properties": listed or None, "MessageTag": tag}
    inside = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in known.items() if text is not None)
    return f'<?xml version="1.0" encoding="utf-8"?><Message>{inside}</Message>'.encode()


def receipt_handles(*handles: str) -> bytes:
    inside = "".join(f"<ReceiptHandle>{escape(handle)}</ReceiptHandle>" for handle in handles)
    return f"<ReceiptHandles>{inside}</ReceiptHandles>".encode()


def root_of(answer: Answer, name: str) -> ElementTree.Element:
    root = ElementTree.fromstring(answer.raw)  # noqa: S314 - written by the door
    assert root.tag == NAMESPACE + name, answer
    return root


def elements_of(parent: ElementTree.Element) -> Elements:
    named = [(each.tag.removeprefix(NAMESPACE), each.text or "") for each in parent]
    assert len(dict(named)) == len(named)
    return dict(named)


def refusal_in(answer: Answer) -> Refused:
    assert answer.status >= 400, answer
    members = elements_of(root_of(answer, "Error"))
    assert list(members) == ["Code", "Message", "RequestId", "HostId"]
    assert all(members.values())
    assert members["RequestId"] == answer.headers["x-mq-request-id"]
    return Refused(answer.status, members["Code"], members["Message"])


def md5(text: str) -> str:
    """As clients compare it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()


def properties_of(elements: Elements) -> Elements:
    parts = [part.split(":") for part in elements.get("Properties", "").split("|") if part]
    return dict(parts)
