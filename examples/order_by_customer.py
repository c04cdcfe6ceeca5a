"""Handles the events of each customer in order, those of different customers side by side.

While an event waits for its retry, later events of the same customer wait behind it; other customers go on.

    python order_by_customer.py
"""

from decant import Decant, Message, Retry

EVENTS = ["opened", "paid", "closed"]


def declare(mq: Decant) -> None:
    mq.api.put_topic("accounts")
    mq.api.put_group("accounts", "ledger", ordered="key", backoff_ms=[100])

    @mq.consumer("accounts", group="ledger", concurrency=8)
    def book(event: str, message: Message[str]) -> None:
        if event == "paid" and message.attempt == 1:
            raise Retry(reason="the ledger is locked")
        print(f"{message.key}: {event}", flush=True)


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq)
        for event in EVENTS:
            for customer in ("customer-7", "customer-8"):
                mq.send("accounts", event, key=customer)
        mq.run()  # until Ctrl-C
