"""The audit of what the real service has written: nothing is wrong in the middle of any history, and what is then
broken in it is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chalicelib.core.table.writes import Item, Write
from spark.frame.job import VIOLATED, main
from spark.jobs.audit import JOB
from tests.simulation.world import World
from tests.spark.exports import write_items
from tests.spark.service import busy_world
from tests.spark.written import rows_of
from tests.support.client import Json

SEEDS = range(7000, 7010)
LONG_AFTER = "2030-01-01T00:00:00Z"
"""So that nothing can be put down to the minute of the export. Topics keep their messages for longer here."""


def _in_the_middle(seed: int) -> list[Json]:
    """The table after some of the writes of a simulated history, among crashes, zombies and resets."""
    world = World(seed)
    store = world._store
    true, left = store.write, [20 + seed * 7 % 150]
    seen: list[list[Item]] = []

    def counted(write: Write) -> Item:
        try:
            return true(write)
        finally:
            left[0] -= 1
            if left[0] == 0:
                seen.append(_items(store._items))

    store.write = counted  # type: ignore[method-assign]
    world.run()
    return [_renamed(item, seed) for item in (seen or [_items(store._items)])[0]]


def _items(tables: dict[str, dict[str, Item]]) -> list[Item]:
    return [dict(item) for part in tables.values() for item in part.values()]


def _renamed(item: Item, seed: int) -> Json:
    """All histories have a topic of one name."""
    if item["pk"].startswith("topic#"):
        return {**item, "pk": f"{item['pk']}-{seed}", "retention_ms": 10**12}
    if item["pk"] == "topics":
        return {**item, "sk": f"{item['sk']}-{seed}"}
    return {**item}


def _unique(items: list[Json]) -> list[Json]:
    """All histories have one signing key and the same sweeps."""
    return list({(item["pk"], item["sk"]): item for item in items}.values())


def _break(items: list[Json]) -> None:
    """In the busy world: a payload, a segment and a letter are lost, an entry comes twice, another cannot be unpacked,
    and a cursor runs ahead."""
    ids = {item["sk"].removesuffix("-0"): item["listed"] for item in items if item["pk"] == "topics"}
    items.remove(_first(items, f"payload#{ids['bodies']}"))
    logs = Counter(item["pk"] for item in items if item["pk"].startswith(f"log#{ids['orders']}"))
    items.remove(_first(items, logs.most_common(1)[0][0]))
    twice = _first(items, f"log#{ids['retried']}")
    twice["entries"] = [*twice["entries"], twice["entries"][0]]
    twice["end"] += twice["entries"][0]["n"]
    last = max((item for item in items if item["pk"].startswith(f"log#{ids['news']}")), key=lambda item: item["sk"])
    last["entries"][-1] = {**last["entries"][-1], "c": "zstd", "d": b"\x28\xb5\x2f\xfd" + bytes(16)}
    _first(items, f"group#{ids['delayed']}", "cursor")["next"] = [1000]
    items.remove(_first(items, f"dead#{ids['news']}"))


def _first(items: list[Json], pk: str, sk: str = "") -> Json:
    matching = [item for item in items if item["pk"].startswith(pk) and item["sk"].startswith(sk)]
    return min(matching, key=lambda item: (item["pk"], item["sk"]))


def test_nothing_is_wrong_in_the_middle_of_any_history_but_what_was_broken(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [_renamed(item, 0) for item in busy_world().items]
    _break(broken)
    items = [item for seed in SEEDS for item in _in_the_middle(seed)] + broken
    folder, tables = write_items(tmp_path / "export", _unique(items)), tmp_path / "tables"
    code = main(JOB, ["--export", str(folder), "--tables", str(tables), "--now", LONG_AFTER, "--allow-quarantine"])
    rows = rows_of(tables, "violations")
    said = capsys.readouterr().out
    assert {(row["topic"], row["invariant"]) for row in rows if row["severity"] != "cost"} == {
        ("bodies-0", "payload_missing"),
        ("orders-0", "head"),
        ("retried-0", "entry_twice"),
        ("delayed-0", "next_beyond_end"),
        ("news-0", "letters"),
        ("news-0", "unreadable"),
    }
    assert code == VIOLATED
    assert "violation payload_missing: bodies-0, queue 0" in said
    assert "audit: 6 violations, 0 doubts" in said
