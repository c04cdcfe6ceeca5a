"""The application that Chalice deploys: API Gateway gets its routes, and it answers the requests of every front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalice import app as chalice
from chalice.app import Chalice

from chalicelib.api import OPERATIONS
from chalicelib.api.messages import MESSAGES_PATH
from chalicelib.doors import dispatch, functions
from chalicelib.doors.http import events
from chalicelib.doors.http.door import respond
from chalicelib.doors.http.exchange import Request, Response, refusal

SQS_PATHS = ("/", "/{account}/{queue}")
"""The paths of the door for SQS. Chalice's local server has to know them, and the method that only the door for MQ
has."""


def _admit_all(_request: Request) -> None: ...


class Application(Chalice):
    """`admit`: raises a DecantError for a request that must not be answered, whatever it asks for."""

    admit: Callable[[Request], None] = staticmethod(_admit_all)

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """The response to an HTTP request; to another event, a problem. Raises ForeignEvent."""
        if received := events.received(event):
            return received.answered(dispatch.guarded(lambda: self._responded(received.request, context), refusal))
        functions.refuse_records(event)
        return events.answered(refusal(functions.no_request(event)))

    def _responded(self, request: Request, context: Any) -> Response:
        self.admit(request)
        return respond(request, functions.left_ms(context))


def application() -> Application:
    """Its routes take any content type for JSON: `curl -d` sends a form's."""
    app = Application(app_name="decant", configure_logs=False)  # its logger is ours, with lines of another form
    for operation in OPERATIONS.values():
        methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
        app.route(operation.path, methods=methods, content_types=["*/*"], name=operation.name)(_view)
    for path in SQS_PATHS:
        app.route(path, methods=["GET", "POST"], content_types=["*/*"], name="sqs" + path)(_view)
    app.route(MESSAGES_PATH, methods=["DELETE"], content_types=["*/*"], name="mq_ack")(_view)
    return app


def _view(**_names: str) -> chalice.Response:
    # Chalice wants one for each route. Its docstring would go into the template.
    raise NotImplementedError("`Application.__call__` answers all requests")
