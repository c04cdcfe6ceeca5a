"""Units and money, on a small table."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark import schemas
from spark.transforms.cost import Prices, cost
from tests.spark.rows import NOW, cursor, decision, entry, group, items, letter, page, payload, segment, topic


def test_units_follow_from_items_and_money_from_units_and_prices(spark: SparkSession) -> None:
    rows = items(
        spark,
        topic("t", version=2),
        group("t", starts=(5,)),
        cursor("t", 25),
        segment("t", 0, entry(1), entry(2)) | {"bytes": 2048},
        payload("t", 1) | {"bytes": 8193},
        letter("t", 1),
        page("t", "p", (1, 1, NOW)),
        decision("t", 1, ((NOW, 1), (NOW, 2))),
    )
    costs = cost(rows, Prices(write=1e6, read=2e6, storage=1e9), pop_size=10)
    assert costs.columns == schemas.COST.fieldNames()
    made = {row["kind"]: row for row in costs.collect()}
    units = {kind: (row["write_units"], row["read_units"]) for kind, row in made.items()}
    assert units == {
        "topic": (3, 0),  # a put for each of three versions
        "group": (1, 0),
        "cursor": (4, 6),  # 20 messages since its group began are two pops: a claim and an ack, three units read
        "segment": (3, 0),  # grown to a kilobyte, then to two
        "payload": (9, 1.5),  # three times half a unit, by one group
        "dead_letter": (4, 0),  # with the cursor in a transaction
        "retry_page": (4, 0),
        "decision": (5, 0),  # its own put, a put and a delete of two messages
    }
    assert {(row["topic"], row["items"]) for row in made.values()} == {("t", 1)}
    assert {kind for kind, row in made.items() if row["group"] == "g"} == {
        "group",
        "cursor",
        "dead_letter",
        "retry_page",
    }
    for row in made.values():
        money = (row["write_usd"], row["read_usd"], row["usd_per_month"])
        assert money == (row["write_units"], 2 * row["read_units"], row["bytes"] + 100)
    assert {kind for kind, row in made.items() if row["basis"] == "assumed"} == {"cursor"}
    assert (made["segment"]["size"], made["payload"]["size"]) == ("up to 4 KB", "up to 16 KB")
