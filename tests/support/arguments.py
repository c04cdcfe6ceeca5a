"""Numbers of a command line, for argparse."""

from __future__ import annotations

from argparse import ArgumentTypeError
from contextlib import suppress
from math import inf


def at_least_one(text: str) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise ArgumentTypeError(f"{text!r} is no whole number from 1 on")


def above_zero(text: str) -> float:
    with suppress(ValueError):
        if 0 < (number := float(text)) < inf:
            return number
    raise ArgumentTypeError(f"{text!r} is no number above 0")
