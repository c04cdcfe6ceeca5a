"""Invokes the functions of a stage in place of HTTP: `Decant("lambda:decant-prod")`. Needs boto3 and credentials."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from decant.calls import HttpRequest, HttpResponse, NoAnswer, NotSent, encoded
from decant.errors import NotDecant, SettingError

SCHEME = "lambda:"
FUNCTIONS = ("produce", "pop", "ack", "nack", "extend", "bury", "request", "reply")
"""The operations that have a function."""
TIMEOUT_STEP_S = 5
"""Clients of boto3 have a fixed timeout. Calls share those of multiples of this."""
_NOTHING_SENT = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"})
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "NoRegionError", "ProfileNotFound"})
_THROTTLED = frozenset({"TooManyRequestsException", "ThrottlingException", "EC2ThrottledException"})


class Invoked(NamedTuple):
    """The result of an invocation. `failure`: the function raised, or ran out of time."""

    payload: bytes
    failure: str | None


class LambdaTransport:
    """Invokes the function of each operation. `stack`: the part of their names before the operation's."""

    def __init__(self, stack: str) -> None:
        if not stack:
            raise SettingError("the address must name a stack, such as lambda:decant-prod")
        self._stack = stack
        self._clients: dict[int, Any] = {}

    @property
    def address(self) -> str:
        return SCHEME + self._stack

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        if request.operation not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise SettingError(
                f"{request.operation} has no function that could be invoked, only {known} have: give an http address"
            )
        event = {**request.fields, **request.names}
        if authorization := request.headers.get("authorization"):
            event["token"] = authorization.removeprefix("Bearer ")
        invoked = self._invoked(f"{self._stack}-{request.operation}", encoded(event), timeout_s)
        if isinstance(invoked, HttpResponse):
            return invoked
        if invoked.failure:
            raise NoAnswer(f"the function failed ({invoked.failure}): {invoked.payload[:200].decode(errors='replace')}")
        return _response(invoked.payload)

    def close(self) -> None:
        self._clients.clear()

    def _invoked(self, function: str, payload: bytes, timeout_s: float) -> Invoked | HttpResponse:
        try:
            answer = self._client(timeout_s).invoke(FunctionName=function, Payload=payload)
            return Invoked(answer["Payload"].read(), answer.get("FunctionError"))
        except (SettingError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - botocore has no common root of its errors
            return _refused(function, error)

    def _client(self, timeout_s: float) -> Any:
        seconds = math.ceil(timeout_s / TIMEOUT_STEP_S) * TIMEOUT_STEP_S
        if seconds not in self._clients:
            try:
                import boto3
                from botocore.config import Config
            except ImportError:
                raise SettingError("an address of lambda: needs boto3: pip install boto3") from None
            # a repeat by boto3 could store a message twice
            config = Config(read_timeout=seconds, connect_timeout=5, retries={"total_max_attempts": 1})
            self._clients[seconds] = boto3.client("lambda", config=config)
        return self._clients[seconds]


def _response(payload: bytes) -> HttpResponse:
    try:
        result = json.loads(payload)
        problem = result.get("error")
        status = 200 if problem is None else int(problem["status"])
    except (ValueError, AttributeError, KeyError, TypeError):
        raise NotDecant(f"the function returned {payload[:80]!r}") from None
    return HttpResponse(status, {}, payload if problem is None else json.dumps(problem).encode())


def _refused(function: str, error: Exception) -> HttpResponse:
    """The response that an error of boto3 stands for. Raises NotSent, NoAnswer, NotDecant, SettingError."""
    kind = type(error).__name__
    if kind in _NO_CREDENTIALS:
        raise SettingError(f"boto3 cannot invoke {function}: {error}") from error
    if kind in _NOTHING_SENT:
        raise NotSent(str(error)) from error
    code = (getattr(error, "response", None) or {}).get("Error", {}).get("Code", kind)
    if code in _THROTTLED:
        return HttpResponse(429, {}, encoded({"detail": str(error)}))
    if code in ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"):
        return HttpResponse(403, {}, encoded({"code": "Forbidden", "detail": str(error)}))
    if code == "ResourceNotFoundException":
        raise NotDecant(f"there is no function {function}: {error}") from error
    raise NoAnswer(str(error)) from error
