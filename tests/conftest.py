"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import emulators

settings.register_profile("decant", deadline=None)  # a busy machine is not a defect
settings.load_profile("decant")


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[str]:
    """The endpoint of a DynamoDB emulator with real atomicity and accounting."""
    with emulators.dynoxide() as endpoint:
        yield endpoint
