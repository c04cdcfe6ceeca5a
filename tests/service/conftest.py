"""The service over two stores, as many instances of it as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Store
from chalicelib.service import Service
from tests.store.conftest import dynoxide_store, memory_store

__all__ = ["dynoxide_store", "memory_store"]


@pytest.fixture(params=["memory", "dynoxide"])
def store(request: pytest.FixtureRequest) -> Store:
    """Moto is slow, and keeps the contract of stores too: the routes are tested on it."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def instance(store: Store) -> Callable[[], Api]:
    """Makes instances of the service, each with caches of its own, on one store."""
    return lambda: Api(Service(store, system()))


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t{uuid4().hex}"
