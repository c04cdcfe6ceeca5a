"""Handles messages in a Lambda function that Decant invokes.

Deploy this file with `decant-mq` as the function `mail-invoices`, handler `lambda_consumer.handler`, then once:

    decant group set invoices mail push.function=mail-invoices

Decant needs the right to invoke it: infra/README.md has the lines. Failed messages come again, the others are acked.
"""

from dataclasses import dataclass

from decant import Decant, Retry, Topic
from decant.middleware import Recent, remember


@dataclass
class Invoice:
    number: int
    total: float


mq = Decant()  # makes no call: the messages are in the event


@mq.consumer(Topic[Invoice]("invoices"), group="mail", middleware=[remember(Recent())])
def send(invoice: Invoice) -> None:
    """`remember` skips messages that this instance has handled; a store in DynamoDB would skip those of all."""
    if invoice.total < 0:
        raise Retry(delay=60, reason="the credit note is not booked yet")
    print(f"mailed invoice {invoice.number}")


handler = send.on_push
