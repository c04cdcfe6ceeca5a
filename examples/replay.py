"""Handles messages again after a bug: moves the group back to when the bug came.

    python replay.py

Other groups notice nothing. Handlers see repeats, so they must be idempotent: this one sets a total and adds nothing.
"""

from datetime import UTC, datetime, timedelta

from decant import Decant

totals: dict[str, float] = {}


def declare(mq: Decant, tax: float) -> None:
    mq.api.put_topic("sales")
    mq.api.put_group("sales", "totals")

    @mq.consumer("sales", group="totals")
    def total(sale: str) -> None:
        number, net = sale.split()
        totals[number] = float(net) * (1 + tax)


def replay(mq: Decant, since: datetime) -> None:
    """Delivers again all that was sent since then, within the topic's retention."""
    mq.api.reset_group("sales", "totals", to={"at_ms": round(since.timestamp() * 1_000)})


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq, tax=0.91)  # the bug
        for sale in ("4711 100", "4712 50"):
            mq.send("sales", sale)
        mq.work()
        print("before:", totals)
    with Decant() as mq:
        declare(mq, tax=0.19)
        replay(mq, since=datetime.now(UTC) - timedelta(hours=1))
        mq.work()
        print("after:", totals)
