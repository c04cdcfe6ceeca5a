"""The service as a process, and both faces of the client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from decant.testing import Server
from tests.client.support import faces
from tests.client.support.faces import Face
from tests.local.serving import Running, running


@pytest.fixture(scope="session")
def service() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def url(service: Running) -> str:
    return f"http://127.0.0.1:{service.port}"


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Makes a client of one face or the other."""
    yield from faces.threaded() if request.param == "threads" else faces.in_loop()


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def mq(face: Face, url: str, name: str) -> Any:
    """A client, with a topic of one queue and a group."""
    mq = face(url)
    mq.api.put_topic(name, queues=1)
    mq.api.put_group(name, "readers")
    return mq


@pytest.fixture
def server() -> Iterator[Server]:
    """The service in this process, with a topic of one queue and a group."""
    with Server() as server:
        server.client.api.put_topic("orders", queues=1)
        server.client.api.put_group("orders", "billing")
        yield server


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests have no settings but their own."""
    for variable in ("DECANT_URL", "DECANT_TOKEN", "DECANT_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
