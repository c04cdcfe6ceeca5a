"""Dead letters, with their messages from the archive."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.audit.log import topics
from spark.transforms.items import Items
from spark.transforms.traffic import body_bytes

HOUR_MS = 3_600_000


def dead_messages(items: Items, messages: DataFrame) -> DataFrame:
    """Each dead letter of a group that exists: `schemas.DEAD_MESSAGES`. `messages`: `schemas.MESSAGES`; if the message
    of a letter is missing there, its columns are null."""
    groups = items["group"].select("topic_id", "group.group_id", F.col("group.name").alias("group"))
    letters = items["dead_letter"].select("topic_id", "dead_letter.*")
    named = letters.join(F.broadcast(groups), ["topic_id", "group_id"]).join(F.broadcast(topics(items)), "topic_id")
    place = ["topic_id", "queue", "offset"]
    wanted = items["dead_letter"].select("topic_id", "dead_letter.queue", "dead_letter.offset")
    said = messages.join(wanted, place, "left_semi").select(
        *place, "message_id", "key", "tag", "stored_at_ms", body_bytes().alias("body_bytes")
    )
    return named.join(said, place, "left").select(*schemas.DEAD_MESSAGES.fieldNames())


def dead_letters(dead: DataFrame) -> DataFrame:
    """The number of dead letters by reason and time: `schemas.DEAD_LETTERS`, from rows of `schemas.DEAD_MESSAGES`."""
    hour = (F.col("dead_at_ms") - F.col("dead_at_ms") % HOUR_MS).alias("hour_ms")
    counted = dead.groupBy("topic", "topic_id", "group", "reason", hour).agg(
        F.count("*").alias("letters"), F.max("attempts").alias("attempts_max")
    )
    return counted.select(*schemas.DEAD_LETTERS.fieldNames())
