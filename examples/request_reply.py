"""Asks for sums and waits for the replies: three callers and a worker, in threads of one process.

    python request_reply.py

The worker could be another process, on any machine. A caller gives up after two seconds.
"""

import threading

from decant import Bury, Decant, ReplyTimeout


def declare(mq: Decant) -> None:
    mq.api.put_topic("sums")
    mq.api.put_group("sums", "adders")

    @mq.consumer("sums", group="adders", wait=0.5)  # seconds: how long it then takes to stop
    def add(sum_: str) -> int:
        try:
            return sum(map(int, sum_.split("+")))  # the reply
        except ValueError:
            raise Bury(f"no sum: {sum_}") from None  # no reply


def ask(mq: Decant, question: str) -> None:
    try:
        print(f"{question} = {mq.request('sums', question, timeout=2, reply=int)}")
    except ReplyTimeout:
        print(f"{question}: no reply")


def main(mq: Decant) -> None:
    declare(mq)
    callers = [threading.Thread(target=ask, args=(mq, sum_)) for sum_ in ("1 + 1", "2 + 3 + 4", "one + one")]
    worker = threading.Thread(target=mq.run)
    for thread in (worker, *callers):
        thread.start()
    for caller in callers:
        caller.join()
    mq.stop()
    worker.join()


if __name__ == "__main__":
    with Decant() as mq:
        main(mq)
