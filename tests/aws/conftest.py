"""What the tests of the deployment share. They run in one process: the emulator and the package are made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import ministack as emulator
from tests.support.ministack import Ministack


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    """An emulator of AWS, empty at first."""
    with emulator.ministack() as running:
        yield running
