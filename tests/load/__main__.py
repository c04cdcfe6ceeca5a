"""Runs callers and faults together, and prints the violations in the end. With --torment MINUTES, processes are also
stopped, killed and started again, and clocks are off."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.load import torment
from tests.load.run import Plan, Report, play, summary
from tests.support.arguments import above_zero, at_least_one, at_least_zero
from tests.support.emulators import DYNOXIDE, ROOT, dynoxide

ROUND_SECONDS = 5.0
"""How long one run lasts before the next begins, with a topic and a seed of its own: the checker compares everything
with everything, and callers begin cold more often."""

SHOWN_MAX = 20
"""Violations of one round that are printed."""

INTERRUPTED = 128 + signal.SIGINT
"""The exit code when nothing was found before."""

ANSWER_SECONDS = 5
"""The longest answer of an emulator to an unknown request."""

JOURNALS = ROOT / ".torment"
"""The folder in which a failed run leaves its journals, by seed."""


def main() -> int:
    asked = _asked()
    counts: Counter[str] = Counter()
    judged, is_judged = 0, False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # without it stopped processes would outlive this one
    with suppress(KeyboardInterrupt), _emulator(asked.endpoint) as endpoint:
        for plan in _plans(asked):
            is_judged = False
            if asked.torment:
                _announce(plan)
            report = _played(endpoint, plan)
            if asked.torment:
                print(f"seed {plan.seed}: {summary(report.counts())}", flush=True)
            counts += report.counts()
            judged, is_judged = judged + 1, True
    if not is_judged:
        print("interrupted; this round is not judged")
    if judged > 1 or (judged and not asked.torment):
        print(summary(counts))
    return 1 if counts["violations"] else 0 if is_judged else INTERRUPTED


def _announce(plan: Plan) -> None:
    about, end = " ".join([*plan.kinds, *plan.features]), time.localtime(time.time() + plan.seconds)
    print(f"seed {plan.seed}: {about}; until {time.strftime('%H:%M:%S', end)}, then it is judged", flush=True)


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
    parser.add_argument("--processes", type=at_least_zero, default=0, help="instances that are processes; 0: threads")
    parser.add_argument("--threads", type=at_least_one, default=3, help="instances that are threads of this process")
    parser.add_argument("--kills", type=at_least_zero, default=0, help="how many of the processes are killed halfway")
    parser.add_argument("--queues", type=at_least_one, default=2)
    parser.add_argument("--seed", type=at_least_zero, default=0, help="of the first round; threads are not replayed")
    parser.add_argument("--endpoint", help="of a DynamoDB emulator; without it one is started")
    asked = parser.parse_args()
    if asked.endpoint is None and not DYNOXIDE.exists():
        parser.error("there is no emulator to start: `make emulators` installs it; or name one by --endpoint")
    if asked.kills > asked.processes:
        parser.error("--kills is at most --processes: threads cannot be killed")
    if asked.endpoint and not _answers(asked.endpoint):
        parser.error(f"nothing answers at {asked.endpoint}")
    return asked


def _answers(endpoint: str) -> bool:
    try:
        urlopen(endpoint, timeout=ANSWER_SECONDS).close()
    except HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def _emulator(endpoint: str | None) -> Iterator[str]:
    if endpoint:
        yield endpoint
    else:
        with dynoxide() as started:
            yield started


if __name__ == "__main__":
    sys.exit(main())
