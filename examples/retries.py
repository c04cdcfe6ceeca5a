"""Retries failed payments, and keeps those that fail for good as dead letters.

    python retries.py
    decant send payments 4711                # in another shell
    decant dead ls payments cards            # lists what failed, and why
    decant dead redrive payments cards       # delivers it again

A payment fails for good after three attempts, or at once if it is malformed.
"""

from datetime import timedelta

from decant import Bury, Decant, Message, Retry


class BankBusy(Exception):
    pass


def charge(payment: str) -> None:
    """Your bank."""
    if not payment.isdecimal():
        raise ValueError(payment)


def declare(mq: Decant) -> None:
    mq.api.put_topic("payments")
    mq.api.put_group("payments", "cards", max_attempts=3, backoff_ms=[10_000, 60_000])

    @mq.consumer("payments", group="cards")
    def pay(payment: str, message: Message[str]) -> None:
        try:
            charge(payment)
        except BankBusy as busy:
            raise Retry(timedelta(minutes=5), "the bank is busy") from busy  # a delay of its own
        except ValueError as error:
            raise Bury(f"no payment: {payment!r}") from error  # retries would not help
        # Any other exception has the message retried after 10 s, then after 60 s; the third attempt is the last.
        print(f"paid {payment} at attempt {message.attempt}", flush=True)


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq)
        mq.run()
