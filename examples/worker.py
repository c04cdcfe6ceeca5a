"""Mails invoices, four at a time, until Ctrl-C or SIGTERM.

    python worker.py
    decant send invoices '{"number": 4711, "total": 9.9}'    # in another shell

It retries a message whose handler raises, and gives up after five attempts.
"""

from dataclasses import dataclass

from decant import Decant, Topic


@dataclass
class Invoice:
    number: int
    total: float


INVOICES = Topic[Invoice]("invoices")


def declare(mq: Decant) -> None:
    """Creates the topic and the group, and adds the handler. Tests call it with a client of their own."""
    mq.api.put_topic(INVOICES)
    mq.api.put_group(INVOICES, "mail", max_attempts=5)

    @mq.consumer(INVOICES, group="mail", concurrency=4)
    def send(invoice: Invoice) -> None:
        print(f"mailed invoice {invoice.number}: {invoice.total:.2f}", flush=True)


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq)
        mq.run()
