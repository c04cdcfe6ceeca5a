"""A client of the SQS door in the query protocol. It sends what older SDKs send, and gives back what it gets as JSON:
one test judges both encodings."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

from chalicelib.doors.sqs.errors import ERRORS
from tests.sqs.client import Json, Sqs
from tests.support.client import Answer

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
LISTS = {
    "AttributeNames": "AttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}
MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
    "Tags": ("Tag", "Key"),
    "tags": ("Tag", "Key"),
}
ANSWERED_LISTS = {
    "Message": "Messages",
    "BatchResultErrorEntry": "Failed",
    "SendMessageBatchResultEntry": "Successful",
    "DeleteMessageBatchResultEntry": "Successful",
    "ChangeMessageVisibilityBatchResultEntry": "Successful",
    "ListMessageMoveTasksResultEntry": "Results",
}
NUMBERS = (
    *("MaxNumberOfMessagesPerSecond", "ApproximateNumberOfMessagesMoved"),
    *("ApproximateNumberOfMessagesToMove", "StartedTimestamp"),
)


class QuerySqs(Sqs):
    """Each action is a method, as of `Sqs`."""

    def ask(
        self, action: str, path: str = "/", raw: bytes | None = None, headers: Json | None = None, **members: Any
    ) -> Answer:
        if raw is not None:
            return super().ask(action, path, raw, headers, **members)
        return self.translated(self.send(form(action, members), path, **(headers or {})))

    def translated(self, answer: Answer) -> Answer:
        """The answer as it would be in JSON."""
        assert answer.headers["Content-Type"] == "text/xml"
        return _as_json(answer)

    def send(self, form: str, path: str = "/", **headers: str) -> Answer:
        """Sends a form as it is."""
        known = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "host": "sqs.test"}
        return self.client.ask("POST", path, raw=form.encode(), **{**known, **headers})


# -- requests ---------------------------------------------------------------------------------------------------------


def form(action: str, members: Json, errors: str = "strict") -> str:
    """`errors`: what becomes of characters that UTF-8 does not have."""
    return urlencode([("Action", action), ("Version", "2012-11-05"), *_pairs(members, "", action)], errors=errors)


def _pairs(members: Json, prefix: str, action: str) -> Iterator[tuple[str, str]]:
    for name, value in members.items():
        if name in MAPS and isinstance(value, dict):
            each, key = MAPS[name]
            for place, (own, of) in enumerate(value.items(), 1):
                entry = {key: own, "Value": of}
                yield from _pairs(entry, f"{prefix}{each}.{place}.", action)
        elif isinstance(value, list | tuple):
            each = LISTS.get(name) or f"{action}RequestEntry"
            if not value:
                yield f"{prefix}{each}", ""
            for place, of in enumerate(value, 1):
                yield from _pairs({f"{each}.{place}": of}, prefix, action)
        elif isinstance(value, dict):
            yield from _pairs(value, f"{prefix}{name}.", action)
        elif value is not None:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


# -- answers ----------------------------------------------------------------------------------------------------------


def _as_json(answer: Answer) -> Answer:
    root = ElementTree.fromstring(answer.raw)  # noqa: S314 - of our own
    number = root.findtext(f".//{{{NAMESPACE}}}RequestId")
    assert number == answer.headers["x-amzn-RequestId"]
    if answer.status >= 400:
        return _error(answer, root[0])
    result = [each for each in root if each.tag.endswith("Result")]
    headers = {**answer.headers, "Content-Type": "application/x-amz-json-1.0"}
    members = _members(result[0], root.tag) if result else {}
    return Answer(200, headers, json.dumps(members).encode() if members else b"")


def _error(answer: Answer, error: ElementTree.Element) -> Answer:
    fault, code, message, detail = (each.text or "" for each in error)
    assert detail == ""
    shape = next(shape for shape in ERRORS.values() if shape.code == code)
    headers = {**answer.headers, "Content-Type": "application/x-amz-json-1.0", "x-amzn-query-error": f"{code};{fault}"}
    told = {"__type": shape.type, "message": message.replace(" for this wsdl version", "")}
    return Answer(answer.status, headers, json.dumps(told).encode())


def _members(element: ElementTree.Element, action: str) -> Json:
    """Repeated elements become a list or a map."""
    members: Json = {}
    for each in element:
        name = each.tag.removeprefix(f"{{{NAMESPACE}}}")
        own = [_value(part, action) for part in each]
        if name in ("Attribute", "MessageAttribute"):
            members.setdefault(f"{name}s", {})[own[0]] = own[1]
        elif name == "Tag":
            members.setdefault("Tags", {})[own[0]] = own[1]
        elif name == "QueueUrl" and re.search("List(Queues|DeadLetter)", action):
            members.setdefault("QueueUrls" if "ListQueues" in action else "queueUrls", []).append(each.text)
        elif name in ANSWERED_LISTS and len(each):
            members.setdefault(ANSWERED_LISTS[name], []).append(_members(each, action))
        else:
            members[name] = _value(each, action)
    return members


def _value(element: ElementTree.Element, action: str) -> Any:
    name = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    if len(element):
        return _members(element, action)
    text = element.text or ""
    if name == "SenderFault":
        return {"true": True, "false": False}[text]
    return int(text) if name in NUMBERS else text
