"""The client of a command: where the service is, and which token to show there."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from typing import TYPE_CHECKING

from decant import address, contexts
from decant.calls import HttpRequest, HttpResponse, NoAnswer, NotSent
from decant.errors import NotDecant, SettingError, Unreachable
from decant.functions import SCHEME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from decant.client import Decant
    from decant.transport import Transport

TIMEOUT_S = 10.0
"""How long a call may take, with its repeats."""
FIRST_S = 1.5
"""How long the first connection may be refused: a service may be starting."""


def client(
    url: str | None,
    context: str | None,
    *,
    timeout: float | None = None,
    asks: bool = True,
    is_source: bool = False,
) -> Decant:
    """`context` wins over DECANT_URL and DECANT_TOKEN. `asks`: the context's `token_command` may run. `is_source`:
    DECANT_TOKEN is for another address; it counts here only if the context has no token. Raises SettingError."""
    from decant.client import Decant

    if url and context:
        raise SettingError("--url and --context exclude each other")
    environment = dict(os.environ)
    spare = environment.pop("DECANT_TOKEN", None) if context or is_source else None
    if context:
        environment.pop("DECANT_URL", None)
        environment["DECANT_CONTEXT"] = context
    target = contexts.target(url, None, environment)
    if not target.url.startswith(SCHEME):
        address.parsed(target.url, target.source)
    token = target.token
    if token is None and (command := _token_command(url, environment)):
        if not asks:
            raise SettingError("the token comes from a command")
        token = _said_by(command)
    if token is None and not context:
        token = spare
    mq = Decant(target.url, token or "", timeout=timeout or TIMEOUT_S)
    mq.transport = Impatient(mq.transport, "; `decant serve` starts a service" if target.url == contexts.URL else "")
    return mq


class Impatient:
    """A transport that soon gives up an address that refuses the first connection."""

    def __init__(self, transport: Transport, hint: str) -> None:
        self._transport, self._hint = transport, hint
        self._until: float | None = time.monotonic() + FIRST_S
        """None: a request has reached the address."""

    @property
    def address(self) -> str:
        return self._transport.address

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        try:
            response = self._transport.send(request, timeout_s)
        except NotSent as error:
            if self._until and time.monotonic() > self._until:
                raise Unreachable(f"{error}{self._hint}") from error
            raise
        except (NoAnswer, NotDecant):
            self._until = None
            raise
        self._until = None
        return response

    def close(self) -> None:
        self._transport.close()


def _token_command(url: str | None, environment: Mapping[str, str]) -> str | None:
    """The `token_command` of the context, if that says where the service is."""
    if url or environment.get("DECANT_URL"):
        return None
    held = contexts.read(contexts.path_in(environment))
    name = environment.get("DECANT_CONTEXT") or held.current
    named: Mapping[str, object] | None = held.by_name.get(name) if name else None
    command = named.get("token_command") if named else None
    return command if isinstance(command, str) else None


def _said_by(command: str) -> str:
    """The first line that the command prints."""
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    except (OSError, ValueError) as error:
        raise SettingError(f"the token_command failed: {error}") from error
    token = done.stdout.strip().partition("\n")[0]
    if done.returncode or not token:
        raise SettingError(f"the token_command gave no token; its exit code was {done.returncode}")
    return token
