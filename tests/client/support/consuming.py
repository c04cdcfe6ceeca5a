"""A program with a consumer: `python -m tests.client.support.consuming URL FACE`. Messages say what it does: `wait`
waits until the file that it names is there."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

from decant import AsyncDecant, Decant

logging.basicConfig(level=logging.INFO, format="%(message)s")


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def wait(path: str) -> None:
    tell("begun")
    while not Path(path).exists():
        time.sleep(0.01)
    tell("done")


async def run_tasks(url: str) -> None:
    async with AsyncDecant(url) as mq:

        @mq.consumer("orders", group="billing", wait=0.2)
        async def bill(path: str) -> None:
            await asyncio.to_thread(wait, path)

        tell("ready")
        await mq.run()
    tell("ended")


def run_threads(url: str) -> None:
    with Decant(url) as mq:
        mq.consumer("orders", group="billing", wait=0.2)(wait)
        tell("ready")
        mq.run()
    tell("ended")


if __name__ == "__main__":
    if sys.argv[2] == "threads":
        run_threads(sys.argv[1])
    else:
        asyncio.run(run_tasks(sys.argv[1]))
