"""Runs the same loop over HTTP on Decant with its memory store and on moto's SQS, in one run: times as ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks import servers
from benchmarks.contender import Contender
from benchmarks.decant import OverHttp, Riding
from benchmarks.loop import Round, in_turns
from benchmarks.report import Cell, table
from benchmarks.sqs import Sqs, by_boto3, by_light_client

BATCHES = (1, 10)
SIZE = 1_000

_HEADERS = (
    "batch",
    "step",
    "Decant ms",
    "moto SQS ms",
    "Decant / moto",
    "Decant, kept / moto",
    "Decant, kept, riding / moto",
    "moto by boto3 / moto",
)


def side_by_side(rounds: int) -> str:
    rows: list[list[Cell]] = []
    with _contenders() as make:
        for batch in BATCHES:
            contenders = {name: made(f"orders-{batch}") for name, made in make.items()}
            taken = in_turns(contenders, SIZE, batch, rounds, "the loop over HTTP")
            rows += _rows(batch, {name: _medians(each) for name, each in taken.items()})
    return table("(b) The loop over HTTP, beside moto's SQS", _HEADERS, rows)


@contextmanager
def _contenders() -> Iterator[dict[str, Callable[[str], Contender]]]:
    """In the order of the columns. moto closes each connection, so Decant is measured that way too."""
    with servers.decant() as decant, servers.moto() as moto:
        yield {
            "Decant": lambda name: OverHttp(decant, name, is_kept=False),
            "moto": lambda name: Sqs(by_light_client(moto), name),
            "kept": lambda name: OverHttp(decant, f"{name}-kept"),
            "riding": lambda name: Riding(OverHttp(decant, f"{name}-riding")),
            "boto3": lambda name: Sqs(by_boto3(moto), f"{name}-boto3"),
        }


def _medians(rounds: list[Round]) -> Round:
    return {step: statistics.median(seconds[step] for seconds in rounds) for step in rounds[0]}


def _rows(batch: int, medians: dict[str, Round]) -> Iterator[list[Cell]]:
    decant, moto, kept, riding, boto3 = medians.values()
    for step, base in moto.items():
        ratios = [taken[step] / base for taken in (decant, kept, riding, boto3)]
        yield [batch, step, 1_000 * decant[step], 1_000 * base, *ratios]
