"""Reminds customers of carts that they leave for a day.

    python reminder.py

A customer who pays meanwhile gets no reminder.
"""

from datetime import timedelta

from decant import AlreadyDelivered, Decant, Sent


def declare(mq: Decant) -> None:
    mq.api.put_topic("reminders")
    mq.api.put_group("reminders", "mail")

    @mq.consumer("reminders", group="mail")
    def remind(customer: str) -> None:
        print(f"mail to {customer}: your cart still waits", flush=True)


def cart_left(mq: Decant, customer: str, after: timedelta) -> Sent:
    """Store the id of the result beside the cart."""
    return mq.send("reminders", customer, delay=after)


def paid(mq: Decant, reminder_id: str) -> bool:
    """Returns whether the reminder is cancelled. False: it was delivered before."""
    try:
        mq.api.cancel_delayed("reminders", reminder_id)
    except AlreadyDelivered:
        return False
    return True


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq)
        cart_left(mq, "customer-7", timedelta(seconds=1))
        paid(mq, cart_left(mq, "customer-8", timedelta(days=1)).id)
        mq.run()  # until Ctrl-C
