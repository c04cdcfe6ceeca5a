"""The picture of the architecture shows the rooms that there are."""

from __future__ import annotations

from tests import architecture


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert architecture.PATH.read_text() == architecture.svg(), "run: python -m tests.architecture"
