"""Selects messages for search and replay, and puts them in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.traffic import only_between

_PLACE = ["topic_id", "queue", "offset"]


@dataclass(frozen=True)
class Selection:
    """All given criteria must hold; of several topics, keys or tags, one of them. `text`: within a body that is
    text."""

    topics: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    ignores_case: bool = False
    from_ms: int | None = None
    to_ms: int | None = None


def only_selected(messages: DataFrame, wanted: Selection) -> DataFrame:
    """The selected messages of the archive. Topics and times choose the files to read."""
    selected = messages.transform(only_between, wanted.from_ms, wanted.to_ms)
    for name, values in (("topic", wanted.topics), ("key", wanted.keys), ("tag", wanted.tags)):
        if values:
            selected = selected.where(F.col(name).isin(*values))
    for name, value in wanted.properties.items():
        selected = selected.where(F.col("properties")[name] == value)
    if wanted.text is not None:
        body, text = F.col("body").cast("string"), F.lit(wanted.text)
        holds = F.contains(F.lower(body), F.lower(text)) if wanted.ignores_case else F.contains(body, text)
        selected = selected.where(F.col("is_text") & holds)
    return selected


def in_order(messages: DataFrame) -> DataFrame:
    """Sorted by time of storage, but within a queue by offset, even if clocks disagree. So messages with one key stay
    in order, even if the key moved to another queue when its topic grew."""
    before = Window.partitionBy("topic_id", "queue").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    times = messages.select(*_PLACE, "stored_at_ms", F.max("stored_at_ms").over(before).alias("_by"))
    held_up = times.where("_by > stored_at_ms").select(*_PLACE, "_by")  # few: a clock ahead came before
    timed = messages.join(held_up.hint("shuffle_hash"), _PLACE, "left")
    by = F.coalesce("_by", "stored_at_ms")
    return timed.orderBy(by, *_PLACE).select(*messages.columns)


def newest_of_keys(messages: DataFrame) -> DataFrame:
    """The last message of each key of each topic: within a queue by offset, even if clocks disagree; by time if a
    growing topic moved the key to another queue. Messages without a key are left out. There are no
    tombstones: a key that was used once has a last message for good."""
    keyed = messages.where("key is not null")
    at = F.struct("stored_at_ms", "queue", "offset")
    last = keyed.groupBy("topic_id", "key", "queue").agg(F.max_by(at, "offset").alias("last"))
    newest = last.groupBy("topic_id", "key").agg(F.max("last").alias("last"))
    return keyed.join(newest.select("topic_id", "last.queue", "last.offset"), _PLACE, "left_semi")
