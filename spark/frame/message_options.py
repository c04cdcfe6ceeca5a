"""The arguments of `search` and `replay` that select messages."""

from __future__ import annotations

import argparse

from spark.errors import BadInput
from spark.frame.command_line import instant
from spark.transforms.selection import Selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which messages (all that is given must hold; repeated, one of them)")
    which.add_argument("--topic", action="append", default=[], metavar="NAME")
    which.add_argument("--key", action="append", default=[])
    which.add_argument("--tag", action="append", default=[])
    which.add_argument("--property", action="append", default=[], type=_pair, metavar="NAME=VALUE")
    which.add_argument("--text", help="what the body has in it, where that is text")
    which.add_argument("--ignore-case", action="store_true", help="of --text")
    which.add_argument("--from", dest="from_ms", type=instant, metavar="TIME", help="stored then or later")
    which.add_argument("--to", dest="to_ms", type=instant, metavar="TIME", help="stored before (default: all)")


def selection(given: argparse.Namespace) -> Selection:
    """Raises `BadInput` if `--from` is not before `--to`."""
    if None not in (given.from_ms, given.to_ms) and given.from_ms >= given.to_ms:
        raise BadInput(f"--from is not before --to: {given.from_ms} and {given.to_ms} ms")
    return Selection(
        tuple(given.topic),
        tuple(given.key),
        tuple(given.tag),
        dict(given.property),
        given.text,
        given.ignore_case,
        given.from_ms,
        given.to_ms,
    )


def _pair(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, value
