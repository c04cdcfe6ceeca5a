"""The fast tests, collected once and run one by one in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

FOLDERS = tuple(
    f"tests/{room}" for room in ("core", "store", "http", "service", "budgets", "meetings", "mqhttp", "sqs")
)
LEFT_OUT = ("tests/http/test_routes.py", "tests/http/test_bad_requests.py", "tests/http/test_openapi.py")
"""Tests that are left out: thousands, about code before the rooms."""


class _Taken:
    """Takes the tests that pytest has collected, in place of its loop."""

    def __init__(self, act: Callable[[dict[str, pytest.Item]], None]) -> None:
        self._act = act

    def pytest_configure(self) -> None:
        """Failing examples need no shrinking."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", deadline=None, max_examples=50, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = (item for item in session.items if isinstance(item, pytest.Function))
        self._act({item.nodeid: item for item in functions if "dynoxide" not in item.fixturenames})
        return True


def with_tests(act: Callable[[dict[str, pytest.Item]], None], chosen: Sequence[str] = FOLDERS) -> None:
    """Calls `act` with the tests, by id, while pytest's session lasts."""
    quiet = [
        "-q",
        "--capture=sys",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    left_out = [f"--ignore={path}" for path in LEFT_OUT]
    asked = [*left_out, "--hypothesis-seed=0", "-k", "not dynoxide and not moto", *chosen]
    code = pytest.main([*quiet, *asked], plugins=[_Taken(act)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest: {code!r}")


def passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(report.passed for report in reports)


def fails(item: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))
