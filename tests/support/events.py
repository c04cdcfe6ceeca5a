"""One HTTP request as an event of each front of AWS."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from hypothesis import strategies as st

from chalicelib.doors.http.door import TEMPLATES

Json = dict[str, Any]
Query = list[tuple[str, str]]

STAGE = "api"


class Sent:
    """A request. `body`: bytes are what some fronts hand over in base64."""

    def __init__(
        self, method: str, path: str, body: str | bytes | None = None, query: Query | None = None, **headers: str
    ) -> None:
        self.method, self.path, self.query = method, path, query or []
        self.headers = {"Content-Type": "application/json", "Host": "example.org", **headers}
        self.body = body if isinstance(body, str | None) else _base64(body)
        self.is_base64 = isinstance(body, bytes)

    @property
    def lists(self) -> dict[str, list[str]]:
        return parse_qs(urlencode(self.query), keep_blank_values=True)


def _base64(body: bytes) -> str:
    from base64 import b64encode

    return b64encode(body).decode()


def rest(sent: Sent, base: str = "") -> Json:
    """The event of a REST API. API Gateway finds the resource itself, and does not pass on the length of the body.
    `base`: the base path of a custom domain."""
    resource, names = _resource(sent.path.rstrip("/"))
    lists = sent.lists or None
    headers = {name: value for name, value in sent.headers.items() if name != "Content-Length"}
    return {
        "resource": resource,
        "path": base + sent.path,
        "httpMethod": sent.method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": lists and {name: values[-1] for name, values in lists.items()},
        "multiValueQueryStringParameters": lists,
        "pathParameters": names or None,
        "stageVariables": None,
        "requestContext": {
            "resourcePath": resource,
            "httpMethod": sent.method,
            "path": (base or f"/{STAGE}") + sent.path,
            "stage": STAGE,
            "identity": {"sourceIp": "192.0.2.1"},
        },
        "body": sent.body,
        "isBase64Encoded": sent.is_base64,
    }


def _resource(path: str) -> tuple[str, dict[str, str]]:
    for template in TEMPLATES:
        if match := re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template), path):
            return template, match.groupdict()
    return ("/{proxy+}", {"proxy": path[1:]}) if path else ("/", {})


def http_api(sent: Sent, stage: str = "$default", domain: str = "abc.execute-api.eu-central-1.amazonaws.com") -> Json:
    """The event of an HTTP API in format 2.0, which has the stage in the path also if the request came by another
    domain."""
    path = sent.path if stage == "$default" else f"/{stage}{sent.path}"
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": urlencode(sent.query),
        "headers": {name.lower(): value for name, value in sent.headers.items()},
        "requestContext": {
            "http": {"method": sent.method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "domainName": domain,
            "stage": stage,
        },
        "isBase64Encoded": sent.is_base64,
    }
    return event if sent.body is None else {**event, "body": sent.body}


def staged_http_api(sent: Sent) -> Json:
    return http_api(sent, "prod")


def http_api_1(sent: Sent) -> Json:
    """The event of an HTTP API in format 1.0, whose paths have the stage."""
    event = {
        **rest(sent),
        "version": "1.0",
        "resource": "$default",
        "path": f"/{STAGE}{sent.path}",
        "pathParameters": None,
    }
    return {**event, "requestContext": {**event["requestContext"], "resourcePath": "$default"}}


def url(sent: Sent) -> Json:
    """The event of a function URL."""
    event = http_api(sent)
    return {**event, "requestContext": {**event["requestContext"], "domainName": "abc.lambda-url.eu-central-1.on.aws"}}


def balancer(sent: Sent) -> Json:
    """The event of a load balancer, which leaves query parameters encoded, and keeps the last of equal ones."""
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/x/y"}},
        "httpMethod": sent.method,
        "path": sent.path,
        "queryStringParameters": {quote(name): quote(value) for name, value in sent.query},
        "headers": {name.lower(): value for name, value in sent.headers.items()},
        "body": sent.body or "",
        "isBase64Encoded": sent.is_base64,
    }


def balancer_with_lists(sent: Sent) -> Json:
    """The event of a load balancer whose target group has multi-value headers on."""
    event = balancer(sent)
    del event["queryStringParameters"]
    return {
        **event,
        "multiValueQueryStringParameters": {
            quote(name): [quote(value) for value in values] for name, values in sent.lists.items()
        },
        "multiValueHeaders": {name: [value] for name, value in event.pop("headers").items()},
    }


FRONTS: dict[str, Callable[[Sent], Json]] = {
    "rest": rest,
    "http_api": http_api,
    "http_api_1": http_api_1,
    "staged_http_api": staged_http_api,
    "url": url,
    "balancer": balancer,
    "balancer_with_lists": balancer_with_lists,
}

SQS: Json = {
    "Records": [
        {
            "messageId": "059f36b4-87a3-44ab-83d2-661975830a7d",
            "body": "a secret",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-central-1:1:orders",
        }
    ]
}
EVENT_BRIDGE: Json = {"version": "0", "id": "6a7e", "detail-type": "order", "source": "shop", "detail": {}}

JUNK = st.sampled_from([None, 7, -1.5, True, "x", "/", "\ud800", [], ["x"], [None], {}, {"x": "y"}, {"x": None}])


def replaced(draw: st.DrawFn, value: Any) -> Any:
    """The value with some junk somewhere inside."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: replaced(draw, value[name])}
    return draw(JUNK)
