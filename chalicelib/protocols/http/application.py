"""The Chalice application: a route for each operation of the contract, and the answers to any other path and method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

from chalice.app import Chalice, Request, Response

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.base.errors import DecantError, InvalidField, MethodNotAllowed, NotFound
from chalicelib.base.fields import Label, given, quoted
from chalicelib.protocols import entrance
from chalicelib.protocols.entrance import Answer, Call
from chalicelib.protocols.http.body import body_of, text_of
from chalicelib.protocols.http.prefer import patience_ms, preferences


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
        answer = entrance.refusal(error)
        answer.headers.update(headers)
        return _response(answer).to_dict(self.api.binary_types)


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
    """Answers requests to the operation."""

    def view(**path: str) -> Response:
        request = cast(Request, app.current_request)
        preferred = preferences(request.headers.get("Prefer", "")) if "Prefer" in operation.headers else {}
        names = [unquote(path[name]) for name in operation.path_names]
        headers = dict(request.headers)
        answer = entrance.answer(
            Call(operation, names, lambda: _data(request, operation), headers, left_ms=lambda: patience_ms(preferred))
        )
        is_minimal = answer.status == 200 and preferred.get("return", "").lower() == "minimal"
        return _response(answer._replace(status=204) if is_minimal else answer)

    return view


def _response(answer: Answer) -> Response:
    if answer.status == 204:
        return Response("", status_code=204)  # Chalice would send `null` for None
    return Response(text_of(answer.body), {**answer.headers}, answer.status)


class _Nothing:
    """The request of an operation that takes none."""


def _data(request: Request, operation: Operation) -> Any:
    """The query or the body, whichever holds the request. Whatever else was sent is refused."""
    parts = [("parameter", _query(request)), ("field", body_of(_raw(request)))]
    data = parts.pop(0 if operation.method == "GET" else 1)[1] if operation.request else {}
    for noun, unknown in parts:
        if unknown != {}:
            given(_Nothing, unknown, Label(noun=noun))
    return data


def _raw(request: Request) -> bytes:
    raw = request.raw_body
    return raw if isinstance(raw, bytes) else raw.encode()


def _query(request: Request) -> dict[str, str]:
    """The query parameters, each given once."""
    query = request.query_params
    if query is None:
        return {}
    for name in query:
        if len(query.getlist(name)) > 1:
            raise InvalidField(f"parameter {quoted(name)} must be given once, not {len(query.getlist(name))} times")
    return {name: query[name] for name in query}
