"""The Chalice application: a route for each operation of the contract, and the answers to any other path and method."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import orjson
from chalice.app import Chalice, Request, Response

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.base.errors import DecantError, Internal, InvalidField, MethodNotAllowed, NotFound
from chalicelib.base.fields import Label, given, quoted
from chalicelib.base.runtime import system
from chalicelib.protocols.http import problems
from chalicelib.protocols.http.body import body_of
from chalicelib.protocols.http.prefer import patience, preferences

_ID_CHARS = 16

_log = logging.getLogger("decant")


class Application(Chalice):
    def __call__(self, event: Any, context: Any) -> Any:
        about = event.get("requestContext", {}) if isinstance(event, dict) else {}
        known = self.routes.get(about.get("resourcePath", ""))
        if known is None:
            return super().__call__(event, context)
        if _has_slash_too_many(about.get("path", "")):
            return self._refused(NotFound(f"there is no path {quoted(about['path'])}"))
        if about["httpMethod"] in known:
            return super().__call__(event, context)
        allowed = ", ".join(sorted(known))
        error = MethodNotAllowed(f"{about['httpMethod']} is not allowed here; allowed are {allowed}")
        return self._refused(error, Allow=allowed)

    def _refused(self, error: DecantError, **headers: str) -> Any:
        answer = problems.response(error)
        answer.headers.update(headers)
        return answer.to_dict(self.api.binary_types)


def _has_slash_too_many(path: str) -> bool:
    """API Gateway, and Chalice in its place, route such a path as if it had none: every resource would have aliases."""
    return path.endswith("/") or "//" in path


def application() -> Application:
    """Routes take any content type for JSON: `curl -d` sends a form's."""
    app = Application(app_name="decant")
    for operation in OPERATIONS.values():
        route = app.route(operation.path, methods=[operation.method], content_types=["*/*"], name=operation.name)
        route(_view(app, operation))
    return app


def _view(app: Chalice, operation: Operation) -> Callable[..., Response]:
    """Answers requests to the operation. What it raises becomes a problem; a defect becomes an id to look up in the
    log, and shows nothing of the inside."""

    def view(**path: str) -> Response:
        try:
            return _answered(cast(Request, app.current_request), operation, path)
        except DecantError as error:
            return problems.response(error)
        except Exception:  # noqa: BLE001 - the boundary: nothing of the inside leaves it
            defect_id = system().name(_ID_CHARS)
            _log.exception("defect %s", defect_id)
            return problems.response(Internal(f"look for {defect_id} in the log"))

    return view


def _answered(request: Request, operation: Operation, path: dict[str, str]) -> Response:
    data = _data(request, operation)
    names = [unquote(path[name]) for name in operation.path_names]
    headers = {name: request.headers.get(name) for name in operation.headers if name != "Prefer"}
    preferred = preferences(request.headers.get("Prefer", "")) if "Prefer" in operation.headers else {}
    if operation.asks_store:
        service = wiring.api().service
        with patience(preferred, service.env.runtime.uptime()):
            status, answer = operation.call(service, names, data, **headers)
    else:
        from chalicelib.protocols.http import openapi  # 5 ms of a cold start, for a document that few ask for

        status, answer = 200, openapi.document()
    if status == 204 or (status == 200 and preferred.get("return", "").lower() == "minimal"):
        return Response("", status_code=204)  # Chalice would send `null` for None
    body = orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE).decode()
    return Response(body, {"Content-Type": "application/json"}, status)


class _Nothing:
    """The request of an operation that takes none."""


def _data(request: Request, operation: Operation) -> Any:
    """The query or the body, whichever holds the request. Whatever else was sent is refused."""
    parts = [("parameter", _query(request)), ("field", body_of(request))]
    data = parts.pop(0 if operation.method == "GET" else 1)[1] if operation.request else {}
    for noun, unknown in parts:
        if unknown != {}:
            given(_Nothing, unknown, Label(noun=noun))
    return data


def _query(request: Request) -> dict[str, str]:
    """The query parameters, each given once."""
    query = request.query_params
    if query is None:
        return {}
    for name in query:
        if len(query.getlist(name)) > 1:
            raise InvalidField(f"parameter {quoted(name)} must be given once, not {len(query.getlist(name))} times")
    return {name: query[name] for name in query}
