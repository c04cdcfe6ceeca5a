"""`decant bench`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from decant import operations
from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Json, Out, Progress
from decant.errors import DecantError

if TYPE_CHECKING:
    from decant.client import Decant

GROUP = "bench"


@click.command()
@click.option(
    "-n", "--count", type=click.IntRange(1, 50_000), default=1_000, show_default=True, help="How many messages."
)
@click.option("--size", type=click.IntRange(1, 262_144), default=200, show_default=True, help="Bytes of a body.")
@click.option("--batch", type=click.IntRange(1, 256), default=10, show_default=True, help="Messages in a call.")
@click.option("-j", "--at-once", type=click.IntRange(1, 64), default=1, show_default=True, help="Calls at once.")
@options.writing("step", "messages", "calls", "messages_per_s", "calls_per_s", "p50_ms", "p99_ms")
@options.calling
def bench(count: int, size: int, batch: int, at_once: int, out: Out, mq: Decant) -> None:
    """Measure how fast a service sends, pops and acks, in a topic of its own that is deleted at the end.

    \b
    decant bench -n 200
    decant bench -n 200 --batch 100 -j 4
    """
    topic = f"bench-{os.urandom(4).hex()}"
    body = "x" * size
    receipts: list[str] = []

    def send(number: int) -> int:
        mq.api.produce(topic, messages=[{"body": body}] * number)
        return number

    def pop(number: int) -> int:
        answer = mq.api.pop(topic, GROUP, max_messages=number, fill=True, wait_ms=1_000, invisible_ms=600_000)
        receipts.extend(message["receipt"] for message in answer["messages"])
        return len(answer["messages"])

    def ack(number: int) -> int:
        part = [receipts.pop() for _ in range(min(number, len(receipts)))]
        return mq.api.ack(topic, GROUP, receipts=part)["acked"] if part else 0

    steps: dict[str, Callable[[int], int]] = {"send": send, "pop": pop, "ack": ack}
    try:
        mq.api.put_topic(topic)
        mq.api.put_group(topic, GROUP, max_in_flight=20_000)
        out.whole([_measured(name, step, count, batch, at_once) for name, step in steps.items()])
    finally:
        _delete(mq, topic)


def _delete(mq: Decant, topic: str) -> None:
    try:
        mq.call(operations.delete_topic(topic), timeout=5)
    except (DecantError, KeyboardInterrupt) as error:
        note(f"topic {topic} is left: {error or 'interrupted'}")
        if isinstance(error, KeyboardInterrupt):
            raise


def _measured(name: str, step: Callable[[int], int], count: int, batch: int, at_once: int) -> Json:
    """Carries a step out for so many messages, in threads."""
    work = Work(step, count, batch, Progress(f"messages: {name}", count))
    began = time.perf_counter()
    threads = [threading.Thread(target=work.run, daemon=True) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # so that signals are seen
    finally:
        work.left = 0
        work.progress.end()
    if work.error:
        raise work.error
    seconds = max(time.perf_counter() - began, 1e-9)
    took = sorted(work.took)
    return {
        "step": name,
        "messages": work.done,
        "calls": len(took),
        "messages_per_s": round(work.done / seconds),
        "calls_per_s": round(len(took) / seconds),
        "p50_ms": _ms(took, 0.5),
        "p99_ms": _ms(took, 0.99),
    }


def _ms(took: list[float], share: float) -> Any:
    return round(took[min(int(len(took) * share), len(took) - 1)] * 1_000) if took else None


class Work:
    """The state that the threads of a step share."""

    def __init__(self, step: Callable[[int], int], count: int, batch: int, progress: Progress) -> None:
        self._step, self._batch, self.progress = step, batch, progress
        self.left, self.done = count, 0
        self.took: list[float] = []
        self.error: DecantError | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            with self._lock:
                number = min(self._batch, self.left)
                self.left -= number
            if not number:
                return
            began = time.perf_counter()
            try:
                done = self._step(number)
            except DecantError as error:
                self.error, self.left = error, 0
                return
            took = time.perf_counter() - began
            with self._lock:
                self.took.append(took)
                self.done += done
                self.left += number - done if done else 0  # a pop may bring fewer
                self.progress.at(self.done)
