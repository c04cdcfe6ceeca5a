"""The service as a process, and both faces of the client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

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


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests have no settings but their own."""
    for variable in ("DECANT_URL", "DECANT_TOKEN", "DECANT_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
