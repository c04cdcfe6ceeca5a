"""Invokes Lambda functions: consumers of groups, synchronously, and the push itself, asynchronously."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import Any

import orjson

from chalicelib.core.base.fields import encodable, read_json, shown
from chalicelib.core.base.limits import READ_TIMEOUT_MS
from chalicelib.push.outside import ANSWER_BYTES_MAX, ConsumerResponse

_CLIENTS_MAX = 64
"""Clients kept, one for each time-out."""

_log = logging.getLogger("decant")


class Functions:
    """`connect`: makes a Lambda client with this read time-out in ms. `push_function`: the name of the function that
    runs the push; without one, only the schedule runs it."""

    def __init__(self, connect: Callable[[int], Any], push_function: str | None) -> None:
        self._client, self._connecting = lru_cache(_CLIENTS_MAX)(connect), Lock()
        self._push_function = push_function

    def invoke(self, function: str, body: bytes, timeout_ms: int) -> ConsumerResponse:
        """Waits for the function's result. Never raises."""
        try:
            response = self._connected(timeout_ms).invoke(
                FunctionName=function, InvocationType="RequestResponse", Payload=body
            )
            returned = response["Payload"].read(ANSWER_BYTES_MAX + 1)
        except self._troubles as error:
            return ConsumerResponse.missing(f"no answer: {error}")
        if len(returned) > ANSWER_BYTES_MAX:
            return ConsumerResponse.missing(f"the function returned more than {ANSWER_BYTES_MAX} bytes")
        if response.get("FunctionError"):
            return ConsumerResponse.missing(f"the function failed: {_message(returned)}")
        return ConsumerResponse(200, returned)

    def wake(self, topic_name: str, is_staying: bool) -> None:
        """Starts the push. Never raises, since the schedule runs the push anyway."""
        if self._push_function is None:
            return
        event = orjson.dumps({"topic": topic_name, "is_staying": is_staying})
        try:
            self._connected(READ_TIMEOUT_MS).invoke(
                FunctionName=self._push_function, InvocationType="Event", Payload=event
            )
        except self._troubles as error:
            _log.warning("the push of topic %s was not woken: %s", topic_name, error)

    def _connected(self, timeout_ms: int) -> Any:
        """The first client imports boto3. The lock keeps a concurrent caller from seeing boto3 half imported."""
        with self._connecting:
            return self._client(timeout_ms)

    @property
    def _troubles(self) -> tuple[type[Exception], ...]:
        with self._connecting:
            from botocore.exceptions import BotoCoreError, ClientError
        return BotoCoreError, ClientError, OSError


def _message(returned: bytes) -> str:
    """The message of an exception that Lambda reports."""
    try:
        error = read_json(returned, "what it returned")
    except ValueError:
        error = None
    message = error.get("errorMessage") if isinstance(error, dict) else None
    return message if isinstance(message, str) and encodable(message) else shown(returned.decode(errors="replace"))
