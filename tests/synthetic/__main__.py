"""`python -m tests.synthetic` writes a synthetic export. Exit codes: 0 done, 1 failed, 64 wrong arguments,
130 interrupted."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from spark.errors import BadInput
from spark.frame.command_line import Parser, positive
from spark.progress import Bar
from tests.synthetic.generating import answers, generate
from tests.synthetic.parameters import Defect, Shape


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.since is not None and given.since >= given.messages:
        parser.error(f"--since {given.since} leaves none of {given.messages} messages")
    if given.incremental and given.since is None:
        given.since = given.messages // 2
    began = time.monotonic()
    shape = Shape(
        given.messages,
        given.entries,
        given.files,
        given.topics,
        given.queues,
        given.seed,
        given.since,
        frozenset(Defect(name) for name in given.plant),
    )
    bar = Bar(given.messages, "messages")
    try:
        folder = generate(given.to, shape, bar.add)
    except (BadInput, OSError) as error:
        return _failed(bar, str(error), 1)
    except KeyboardInterrupt:
        return _failed(bar, "interrupted", 130)
    bar.close()
    known = answers(folder)
    print(
        f"synthetic: {known['new_messages']} messages in {known['items']} items"
        f" in {time.monotonic() - began:.1f} s -> {folder}"
    )
    return 0


def _failed(bar: Bar, reason: str, code: int) -> int:
    bar.close()
    print(f"synthetic: {reason}", file=sys.stderr)
    return code


def _parser() -> Parser:
    made = Parser(
        prog="synthetic",
        description="Writes a synthetic export. answers.json beside its manifests describes its content.",
        epilog="defects: " + ", ".join(defect.value for defect in Defect),
    )
    made.add_argument("--to", required=True, type=Path, metavar="DIR", help="AWSDynamoDB/<ExportId> is made in it")
    made.add_argument("--messages", type=positive, default=200_000, metavar="N", help="in all (default 200000)")
    made.add_argument("--entries", type=_sizes, default=(1, 10, 100), metavar="N,N", help="messages of one call")
    made.add_argument("--files", type=positive, default=8, metavar="N", help="data files (default 8)")
    made.add_argument("--topics", type=positive, default=2, metavar="N", help="(default 2)")
    made.add_argument("--queues", type=_queues, default=4, metavar="N", help="of each topic (default 4)")
    made.add_argument("--seed", type=int, default=7, metavar="N", help="the same seed gives the same export")
    made.add_argument("--incremental", action="store_true", help="what came after the first half of the messages")
    made.add_argument("--since", type=positive, metavar="N", help="the same, after the first N; implies --incremental")
    made.add_argument(
        "--plant",
        nargs="+",
        default=[],
        metavar="DEFECT",
        choices=[defect.value for defect in Defect],
        help="plant these defects",
    )
    return made


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(positive(size) for size in text.split(","))
    if max(sizes) > 256:
        raise argparse.ArgumentTypeError(f"{max(sizes)} messages are more than one call may bring: 256")
    return sizes


def _queues(text: str) -> int:
    if positive(text) > 128:
        raise argparse.ArgumentTypeError(f"{text} queues are more than a topic may have: 128")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
