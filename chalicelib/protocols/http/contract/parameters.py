"""The parameters of the contract: in the path, in the query, in a header."""

from __future__ import annotations

from typing import Any

from chalicelib.base.limits import KEY_BYTES_MAX, NAME_PATTERN, PAGE_DEFAULT, PAGE_MAX
from chalicelib.protocols.http.contract.values import OFFSET, QUEUE, Json, instant, integer, string


def _parameter(place: str, name: str, schema: Json, **more: Any) -> Json:
    text = schema["description"]
    bare = {keyword: value for keyword, value in schema.items() if keyword != "description"}
    return {"name": name, "in": place, **more, "description": text, "schema": bare}


def _path(name: str, schema: Json, example: str) -> Json:
    return _parameter("path", name, schema, required=True, example=example)


def _query(name: str, schema: Json) -> Json:
    return _parameter("query", name, schema)


PARAMETERS: Json = {
    "topic": _path("topic", string("The topic's name.", pattern=NAME_PATTERN), "orders"),
    "group": _path("group", string("The group's name.", pattern=NAME_PATTERN), "billing"),
    "message_id": _path("message_id", string("The message's id.", minLength=1), "5c0a7f3e91d2b8460111"),
    "limit": _query("limit", integer("How many items to answer, at most.", 1, PAGE_MAX, default=PAGE_DEFAULT)),
    "next": _query("next", string("The `next` of the page before: go on behind it.", minLength=1)),
    "queue": _query("queue", {**QUEUE, "description": "Read this queue only, counted from 0."}),
    "offset": _query(
        "offset",
        {**OFFSET, "description": "Begin at this offset of `queue`; below the first, at the first."},
    ),
    "at_ms": _query("at_ms", instant("Begin with what was stored at or after this instant.")),
    "key": _query("key", string("Read the messages with this key. Only of a topic with `index_keys`.", KEY_BYTES_MAX)),
    "traceparent": _parameter(
        "header",
        "traceparent",
        string(
            "The trace that the request belongs to (W3C Trace Context). Each message carries it as its property"
            " `traceparent`, unless it has one already. A malformed one is ignored."
        ),
        example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    "Prefer": _parameter(
        "header",
        "Prefer",
        string("`return=minimal` asks for an answer without a body (RFC 7240)."),
        example="return=minimal",
    ),
}
