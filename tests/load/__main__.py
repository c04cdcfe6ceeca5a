"""python -m tests.load [--seconds N] [--processes P]: callers and faults at once, and what is wrong in the end. With
--torment MINUTES, processes are stopped, killed and started anew besides, and clocks are off."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.load import torment
from tests.load.run import Plan, Report, play, summary
from tests.support.arguments import above_zero, at_least_one
from tests.support.emulators import DYNOXIDE, ROOT, dynoxide

ROUND_SECONDS = 5.0
"""How long one run goes on before the next begins, with a topic and a seed of its own: the checker compares everything
with everything, and callers begin cold more often."""

SHOWN_MAX = 20
"""Violations of one round that are printed."""

INTERRUPTED = 128 + signal.SIGINT
"""The exit code when nothing was found before."""

JOURNALS = ROOT / ".torment"
"""Where a run that fails leaves its journals, by seed."""


def main() -> int:
    asked = _asked()
    counts: Counter[str] = Counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or stopped processes would outlive this one
    with suppress(KeyboardInterrupt), _emulator(asked.endpoint) as endpoint:
        for plan in _plans(asked):
            counts["interrupted"] = 1  # until this round is judged
            report = _played(endpoint, plan)
            if asked.torment:
                about = f"seed {plan.seed}, {' '.join([*plan.kinds, *plan.features])}"
                print(f"{about}: {summary(report.counts())}", flush=True)
            counts += report.counts()
            del counts["interrupted"]
    print(summary(counts))
    return 1 if counts["violations"] else INTERRUPTED if counts["interrupted"] else 0


def _plans(asked: argparse.Namespace) -> Iterator[Plan]:
    settings = {name: getattr(asked, name) for name in ("processes", "threads", "kills", "queues")}
    left, seed = asked.torment * 60 or asked.seconds, asked.seed
    while left > 0:
        seconds = min(left, torment.ROUND_SECONDS if asked.torment else ROUND_SECONDS)
        yield torment.plan(seed, seconds) if asked.torment else Plan(seconds=seconds, seed=seed, **settings)
        left, seed = left - seconds, seed + 1


def _played(endpoint: str, plan: Plan) -> Report:
    folder = JOURNALS / str(plan.seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        report = play(endpoint, plan, folder)
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        raise
    for violation in report.violations[:SHOWN_MAX]:
        print(f"seed {plan.seed}: {violation}")
    if report.violations:
        print(f"seed {plan.seed}: {len(report.violations)} violations; journals are in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return report


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--seconds", type=above_zero, default=10, help="how long callers are at work in all")
    parser.add_argument(
        "--torment", type=above_zero, default=0, metavar="MINUTES", help="the same, in tormented processes"
    )
    parser.add_argument("--processes", type=int, default=0, help="instances that are processes; 0: threads instead")
    parser.add_argument("--threads", type=at_least_one, default=3, help="instances that are threads of this process")
    parser.add_argument("--kills", type=int, default=0, help="how many of the processes are killed halfway")
    parser.add_argument("--queues", type=at_least_one, default=2)
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
