"""The settings of a client, checked."""

from __future__ import annotations

import os
import random as chance
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from decant import contexts
from decant.address import Address, parsed
from decant.calls import Attempts, Call, HttpRequest, request
from decant.errors import SettingError
from decant.flows import Time
from decant.functions import SCHEME

T = TypeVar("T")


class Settings(NamedTuple):
    """The settings of a client. `target`: the address as it was given."""

    target: contexts.Target
    timeout_s: float
    clock: Callable[[], float]
    random: Callable[[], float]

    @property
    def time(self) -> Time:
        return Time(self.clock, self.random, self.timeout_s)

    @property
    def stack(self) -> str | None:
        """The stack whose functions are to be invoked. None for an address of HTTP."""
        url = self.target.url
        return url.removeprefix(SCHEME) if url.startswith(SCHEME) else None

    def address(self) -> Address:
        """The address of HTTP. Raises SettingError."""
        return parsed(self.target.url, self.target.source)

    def begin(self, call: Call[T], address: str, timeout_s: float | None) -> tuple[HttpRequest, Attempts[T]]:
        """The request of a call, and its attempts."""
        allowed_s = self.timeout_s if timeout_s is None else timeout_s
        return request(call, self.target.token), Attempts(call, address, self.clock(), allowed_s, self.random)


def settings(
    url: str | None,
    token: str | None,
    timeout: float,
    clock: Callable[[], float] | None,
    random: Callable[[], float] | None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Raises SettingError, which names what is wrong."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise SettingError(f"timeout must be a number of seconds, above 0; it is {timeout!r}")
    target = contexts.target(url, token, environment)
    return Settings(target, timeout, clock or time.monotonic, random or chance.random)
