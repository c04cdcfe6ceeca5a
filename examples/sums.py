"""Asks a running Decant for sums, and answers: three callers and a worker, in threads of one process.

    python3 examples/sums.py [PORT]

The worker could as well be another process, or a Lambda function that the group pushes to: see decant/worker.py. The
topic is `sums`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # where `decant` is, in a clone

from decant import Decant, ReplyTimeout, Unreachable, operations
from decant.worker import Message, Service


def main(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    with Service(url) as service:
        try:
            service.mq.call(operations.put_topic("sums"), timeout=0.5)
        except Unreachable:
            sys.exit(f"nothing answers at {url}: start it with make run")
        service.mq.api.put_group("sums", "adders")
        answer(service)


def answer(service: Service) -> None:
    is_over = threading.Event()

    @service.worker
    def add(message: Message) -> str:
        return str(sum(map(int, message.text.split("+"))))

    worker = threading.Thread(target=add.run, args=("sums", "adders", is_over.is_set), kwargs={"wait_ms": 500})
    worker.start()
    callers = [threading.Thread(target=ask, args=(service.mq, sum_)) for sum_ in ("1 + 1", "2 + 3 + 4", "one + one")]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    is_over.set()
    worker.join()


def ask(mq: Decant, question: str) -> None:
    """Waits for the reply in the same call. Nobody can answer every question: after two seconds it gives up."""
    try:
        print(f"{question} = {mq.request('sums', question, timeout=2)}")
    except ReplyTimeout as error:
        print(f'{question} = "{error.code}"')


if __name__ == "__main__":
    if not (port := sys.argv[1] if len(sys.argv) > 1 else "8000").isdecimal():
        sys.exit(__doc__)
    main(int(port))
