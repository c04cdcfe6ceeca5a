"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests import emulators

settings.register_profile("decant", deadline=None)  # a busy machine is not a defect
settings.load_profile("decant")

IN_ONE_PROCESS = ("tests/spark/",)
"""One session serves all tests that want Spark: it takes seconds to start, and a gigabyte."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`pytest -n 2`: each process takes the next test, or all of the next that belong in one process, these first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in IN_ONE_PROCESS if nodeid.startswith(folder)), nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[str]:
    """The endpoint of a DynamoDB emulator with real atomicity and accounting. Each process has one of its own."""
    with emulators.dynoxide() as endpoint:
        yield endpoint
