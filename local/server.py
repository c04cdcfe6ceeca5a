"""The HTTP server in front of the app: Chalice's local gateway behind a server fit for load and for odd clients.

Chalice's own server sends headers and body separately (44 ms per request on a kept connection), has one current request
for all threads, does not decode chunks, and answers 403 for an unknown path, as API Gateway does. This one answers 404,
as a function URL does.
"""

from __future__ import annotations

import base64
import re
import sys
import traceback
from typing import Any
from uuid import uuid4

from chalice.app import Chalice
from chalice.config import Config
from chalice.local import LocalChalice, LocalGateway, LocalGatewayException

from chalicelib.base import deadline
from chalicelib.base.errors import DecantError, Internal, NotFound
from chalicelib.base.fields import quoted
from local.connections import HasHungUp, Server
from local.request import Answer, Head, refusal


def listen(app: Chalice, port: int, is_logging: bool) -> Server:
    """Binds the port and returns the server; its `serve_forever` serves requests. Raises `OSError`."""
    carrying_out = CarryingOut(Gateway(with_requests_apart(app), Config.create()))
    return Server(port, carrying_out, is_poll=is_poll, is_logging=is_logging)


def with_requests_apart(app: Chalice) -> Chalice:
    """The same app, whose `current_request` is each thread's own."""
    app.__class__ = type("LocalApp", (LocalChalice, type(app)), {})
    return app


def is_poll(head: Head) -> bool:
    """Whether the request may wait for messages."""
    return head.target.partition("?")[0].endswith("/pop")


class NoSuchPath(LocalGatewayException):
    """Not a `ValueError`, which Chalice would turn into a 403."""


class Gateway(LocalGateway):
    def _generate_lambda_event(self, method: str, path: str, headers: dict[str, Any], body: bytes | None) -> Any:
        try:
            return super()._generate_lambda_event(method, _bare(path), headers, body)
        except ValueError:
            raise NoSuchPath({}) from None

    def _has_user_defined_options_method(self, _lambda_event: dict[str, Any]) -> bool:
        return True  # otherwise Chalice would answer OPTIONS itself; deployed, the app does


def _bare(target: str) -> str:
    """The target of a request as path and query. HTTP allows it to begin with the host. Chalice would treat text after
    a semicolon as path parameters and text after a hash as a fragment, and drop both."""
    return re.sub("^https?://[^/?]*", "", target, flags=re.IGNORECASE).replace(";", "%3B").replace("#", "%23")


class CarryingOut:
    """Hands requests to the app."""

    def __init__(self, gateway: LocalGateway) -> None:
        self._gateway = gateway

    def __call__(self, head: Head, body: bytes | None, has_hung_up: HasHungUp) -> Answer:
        try:
            with deadline.caller(has_hung_up):
                response = self._gateway.handle_request(head.method, head.target, dict(head.headers), body)
            headers = {**response["headers"], **response["multiValueHeaders"]}
            return Answer(response["statusCode"], headers, _content(response))
        except NoSuchPath:
            return refusal(NotFound(f"there is no path {quoted(head.target.partition('?')[0])}"))
        except LocalGatewayException as error:
            return Answer(error.CODE, error.headers, _bytes(error.body))
        except Exception:  # noqa: BLE001 - the client gets a response, the log the details
            return refusal(_defect())


def _content(response: dict[str, Any]) -> bytes:
    return base64.b64decode(response["body"]) if response.get("isBase64Encoded") else _bytes(response["body"])


def _bytes(body: str | bytes | None) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _defect() -> DecantError:
    reference = uuid4().hex
    sys.stderr.write(f"defect {reference}\n{traceback.format_exc()}")
    return Internal(f"a defect, in the log as {reference}")
