"""Sends each purchase once; three groups receive it, each at its own pace.

    python fan_out.py

The group `shipping` receives only paid purchases.
"""

from decant import Decant


def declare(mq: Decant) -> None:
    mq.api.put_topic("purchases")
    mq.api.put_group("purchases", "billing")
    mq.api.put_group("purchases", "search")
    mq.api.put_group("purchases", "shipping", filter={"tags": ["paid"]})

    @mq.consumer("purchases", group="billing")
    def bill(purchase: str) -> None:
        print(f"billing: {purchase}")

    @mq.consumer("purchases", group="search")
    def index(purchase: str) -> None:
        print(f"search: {purchase}")

    @mq.consumer("purchases", group="shipping")
    def ship(purchase: str) -> None:
        print(f"shipping: {purchase}")


if __name__ == "__main__":
    with Decant() as mq:
        declare(mq)
        mq.send("purchases", "purchase 1", tag="new")
        mq.send("purchases", "purchase 2", tag="paid")
        mq.work()  # until no message is ready; a service calls mq.run()
