"""Shared by all commands, Spark jobs or not: argument parsing."""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime
from typing import NoReturn

MISUSED = 64
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last that Spark and Python can show."""


class Parser(argparse.ArgumentParser):
    """Exits with 64 and prints one line if the arguments are wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"{self.prog}: {message}; --help says more\n")


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def instant(text: str) -> int:
    """Returns ms since the epoch. A time without a zone is UTC."""
    if text.isascii() and text.isdigit() and int(text) <= _LAST_MS:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time like 2026-01-31T12:00:00Z nor ms") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def place(text: str) -> str:
    """Parses the location of the tables. It must not be empty, which would mean the root of the machine."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    if re.match(r"\w+:/", text) and not re.match(r"s3a?://[^/]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a folder here nor s3://bucket/folder")
    return os.path.expanduser(text)


def master(text: str) -> str:
    """Parses the Spark master: this machine, or a cluster."""
    if not re.fullmatch(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a Spark master URL, such as local[4], spark://host:7077, yarn or k8s://host"
        )
    return text


def add_slack(parser: argparse.ArgumentParser, default_ms: int) -> None:
    parser.add_argument(
        "--slack",
        type=natural,
        default=default_ms,
        metavar="MS",
        help=f"how far from the export's time an item may have been read (default: {default_ms}, what AWS promises)",
    )
