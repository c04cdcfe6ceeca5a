"""The service asks AWS for one export a day: of the whole table at first, and then of the changes since, without a
gap."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import boto3
import pytest
from chalice.test import Client
from hypothesis import given
from hypothesis import strategies as st

from app import app
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, MINUTE_MS
from chalicelib.core.store.dynamodb import boto as tables
from chalicelib.core.store.dynamodb import exports
from chalicelib.core.store.dynamodb.exports import EXPORT_MS_MIN, EXPORTS_AT_ONCE_MAX, Restorable, Span, due
from tests.support import moto_aws

TODAY = 20_000 * DAY_MS
NOW = TODAY + 3 * HOUR_MS
LONG = Restorable(TODAY - 35 * DAY_MS, NOW - 5 * MINUTE_MS)


def test_all_of_the_table_is_exported_first() -> None:
    assert due([], LONG, NOW) == [Span(None, TODAY)]


def test_a_table_restorable_only_since_today_is_exported_as_of_then() -> None:
    assert due([], Restorable(TODAY + HOUR_MS, NOW), NOW) == [Span(None, TODAY + HOUR_MS)]


def test_then_each_day_has_what_changed_since_the_day_before() -> None:
    known = [Span(None, TODAY - 2 * DAY_MS), Span(TODAY - 2 * DAY_MS, TODAY - DAY_MS)]
    assert due(known, LONG, NOW) == [Span(TODAY - DAY_MS, TODAY)]
    assert due([*known, Span(TODAY - DAY_MS, TODAY)], LONG, NOW) == []


def test_an_export_that_failed_is_asked_for_again_with_what_came_after_it() -> None:
    known = [Span(None, TODAY - 3 * DAY_MS), Span(TODAY - 2 * DAY_MS, TODAY - DAY_MS)]
    assert due(known, LONG, NOW) == [Span(TODAY - at * DAY_MS, TODAY - (at - 1) * DAY_MS) for at in (3, 2, 1)]


def test_a_chain_that_ended_before_the_restorable_time_starts_over() -> None:
    assert due([Span(None, TODAY - 40 * DAY_MS)], LONG, NOW) == [Span(None, TODAY)]


def test_just_after_midnight_the_day_is_not_over_yet() -> None:
    known = [Span(None, TODAY - DAY_MS)]
    assert due(known, Restorable(LONG.first, TODAY - MINUTE_MS), TODAY + MINUTE_MS) == []


@given(st.integers(MINUTE_MS, 34 * DAY_MS))
def test_export_spans_follow_each_other_and_are_as_long_as_aws_requires(missed_ms: int) -> None:
    end = TODAY - missed_ms
    wanted = due([Span(None, end)], LONG, NOW)
    for span in wanted:
        assert span.since == end
        assert EXPORT_MS_MIN <= span.to - span.since <= DAY_MS
        end = span.to
    assert len(wanted) <= EXPORTS_AT_ONCE_MAX
    assert len(wanted) == EXPORTS_AT_ONCE_MAX or 0 <= TODAY - end < EXPORT_MS_MIN


def with_times(given: dict[str, Any]) -> dict[str, Any]:
    """As boto3 reads what it was given in seconds."""

    def read(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return with_times(value)
        return datetime.fromtimestamp(value, UTC) if name.endswith("Time") else value

    return {name: read(name, value) for name, value in given.items()}


class Aws:
    """A minimal AWS for exports: moto gives no times, and takes every request for a new one."""

    def __init__(self, restorable: Restorable) -> None:
        self.restorable, self.asked, self.statuses = restorable, {}, {}

    asked: dict[str, dict[str, Any]]
    statuses: dict[str, str]

    def describe_continuous_backups(self, **_: Any) -> Any:
        first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in self.restorable)
        times = {"EarliestRestorableDateTime": first, "LatestRestorableDateTime": last}
        return {"ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": times}}

    def describe_table(self, **_: Any) -> Any:
        return {"Table": {"TableArn": "arn:table"}}

    def list_exports(self, NextToken: str = "0", **_: Any) -> Any:  # noqa: N803
        """A page for each."""
        page = list(self.asked)[int(NextToken) :]
        more = {"NextToken": str(int(NextToken) + 1)} if len(page) > 1 else {}
        listed = [{"ExportArn": token, "ExportStatus": self.statuses.get(token, "COMPLETED")} for token in page[:1]]
        return {"ExportSummaries": listed, **more}

    def describe_export(self, ExportArn: str) -> Any:  # noqa: N803
        return {"ExportDescription": with_times(self.asked[ExportArn])}

    def export_table_to_point_in_time(self, ClientToken: str, **given: Any) -> Any:  # noqa: N803
        assert self.asked.setdefault(ClientToken, given) == given, "the same token for another export"
        return {"ExportDescription": {"ExportArn": ClientToken}}


def ask(aws: Any, now: int, bucket: str = "bucket") -> list[str]:
    told: list[str] = exports.export(aws, "decant", bucket, now)["exports"]
    return told


def test_two_calls_of_one_day_ask_for_the_same_export() -> None:
    aws, late = Aws(LONG), Aws(LONG)
    assert ask(aws, NOW) == ask(late, NOW + HOUR_MS)
    assert ask(aws, NOW + HOUR_MS) == []
    aws.restorable = Restorable(LONG.first + DAY_MS, LONG.last + DAY_MS)
    assert len(ask(aws, NOW + DAY_MS)) == 1
    full, changes = aws.asked.values()
    assert full["ExportType"] == "FULL_EXPORT"
    assert full["S3Prefix"] == "decant"
    spec = changes["IncrementalExportSpecification"]
    assert spec["ExportFromTime"] == full["ExportTime"]
    assert spec["ExportViewType"] == "NEW_IMAGE"


def test_exports_that_failed_and_exports_to_other_places_do_not_count() -> None:
    aws = Aws(LONG)
    (first,) = ask(aws, NOW)
    (other,) = ask(aws, NOW, "another-bucket")
    assert first != other
    aws.statuses[first] = "FAILED"
    assert ask(aws, NOW) == [first]


def called() -> Any:
    """The result of the scheduled function."""
    with Client(app) as client:
        event = client.events.generate_cw_event("aws.events", "Scheduled Event", {}, [])
        return client.lambda_.invoke("export", event).payload


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A table and a bucket."""
    moto_aws.start()
    table, bucket = f"t-{uuid4()}", f"b-{uuid4()}"
    client = boto3.client("dynamodb")
    tables.ensure(client, table)
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)
    monkeypatch.setenv("DECANT_TABLE", table)
    monkeypatch.setenv("DECANT_EXPORT_BUCKET", bucket)
    yield table, bucket
    client.delete_table(TableName=table)


def test_the_scheduled_function_asks_for_it(place: tuple[str, str]) -> None:
    table, bucket = place
    client = boto3.client("dynamodb")
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "sk": {"S": "b"}})
    assert "has no point-in-time recovery" in called()["reason"]
    client.update_continuous_backups(
        TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    (arn,) = called()["exports"]
    while client.describe_export(ExportArn=arn)["ExportDescription"]["ExportStatus"] == "IN_PROGRESS":
        pass
    s3 = boto3.client("s3", region_name="us-east-1")
    (name,) = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert name.startswith(f"{table}/AWSDynamoDB/")
    data = gzip.decompress(s3.get_object(Bucket=bucket, Key=name)["Body"].read())
    assert json.loads(data)["Item"]["pk"] == {"S": "a"}


def test_without_a_bucket_it_does_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECANT_EXPORT_BUCKET", raising=False)
    assert called() == {
        "exports": [],
        "reason": "DECANT_EXPORT_BUCKET, where exports go, is not set",
    }
