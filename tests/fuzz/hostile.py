"""Requests of up to 100 KB that are to cost as much time as they can, each with a name."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import cycle

HEAD_BYTES = 60_000
BODY_BYTES = 99_000

Named = Iterator[tuple[str, bytes]]

_UNITS = """
    a 0 9 , ; = & % %41 %ff + . / - _ * *a ? | || : " ' \\ < > ( ) [ ] { } $ # ~ é \x7f a= a=b, k="v", "a" &a &a=b
    Credential= Signature= SignedHeaders= Root=1- Root=1-00000000-; return=minimal, 1. 1e a: a:b| &amp; &#65; ]]>
    <a> <!----> <![CDATA[ http:// ../ AND( not( (a dct_ \U0001f600
"""
UNITS = tuple(_UNITS.split())
SPACES = (" ", "\t", "a ", " ,", ", ", "; ", " =")

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
MQ = {"x-mq-version": "2015-06-06"}
SEND = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "AmazonSQS.SendMessage"}

MESSAGES, GROUP = "/topics/orders/messages", "/topics/orders/groups/billing"
QUEUE = "/000000000000/q"
DOORS: Mapping[str, tuple[str, str, Mapping[str, str], bytes]] = {
    "http": ("POST", MESSAGES, JSON, b'{"messages":[{"body":"a"}]}'),
    "sqs": ("POST", "/", SEND, b'{"QueueUrl":"http://localhost/000000000000/q","MessageBody":"a"}'),
    "form": ("POST", QUEUE, FORM, b"Action=SendMessage&MessageBody=a"),
    "mq": ("POST", MESSAGES, MQ, b"<Message><MessageBody>a</MessageBody></Message>"),
}
_HEADERS = """
    authorization baggage connection content-length content-md5 content-type cookie date expect host prefer traceparent
    tracestate transfer-encoding user-agent x-amz-content-sha256 x-amz-date x-amz-target x-amzn-trace-id
    x-forwarded-proto x-mq-version x-other
"""


def request(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    given = {"host": "localhost", "content-length": str(len(body)), **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


def plain(size: int) -> bytes:
    """A produce of messages of one kilobyte each."""
    messages = [{"body": "a" * 1_000}] * max(1, size // 1_024)
    return request("POST", MESSAGES, JSON, json.dumps({"messages": messages}).encode())


def repeated(unit: str, size: int) -> str:
    """So many bytes of it."""
    return (unit * (size // len(unit) + 1))[: size * len(unit) // len(unit.encode())]


def texts(size: int) -> Iterator[tuple[str, str]]:
    """Each of one unit, with an end that does not fit: regular expressions then try all else."""
    for unit, end in zip((*UNITS, *SPACES), cycle(("!", "$x")), strict=False):
        yield f"{unit!r} {end!r}", repeated(unit, size) + end


def listed(form: str, size: int = BODY_BYTES, most: int = 100_000, joined: str = ",") -> str:
    """The form with the numbers from 1 in place of `#`, as often as there is room."""
    longest = len(form) + len(joined) + form.count("#") * (len(str(size // len(form))) - 1)
    return joined.join(form.replace("#", str(number)) for number in range(1, min(size // longest, most) + 1))


# -- heads ------------------------------------------------------------------------------------------------------------


def heads() -> Named:
    """Each text in each place that a head has; in other doors than HTTP's, in some."""
    for name, (method, target, headers, body) in DOORS.items():
        for header in _HEADERS.split():
            for unit, text in (*texts(HEAD_BYTES),) if name == "http" else some(f"{name} {header}"):
                yield f"{name}, header {header}: {unit}", request(method, target, {**headers, header: text}, body)
        for unit, text in texts(HEAD_BYTES):
            tight = "".join(text.split())
            for place, there in {"query": f"{target}?{tight}", "path": f"/topics/{tight}/messages"}.items():
                yield f"{name}, {place}: {unit}", request(method, there, headers, body)
                short = there[:10_000]
                yield f"{name}, short {place}: {unit}", request(method, short, headers, body)
    yield "many headers", request("GET", "/health", {f"a{number}": "b" * 600 for number in range(90)})
    yield "one header often", b"GET /health HTTP/1.1\r\n" + b"a: %s\r\n" % (b"b" * 600) * 90 + b"\r\n"
    yield "line of spaces", b"GET " + b" " * HEAD_BYTES + b"/health HTTP/1.1x\r\n\r\n"
    yield "lines of nothing", b"\r\n" * (HEAD_BYTES // 2)


def some(seed: str) -> list[tuple[str, str]]:
    return random.Random(seed).sample([*texts(HEAD_BYTES)], 8)


# -- signatures -------------------------------------------------------------------------------------------------------


def signatures(key_id: str, stamp: str, date: str) -> Named:
    """With a key that there is, or with one that there is not. `stamp`, `date`: now, as SQS and MQ spell it."""
    scope = f"{key_id}/{stamp[:8]}/eu-central-1/sqs/aws4_request"
    names, proof = "host;x-amz-date;x-amz-target", "0" * 64
    forms = {
        "credential": ("{}", names, proof),
        "key": (scope.replace(key_id, "{}"), names, proof),
        "region": (scope.replace("eu-central-1", "{}"), names, proof),
        "names": (scope, "{}", proof),
        "more names": (scope, names + ";{}", proof),
        "signature": (scope, names, "{}"),
    }
    sent = {**SEND, "x-amz-date": stamp, "date": date}
    for unit, text in texts(HEAD_BYTES):
        for place, (credential, signed, signature) in forms.items():
            form = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
            yield f"{place}: {unit}", request("POST", "/", {**sent, "authorization": form.replace("{}", text)})
        for form in ("AWS4-HMAC-SHA256 {}", "Bearer {}", "MQ {}:a", f"MQ {key_id}:{{}}"):
            authorization = {"authorization": form.replace("{}", text)}
            yield f"{form}: {unit}", request("POST", "/", {**sent, **authorization})
            yield f"MQ, {form}: {unit}", request("POST", MESSAGES, {**sent, **MQ, **authorization})
        known = {"authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=a;{names}, Signature={proof}"}
        yield f"value: {unit}", request("POST", "/", {**sent, **known, "a": text})
        query = f"{QUEUE}?{repeated(''.join(text.split()) or 'a', 10_000)}"
        yield f"query: {unit}", request("GET", query, {**sent, **known, "a": "b"})
        yield (
            f"x-mq-a: {unit}",
            request("GET", MESSAGES, {**sent, **MQ, "authorization": f"MQ {key_id}:a", "x-mq-a": text}),
        )
    often = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}{';a' * 15_000}, Signature={proof}"
    yield "a header 15,000 times", request("POST", "/", {**sent, "authorization": often, "a": "b" * 30_000})
