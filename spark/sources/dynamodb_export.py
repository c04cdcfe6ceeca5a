"""The Python Data Source `dynamodb_export`: the items of an export as rows."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def items(spark: SparkSession, path: str) -> DataFrame:
    """The items of the export in this folder: `schemas.ITEMS`."""
    raise NotImplementedError


def quarantine(spark: SparkSession, path: str) -> DataFrame:
    """What of this export cannot be read: `schemas.QUARANTINE`."""
    raise NotImplementedError
