"""Estimates what items cost, by topic, group, kind and size: storage a month, and the units they have used."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.frame.command_line import positive
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.transforms.cost import Prices, cost

TABLE = "cost"
POP_SIZE = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    usual = Prices()
    about = "USD per million {} units, on demand (default: {}, us-east-1)"
    parser.add_argument("--write-price", type=_price, default=usual.write, help=about.format("write", usual.write))
    parser.add_argument("--read-price", type=_price, default=usual.read, help=about.format("read", usual.read))
    parser.add_argument(
        "--storage-price", type=_price, default=usual.storage, help=f"USD per GB and month (default: {usual.storage})"
    )
    parser.add_argument(
        "--pop-size", type=positive, default=POP_SIZE, help=f"messages that a pop brings (default: {POP_SIZE})"
    )


def run(run: Run) -> JobResult:
    given = run.given
    prices = Prices(given.write_price, given.read_price, given.storage_price)
    rows = run.write(cost(run.items, prices, given.pop_size), TABLE)
    return JobResult(f"{rows} rows", run.where(TABLE))


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a price in USD")
    return price


JOB = Job(
    "cost",
    __doc__ or "",
    run,
    add_arguments,
    full_only="cost needs a full export, which has all items",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
