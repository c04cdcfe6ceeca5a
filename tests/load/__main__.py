"""python -m tests.load [--seconds N] [--processes P]: callers and faults at once, and what is wrong in the end."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.load.run import Plan, play, summary
from tests.support.emulators import DYNOXIDE, dynoxide

ROUND_SECONDS = 5
"""How long one run goes on before the next begins, with a topic and a seed of its own: the checker compares everything
with everything, and callers begin cold more often."""


def main() -> int:
    asked = _asked()
    settings = {name: value for name, value in vars(asked).items() if name not in ("endpoint", "seconds", "seed")}
    rounds = [min(ROUND_SECONDS, asked.seconds - begun) for begun in range(0, math.ceil(asked.seconds), ROUND_SECONDS)]
    counts: Counter[str] = Counter()
    with _emulator(asked.endpoint) as endpoint:
        for seed, seconds in enumerate(rounds, asked.seed):
            with tempfile.TemporaryDirectory() as folder:
                report = play(endpoint, Plan(seconds=seconds, seed=seed, **settings), Path(folder))
            for violation in report.violations:
                print(f"seed {seed}: {violation}")
            counts += report.counts()
    print(summary(counts))
    return 1 if counts["violations"] else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long callers are at work in all")
    parser.add_argument("--processes", type=int, default=0, help="instances that are processes; 0: threads instead")
    parser.add_argument("--threads", type=int, default=3, help="instances that are threads of this process")
    parser.add_argument("--kills", type=int, default=0, help="how many of the processes are killed halfway")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--queues", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; it does not replay what threads do")
    parser.add_argument("--endpoint", help="of a DynamoDB emulator; without it one is started")
    asked = parser.parse_args()
    if asked.endpoint is None and not DYNOXIDE.exists():
        parser.error("there is no emulator to start: `make emulators` installs it; or name one by --endpoint")
    if asked.kills > asked.processes:
        parser.error("--kills is at most --processes: threads cannot be killed")
    return asked


@contextmanager
def _emulator(endpoint: str | None) -> Iterator[str]:
    if endpoint:
        yield endpoint
    else:
        with dynoxide() as started:
            yield started


if __name__ == "__main__":
    sys.exit(main())
