"""python -m tests.simulation [--seed N] [--seeds COUNT]: plays histories, prints what is wrong with them."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.world import Plan, World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds from there on")
    parser.add_argument("--resets", type=int, default=0)
    parser.add_argument("--groups", type=int, default=1)
    asked = parser.parse_args()
    began, bad = time.perf_counter(), 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        world = World(seed, Plan(resets=asked.resets, groups=asked.groups))
        for violation in world.run():
            bad += 1
            print(f"seed {seed}: {violation}")
    seconds = time.perf_counter() - began
    print(f"{asked.seeds} histories, {bad} violations, {asked.seeds / seconds:.0f} a second")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
