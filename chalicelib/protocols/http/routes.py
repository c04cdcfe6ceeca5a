"""The routes: each takes a request apart, calls one operation, and puts the answer together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from chalice.app import Blueprint, Request, Response

from chalicelib import wiring
from chalicelib.api import views
from chalicelib.base.fields import Fields
from chalicelib.protocols.http.body import body_of
from chalicelib.protocols.http.exchange import answering, demand_known, nothing, ok, query_of

routes = Blueprint(__name__)

_TOPIC = "/topics/{topic}"
_MESSAGES = _TOPIC + "/messages"
_DELAYED = _TOPIC + "/delayed"
_GROUP = _TOPIC + "/groups/{group}"


def _route(method: str, path: str, *parameters: str) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """A view on a path, with the query parameters that it knows. Any content type is taken for JSON: `curl -d` sends a
    form's."""

    def register(view: Callable[..., Response]) -> Callable[..., Response]:
        @functools.wraps(view)
        def checked(**path_parameters: str) -> Response:
            demand_known(_query(), parameters)
            if method in ("GET", "DELETE"):
                Fields(_body(), ())  # refuses whatever is in it
            return view(**path_parameters)

        answer = answering(checked)
        routes.route(path, methods=[method], content_types=["*/*"], name=view.__name__)(answer)
        return answer

    return register


def _request() -> Request:
    return routes.current_request


def _body() -> Any:
    return body_of(_request())


def _query() -> dict[str, str]:
    return query_of(_request())


@_route("PUT", _TOPIC)
def put_topic(topic: str) -> Response:
    made, is_new = wiring.api().put_topic(topic, _body())
    return ok(made, 201 if is_new else 200)


@_route("GET", _TOPIC)
def get_topic(topic: str) -> Response:
    return ok(wiring.api().get_topic(topic))


@_route("DELETE", _TOPIC)
def delete_topic(topic: str) -> Response:
    wiring.api().delete_topic(topic)
    return nothing()


@_route("GET", "/topics", "limit", "next")
def list_topics() -> Response:
    return ok(wiring.api().list_topics(_query()))


@_route("POST", _MESSAGES)
def produce(topic: str) -> Response:
    results = wiring.api().produce(topic, _body(), _request().headers.get("traceparent"))
    is_whole = all(each.error is None for each in results)
    if is_whole and _wants_minimal():
        return nothing()
    return ok(views.produced(results), 200 if is_whole else 207)


@_route("GET", _MESSAGES, "queue", "offset", "at_ms", "key", "limit", "next")
def read_messages(topic: str) -> Response:
    return ok(wiring.api().read_messages(topic, _query()))


@_route("GET", _MESSAGES + "/{message_id}")
def get_message(topic: str, message_id: str) -> Response:
    return ok(wiring.api().get_message(topic, message_id))


@_route("GET", _DELAYED, "limit", "next")
def list_delayed(topic: str) -> Response:
    return ok(wiring.api().list_delayed(topic, _query()))


@_route("DELETE", _DELAYED + "/{message_id}")
def cancel_delayed(topic: str, message_id: str) -> Response:
    return ok(wiring.api().cancel_delayed(topic, message_id))


@_route("PUT", _GROUP)
def put_group(topic: str, group: str) -> Response:
    made, is_new = wiring.api().put_group(topic, group, _body())
    return ok(made, 201 if is_new else 200)


@_route("GET", _GROUP)
def get_group(topic: str, group: str) -> Response:
    return ok(wiring.api().get_group(topic, group))


@_route("DELETE", _GROUP)
def delete_group(topic: str, group: str) -> Response:
    wiring.api().delete_group(topic, group)
    return nothing()


@_route("GET", _TOPIC + "/groups", "limit", "next")
def list_groups(topic: str) -> Response:
    return ok(wiring.api().list_groups(topic, _query()))


@_route("POST", _GROUP + "/pop")
def pop(topic: str, group: str) -> Response:
    return ok(wiring.api().pop(topic, group, _body()))


@_route("POST", _GROUP + "/ack")
def ack(topic: str, group: str) -> Response:
    return ok(wiring.api().ack(topic, group, _body()))


@_route("POST", _GROUP + "/nack")
def nack(topic: str, group: str) -> Response:
    return ok(wiring.api().nack(topic, group, _body()))


@_route("POST", _GROUP + "/bury")
def bury(topic: str, group: str) -> Response:
    return ok(wiring.api().bury(topic, group, _body()))


@_route("POST", _GROUP + "/extend")
def extend(topic: str, group: str) -> Response:
    return ok(wiring.api().extend(topic, group, _body()))


@_route("POST", _GROUP + "/reset")
def reset(topic: str, group: str) -> Response:
    return ok(wiring.api().reset(topic, group, _body()))


@_route("GET", _GROUP + "/dead", "limit", "next")
def list_dead(topic: str, group: str) -> Response:
    return ok(wiring.api().list_dead(topic, group, _query()))


@_route("POST", _GROUP + "/dead/redrive")
def redrive(topic: str, group: str) -> Response:
    return ok(wiring.api().redrive(topic, group, _body()))


@_route("DELETE", _GROUP + "/dead")
def purge_dead(topic: str, group: str) -> Response:
    return ok(wiring.api().purge_dead(topic, group))


@_route("GET", "/health")
def health() -> Response:
    return ok(wiring.api().health())


@_route("GET", "/openapi.json")
def openapi_document() -> Response:
    from chalicelib.protocols.http import openapi  # 5 ms of a cold start, for a document that few ask for

    return ok(openapi.document())


def _wants_minimal() -> bool:
    return "return=minimal" in _request().headers.get("prefer", "").replace(" ", "").lower()
