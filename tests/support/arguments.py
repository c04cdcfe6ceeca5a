"""Numbers of a command line, for argparse."""

from __future__ import annotations

from argparse import ArgumentTypeError
from contextlib import suppress
from math import inf


def at_least_zero(text: str) -> int:
    return _whole(text, 0)


def at_least_one(text: str) -> int:
    return _whole(text, 1)


def above_zero(text: str) -> float:
    with suppress(ValueError):
        if 0 < (number := float(text)) < inf:
            return number
    raise ArgumentTypeError(f"{text!r} is not a number above 0")


def _whole(text: str, least: int) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= least:
            return number
    raise ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
