"""Checks the messages that a group has claimed: each is settled, or in one lease, retry page or dead letter."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.item_schemas import SET_ASIDE_UNTIL_MS
from spark.transforms.audit.cursors import cursors, named, owed
from spark.transforms.audit.findings import Moment, finding, findings, proved
from spark.transforms.items import Items

_PLACE = ["topic_id", "group_id", "queue", "consumer"]
"""The columns that identify a cursor, as dead letters spell them."""
_ABOUT = [*_PLACE, "group", "epoch", "next", "at_ms", "dead"]


def of_offsets(items: Items, moment: Moment) -> DataFrame:
    """`owed_twice`: no message is owed by two leases or pages. `dead_and_owed`: no dead message is owed by one."""
    standing = cursors(items)
    rows = _leased(standing, moment).unionByName(_paged(items, standing), allowMissingColumns=True)
    rows = rows.unionByName(_dead(items, standing), allowMissingColumns=True)
    offsets = rows.groupBy(*_PLACE, "group", "at_ms", "offset").agg(
        F.count("owner").alias("owners"),
        F.array_join(F.array_sort(F.collect_list("owner")), ", ").alias("by"),
        F.max("dead_at_ms").alias("dead_at_ms"),
        F.coalesce(F.bool_or("is_redriven"), F.lit(False)).alias("is_redriven"),
    )
    dead_at_ms, owners, offset = F.col("dead_at_ms"), F.col("owners"), F.col("offset")
    is_proved = moment.has_seen(dead_at_ms) & moment.has_seen(F.col("at_ms")) & ~F.col("is_redriven")
    twice = F.concat(named(), F.lit(" owes it in "), F.col("by"))
    both = F.concat(named(), F.lit(" has it dead, and owes it in "), F.col("by"))
    return findings(
        offsets,
        finding("owed_twice", owners > 1, offset, twice),
        finding("dead_and_owed", (owners > 0) & dead_at_ms.isNotNull(), offset, both, proved(is_proved)),
    )


def _leased(standing: DataFrame, moment: Moment) -> DataFrame:
    """The offsets that leases owe. A redrive parks dead messages at attempt 0."""
    leases = standing.select(*_ABOUT, F.explode("leases").alias("lease"))
    deadline_ms = F.col("lease.deadline_ms")
    is_redriven = (F.col("lease.attempt") == 0) & (deadline_ms >= moment.before_ms) & (deadline_ms < SET_ASIDE_UNTIL_MS)
    offsets = F.explode(owed(F.col("lease"))).alias("offset")
    return leases.select(*_ABOUT, offsets, F.col("lease.token").alias("owner"), is_redriven.alias("is_redriven"))


def _paged(items: Items, standing: DataFrame) -> DataFrame:
    """The offsets in the retry pages that a cursor notes."""
    retries = _pages(items, standing).select(*_ABOUT, "page_id", F.explode("retries").alias("retry"))
    covered = F.sequence(F.col("retry.start"), F.col("retry.start") + F.col("retry.count") - 1)
    owner = F.concat(F.lit("page "), "page_id").alias("owner")
    return retries.select(*_ABOUT, F.explode(covered).alias("offset"), owner)


def _letters(items: Items) -> DataFrame:
    """The dead letters of the groups that exist."""
    letters = items["dead_letter"].select(
        "topic_id",
        F.col("ttl").alias("letter_ttl"),
        "dead_letter.group_id",
        "dead_letter.queue",
        "dead_letter.offset",
        F.coalesce(F.col("dead_letter.consumer"), F.lit("")).alias("consumer"),
        F.col("dead_letter.epoch").alias("letter_epoch"),
        "dead_letter.dead_at_ms",
    )
    groups = items["group"].select("topic_id", "group.group_id", F.col("group.name").alias("group_name"))
    return letters.join(F.broadcast(groups), ["topic_id", "group_id"])


def _dead(items: Items, standing: DataFrame) -> DataFrame:
    """The offsets that died in the current epoch of their cursor: after a reset, a group gets dead messages again."""
    both = _letters(items).join(standing.select(*_ABOUT), _PLACE)
    return both.where("letter_epoch = epoch").select(*_ABOUT, "offset", "dead_at_ms")


def of_letters(items: Items, moment: Moment) -> DataFrame:
    """`letters`: a cursor's count of dead letters is right. `letter_beyond_next`: each dead message had been taken."""
    epoch, next_, dead = F.col("epoch"), F.col("next"), F.coalesce(F.col("dead"), F.lit(0))
    both = _letters(items).join(cursors(items).select(*_ABOUT), _PLACE, "full")
    is_ahead = (F.col("letter_epoch") > epoch) | ((F.col("letter_epoch") == epoch) & (F.col("offset") >= next_))
    counted = both.groupBy(*_PLACE).agg(
        F.max(F.coalesce("group", "group_name")).alias("group"),
        F.count("letter_epoch").alias("letters"),
        F.max("dead").alias("dead"),
        F.max("dead_at_ms").alias("dead_at_ms"),
        F.max("letter_ttl").alias("letter_ttl"),
        F.max("at_ms").alias("at_ms"),
        F.max("next").alias("next"),
        F.min(F.when(is_ahead, F.col("offset"))).alias("ahead"),
    )
    letters, last_at_ms = F.col("letters"), F.coalesce(F.col("dead_at_ms"), F.lit(0))
    may_be_gone = (dead > letters) & F.col("letter_ttl").isNotNull()
    is_quiet = moment.has_seen(last_at_ms) & moment.has_seen(F.coalesce(F.col("at_ms"), F.lit(0)))
    count = F.concat(named(), F.format_string(" counts %d dead letters; there are %d", dead, letters))
    ahead = F.concat(named(), F.format_string(" has it dead, and stands at %d", next_))
    return findings(
        counted,
        finding("letters", (dead != letters) & ~may_be_gone, None, count, proved(is_quiet)),
        finding(
            "letter_beyond_next", F.col("ahead").isNotNull(), F.col("ahead"), ahead, proved(moment.has_seen(last_at_ms))
        ),
    )


def _pages(items: Items, standing: DataFrame) -> DataFrame:
    """The retry pages that cursors note, with the `retries` in them; null: there is no such page."""
    noted = standing.select(*_ABOUT, F.explode("pages").alias("noted")).select("*", "noted.page_id")
    held = items["retry_page"].select(
        "topic_id", "retry_page.group_id", "retry_page.queue", "retry_page.page_id", "retry_page.retries"
    )
    return noted.join(held, ["topic_id", "group_id", "queue", "page_id"], "left")


def of_pages(items: Items, moment: Moment) -> DataFrame:
    """`page`, `page_missing`: each retry page that a cursor notes exists, and is as noted. A page never changes; it is
    removed when its first retry is due, or by a reset."""
    retries, noted = F.col("retries"), F.col("noted")
    count = F.aggregate(retries, F.lit(0), lambda total, retry: total + retry["count"])
    last = F.array_max(F.transform(retries, lambda retry: retry["start"] + retry["count"]))
    is_other = (
        (noted["due_ms"] != F.array_min(retries["deadline_ms"]))
        | (noted["count"] != count)
        | (noted["low"] != F.array_min(retries["start"]))
        | (last > F.col("next"))
    )
    is_missing = retries.isNull() & (noted["due_ms"] > moment.after_ms)
    name = F.concat(named(), F.lit(" notes retry page "), F.col("page_id"))
    is_quiet = moment.has_seen(F.coalesce(F.col("at_ms"), F.lit(0)))
    return findings(
        _pages(items, cursors(items)),
        finding("page", is_other, noted["low"], F.concat(name, F.lit(" as other than it is"))),
        finding("page_missing", is_missing, noted["low"], F.concat(name, F.lit(": not there")), proved(is_quiet)),
    )
