"""What the tests of the deployment share. They run in one process: the emulator and the package are made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra import packaging
from infra.packaging import Package
from infra.stage import read_stage
from tests.support import ministack as emulator
from tests.support.ministack import REGION, Ministack


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    """An emulator of AWS, empty at first."""
    with emulator.ministack() as running:
        yield running


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The zip and the template of the stage dev."""
    return packaging.package(read_stage("dev"), [], REGION, tmp_path_factory.mktemp("packages"))
