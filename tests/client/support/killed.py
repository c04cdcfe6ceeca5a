"""Consumers that get a signal at random moments, one after another, over one server; then one that is left alone.

`python -m tests.client.support.killed URL TOPIC GROUP LOG SIGNAL TIMES SEED` writes a line to LOG for each message that
a handler gets: its id, the attempt, when the lease ends, and when the handler began."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from random import Random

from decant import Decant, Message  # what a fork has, it need not import

LIFE_S_MIN, LIFE_S_MAX = 0.01, 0.09
AGAIN_S = 10.0
"""After this the signal is sent again: Python loses one that comes while it forks. A consumer ends within its poll."""


def main(arguments: Sequence[str]) -> None:
    url, topic, group, log, name, times, seed = arguments
    number = signal.Signals[name]
    random = Random(int(seed))
    for _ in range(int(times)):
        if (child := os.fork()) == 0:
            consume(url, topic, group, log)
        time.sleep(random.uniform(LIFE_S_MIN, LIFE_S_MAX))
        code = ended_by(child, number)
        assert code in (0, -number, 1), f"it ended with {code}"
    if (child := os.fork()) == 0:
        consume(url, topic, group, log)
    with Decant(url) as mq:
        while mq.api.get_group(topic, group)["lag"]:
            time.sleep(0.05)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def ended_by(child: int, number: signal.Signals) -> int:
    """Sends the signal, and returns the exit code."""
    while True:
        os.kill(child, number)
        until = time.monotonic() + AGAIN_S
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)


def consume(url: str, topic: str, group: str, log: str) -> None:
    try:
        run(url, topic, group, log)
    except KeyboardInterrupt:  # it had not begun, or was done
        os._exit(1)
    os._exit(0)


def run(url: str, topic: str, group: str, log: str) -> None:
    mq = Decant(url)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @mq.consumer(topic, group=group, concurrency=4, prefetch=2, wait=1)
    def handle(_value: str, message: Message[str]) -> None:
        began_ms = time.time_ns() // 1_000_000
        line = f"{message.id} {message.attempt} {message.fields['invisible_until_ms']} {began_ms}\n"
        os.write(file, line.encode())
        time.sleep(0.002)

    mq.run()


if __name__ == "__main__":
    main(sys.argv[1:])
