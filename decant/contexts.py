"""Where the service is and with which token: arguments, the environment, the contexts of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

URL = "http://127.0.0.1:8000"


class Target(NamedTuple):
    """An address and a token. `source`: what named the address."""

    url: str
    token: str | None
    source: str


def target(url: str | None, token: str | None, environment: Mapping[str, str]) -> Target:
    """Arguments win over the environment, which wins over the context."""
    token = token or environment.get("DECANT_TOKEN") or None
    if url:
        return Target(url, token, "the url")
    if named := environment.get("DECANT_URL"):
        return Target(named, token, "DECANT_URL")
    return Target(URL, token, "the url")
