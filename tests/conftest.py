"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.support import emulators

settings.register_profile("decant", deadline=None, max_examples=50)  # a busy machine is not a defect
settings.load_profile("decant")

IN_ONE_PROCESS = ("tests/spark/", "tests/aws/")
"""One session serves all tests that want Spark: it takes seconds to start, and a gigabyte. One deployment serves all
tests that want AWS."""

ONE_BY_ONE = "tests/simulation/"
"""Whose tests share nothing, and may take long."""

DEAR = (*IN_ONE_PROCESS, ONE_BY_ONE, "tests/model/", "tests/local/", "tests/load/", "tests/service/")
"""Come first, so that no process has much to do when the others have nothing left."""


def pytest_configure() -> None:
    """A process that a shell starts in the background ignores SIGINT, and so would all that the tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(part) for part in DEAR])


def pytest_collection_finish() -> None:
    """All modules and tests are here to stay: no collection of garbage need look at them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """`pytest -n auto`: one process more than there are cores, since tests of servers often wait."""
    return (yield) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`pytest -n 2`: each process takes the next file, so that its fixtures are made once; or all that belongs in one
    process; or a test that stands alone."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(IN_ONE_PROCESS):
                return "/".join(nodeid.split("/")[:2])
            return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[str]:
    """The endpoint of a DynamoDB emulator with real atomicity and accounting. Each process has one of its own."""
    with emulators.dynoxide() as endpoint:
        yield endpoint
