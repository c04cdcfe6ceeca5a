"""`python -m benchmarks`: measures, and prints tables in Markdown."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

from benchmarks.backlog import Plan, backlog
from benchmarks.bill import bill
from benchmarks.calls import calls
from benchmarks.client import client
from benchmarks.compression import compression
from benchmarks.costs import costs
from benchmarks.lateness import lateness
from benchmarks.looks import looks
from benchmarks.moves import moves
from benchmarks.producer import producer
from benchmarks.ramps import FULL as RAMPS
from benchmarks.ramps import QUICK as FEW_RAMPS
from benchmarks.ramps import Effort as RampEffort
from benchmarks.ramps import ramps
from benchmarks.rates import rates
from benchmarks.scale import QUICK as FEW
from benchmarks.scale import Sizes, scale
from benchmarks.servers import Unmeasurable, demand_emulator, demand_moto_server, demand_ref
from benchmarks.side_by_side import side_by_side
from benchmarks.sqs_door import sqs_door
from benchmarks.starts import starts
from benchmarks.writers import CROWDS, Crowd, writers
from benchmarks.writers import QUICK as SMALL

_INTERRUPTED = 130

PARTS = (
    "costs",
    "http",
    "backlog",
    "compression",
    "lateness",
    "moves",
    "calls",
    "scale",
    "rates",
    "sqs",
    "writers",
    "looks",
    "ramps",
    "bill",
    "starts",
    "client",
)

ABOUT = """
parts:
  costs         (a) units, round trips, CPU time and rate of each operation; needs the emulator
  http          (b) the same loop over HTTP on Decant and on moto's SQS; needs moto's server
  backlog       (c) pops with 1 000 and with 100 000 messages stored
  compression   (d) bytes and CPU time of compression levels
  lateness      (e) how late delayed messages arrive, and pops wake, over HTTP; needs the emulator
  moves         (g) how many files and functions a request walks through
  calls         (h) requests and replies, beside two queues of moto's SQS; needs the emulator and moto's server
  scale         (i) beside many topics, groups, queues and messages; many writers and servers; needs the emulator
  rates         (j) requests a second over HTTP, on one connection and on eight, beside moto's SQS, ElasticMQ (where
                Maven and Java are installed) and the server of --against; needs moto's server
  sqs           (k) boto3 on Decant, moto's SQS, ElasticMQ (where Maven and Java are installed) and LocalStack (where
                `make localstack` has put it), on one connection; needs moto's server
  writers       (l) units of many instances that append to the same few queues, in virtual time
  looks         (m) how late and how evenly pops serve topics with many queues, and what they read, on virtual time
  ramps         (o) loads that grow beyond what partitions carry, overload, hot keys and logs, in virtual time; all is
                scaled down by --scale
  bill          (n) dollars of a million messages and of a month, beside SQS, Kinesis and Kafka; counted and computed
  starts        (p) CPU time of `decant --help` and of `import decant`, beside click and a bare interpreter
  client        (q) the Python client beside urllib3 alone and boto3 on the SQS door, and a producer at 5 000 messages/s

Tables go to stdout, progress to stderr. Only ratios of times within one run mean something on another machine.
"""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of each part is measured."""

    cycles: int
    rounds: int
    plan: Plan
    entries: int
    wakes: int
    calls: int
    rate_rounds: int
    sqs_rounds: int
    sizes: Sizes
    crowds: tuple[Crowd, ...]
    look_seconds: int
    ramps: RampEffort
    starts: int
    client_rounds: int
    producer_seconds: float


FULL = Effort(
    cycles=100,
    rounds=200,
    plan=Plan(100_000, singles=50_000, singles_seconds=180, pops=90),
    entries=40,
    wakes=10,
    calls=600,
    rate_rounds=9,
    sqs_rounds=500,
    sizes=Sizes(),
    crowds=CROWDS,
    look_seconds=10,
    ramps=RAMPS,
    starts=40,
    client_rounds=7,
    producer_seconds=10.0,
)
QUICK = Effort(
    cycles=5,
    rounds=15,
    plan=Plan(20_000, singles=1_500, singles_seconds=5, pops=40),
    entries=5,
    wakes=2,
    calls=60,
    rate_rounds=3,
    sqs_rounds=100,
    sizes=FEW,
    crowds=SMALL,
    look_seconds=1,
    ramps=FEW_RAMPS,
    starts=10,
    client_rounds=2,
    producer_seconds=2.0,
)
"""Some two minutes."""


def main(arguments: list[str]) -> int:
    """Measures and prints. Returns the exit code."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)  # without it the servers would outlive an interrupted run
    given = _parser().parse_args(arguments)
    chosen = [part for part in PARTS if part in (given.only or PARTS)]
    try:
        _demand(chosen, given.against)
        effort = QUICK if given.quick else FULL
        scaled = replace(effort, ramps=replace(effort.ramps, scale=given.scale or effort.ramps.scale))
        _measure(chosen, scaled, given.against)
    except Unmeasurable as reason:
        print(f"benchmarks: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures what Decant costs and how fast it is. Takes a quarter of an hour.",
        epilog=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure less of everything: some two minutes, and rougher"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="measure these parts only")
    parser.add_argument(
        "--scale", type=float, help=f"by how much `ramps` scales load and partitions down, {RAMPS.scale:g} if missing"
    )
    parser.add_argument("--against", metavar="REF", help="a git ref whose server `rates` measures beside this one")
    return parser


def _demand(chosen: list[str], against: str | None) -> None:
    """Raises Unmeasurable before the first measurement if the machine lacks something that the chosen parts need."""
    if against:
        demand_ref(against)
        if "rates" not in chosen:
            raise Unmeasurable(f"--against {against} is for the part 'rates', which --only leaves out")
    if {"costs", "lateness", "calls", "scale"} & {*chosen}:
        demand_emulator()
    if {"http", "calls", "rates", "sqs"} & {*chosen}:
        demand_moto_server()


def _measure(chosen: list[str], effort: Effort, against: str | None) -> None:
    parts: dict[str, Callable[[], str]] = {
        "costs": lambda: costs(effort.cycles),
        "http": lambda: side_by_side(effort.rounds),
        "backlog": lambda: backlog(effort.plan),
        "compression": lambda: compression(effort.entries),
        "lateness": lambda: lateness(effort.wakes),
        "moves": moves,
        "calls": lambda: calls(effort.calls),
        "scale": lambda: scale(effort.sizes),
        "rates": lambda: rates(effort.rate_rounds, against),
        "sqs": lambda: sqs_door(effort.sqs_rounds),
        "writers": lambda: writers(effort.crowds),
        "looks": lambda: looks(effort.look_seconds),
        "ramps": lambda: ramps(effort.ramps),
        "bill": bill,
        "starts": lambda: starts(effort.starts),
        "client": lambda: f"{client(effort.client_rounds)}\n{producer(effort.producer_seconds)}",
    }
    print(f"{_machine()}\n", flush=True)
    for part in chosen:
        load = _load()
        print(f"{parts[part]()}\n{load}\n", flush=True)


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"boto3 {version('boto3')}, moto {version('moto')}"
    )


def _load() -> str:
    """A sentence about other load on the machine."""
    return f"Load average when this part began: {os.getloadavg()[0]:.1f}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
