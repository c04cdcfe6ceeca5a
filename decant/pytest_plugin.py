"""Fixtures for pytest. Nothing else is imported until one of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from decant.client import Decant
    from decant.testing import Clock, Server


@pytest.fixture
def decant_server() -> Iterator[Server]:
    """Decant in this process, empty, and gone after the test."""
    from decant.testing import Server

    with Server() as server:
        yield server


@pytest.fixture
def decant(decant_server: Server) -> Decant:
    """The client of `decant_server`."""
    return decant_server.client


@pytest.fixture
def decant_clock(decant_server: Server) -> Clock:
    """The clock of `decant_server`: `decant_clock.advance(hours=2)`."""
    return decant_server.clock


@pytest.fixture
def decant_url(decant_server: Server) -> str:
    """Where `decant_server` answers HTTP."""
    return decant_server.url
