"""The events of Lambda that are HTTP requests. Each front has a form of its own; the request in them is the same.

| front | known by | path | query | headers of the answer |
| --- | --- | --- | --- | --- |
| REST API | `requestContext.httpMethod` | with the base path of a custom domain | decoded | `headers` |
| HTTP API 1.0 | the same, and `version` | with the stage, unless that is `$default` | decoded | `headers` |
| HTTP API 2.0, function URL | `version` | the same | as sent | `headers` |
| load balancer | `requestContext.elb` | as sent | each part still encoded | in lists where the request has lists |
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from chalicelib.doors.http.door import TEMPLATES
from chalicelib.doors.http.exchange import Request, Response

Json = dict[str, Any]
Pairs = list[tuple[str, str]]

_UNKNOWN = ("/", "/{proxy+}")
"""The resources of a REST API for paths that are no operation's."""


class Front(NamedTuple):
    """How to read its events, and the header fields of its answers. `whole_path`: as the client sent it. `raw_query`:
    likewise; None if the front does not tell it."""

    method: Callable[[Json], str]
    path: Callable[[Json], str]
    whole_path: Callable[[Json], object]
    query: Callable[[Json], Pairs]
    headers: Callable[[Json, dict[str, str]], Json]
    raw_query: Callable[[Json], str | None] = lambda _: None


class Received(NamedTuple):
    """An event that is an HTTP request."""

    request: Request
    front: Front
    event: Json

    def answered(self, response: Response) -> Json:
        """The response as the front takes it. That to `HEAD` has no body: not every front would leave it out."""
        if self.request.method == "HEAD":
            response = response._replace(text="")
        return _answered(response, self.front.headers(self.event, response.headers))


def received(event: Any) -> Received | None:
    """None if it is no HTTP request, or not as its front would send it."""
    try:
        front = _front_of(event)
        path = front.path(event)
        content = (front.query(event), _headers(event), _body(event))
        prefix = _prefix(front.whole_path(event), path)
        request = Request(front.method(event), path, *content, prefix, front.raw_query(event), _principal(event))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return Received(request, front, event)


def answered(response: Response) -> Json:
    """The response to an event that is no HTTP request, in the form that most fronts take."""
    return _answered(response, {"headers": response.headers})


def _answered(response: Response, headers: Json) -> Json:
    return {"statusCode": response.status, **headers, "body": response.text, "isBase64Encoded": False}


def _front_of(event: Json) -> Front:
    if event.get("version") == "2.0":
        return _HTTP_API
    return _BALANCER if "elb" in event["requestContext"] else _REST_API


# -- parts of an event ------------------------------------------------------------------------------------------------


def _rest_path(event: Json) -> str:
    """The part before the resource is the base path of a custom domain."""
    about = event["requestContext"]
    path = _text(event.get("path") or about["path"])
    if event.get("version") == "1.0":
        return _without_stage(path, event)
    template = about.get("resourcePath")
    if template in TEMPLATES or template in _UNKNOWN:
        named = template.replace("+}", "}").rstrip("/").format_map(event.get("pathParameters") or {})
        bare: str = named + path[len(path.rstrip("/")) :]
        return bare if path.endswith(bare) else path
    return path


def _called_path(event: Json) -> str:
    """The stage of an HTTP API stands in the path of each event, and is no part of a custom domain."""
    path = _text(event["rawPath"])
    is_custom = ".execute-api." not in event["requestContext"].get("domainName", ".execute-api.")
    return _without_stage(path, event) if is_custom else path


def _prefix(whole: object, path: str) -> str:
    """The part of the whole path before this one."""
    if not isinstance(whole, str):
        return ""
    if path in ("", "/"):
        return whole.rstrip("/")
    return whole.removesuffix(path) if whole.endswith(path) else ""


def _without_stage(path: str, event: Json) -> str:
    stage = event["requestContext"].get("stage", "$default")
    return path[len(stage) + 1 :] if path.startswith(f"/{stage}/") else path


def _pairs(event: Json) -> Pairs:
    singles = event.get("queryStringParameters") or {}
    lists = event.get("multiValueQueryStringParameters") or {name: [value] for name, value in singles.items()}
    return [(_text(name), _text(value)) for name, values in lists.items() for value in values]


def _raw_query(event: Json) -> str:
    return _text(event.get("rawQueryString", ""))


def _headers(event: Json) -> Mapping[str, str]:
    """By their names in lower case. The values of one that was sent several times are one list, as HTTP has it."""
    headers = {_text(name).lower(): _text(value) for name, value in (event.get("headers") or {}).items()}
    lists = event.get("multiValueHeaders") or {}
    return {**headers, **{_text(name).lower(): ", ".join(values) for name, values in lists.items()}}


def _body(event: Json) -> bytes:
    body = event.get("body") or b""
    if event.get("isBase64Encoded"):
        return b64decode(body, validate=True)
    return body if isinstance(body, bytes) else _text(body).encode()


def _principal(event: Json) -> str:
    """The ARN of whom IAM has let in; empty where the front asked nobody. A client cannot set it: AWS writes the
    context."""
    context = event["requestContext"]
    iam = (context.get("authorizer") or {}).get("iam") or context.get("identity") or {}
    return _text(iam.get("userArn") or "")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# -- fronts -----------------------------------------------------------------------------------------------------------

_REST_API = Front(
    method=lambda event: _text(event["requestContext"]["httpMethod"]),
    path=_rest_path,
    whole_path=lambda event: (event if event.get("version") == "1.0" else event["requestContext"]).get("path"),
    query=_pairs,
    headers=lambda _, headers: {"headers": headers, "multiValueHeaders": {}},  # Chalice's local server wants both
)
_HTTP_API = Front(
    method=lambda event: _text(event["requestContext"]["http"]["method"]),
    path=lambda event: _without_stage(_text(event["rawPath"]), event),
    whole_path=_called_path,
    query=lambda event: parse_qsl(_raw_query(event), keep_blank_values=True),
    headers=lambda _, headers: {"headers": headers},
    raw_query=_raw_query,
)
_BALANCER = Front(
    method=lambda event: _text(event["httpMethod"]),
    path=lambda event: _text(event["path"]),
    whole_path=lambda event: event["path"],
    query=lambda event: [(unquote_plus(name), unquote_plus(value)) for name, value in _pairs(event)],
    headers=lambda event, headers: (
        {"multiValueHeaders": {name: [value] for name, value in headers.items()}}
        if "multiValueHeaders" in event
        else {"headers": headers}
    ),
)
