"""Asks AWS to export the table to S3: everything once, and then the changes of each day.

The request depends only on the day and the existing exports. All calls of one day make the same request with the same
token, so AWS makes one export. An incremental export starts where the unbroken chain of earlier ones ends; a failed one
is requested again the next day. AWS lists exports for 90 days and can go back 35. If the start of the chain is no
longer available, everything is exported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from chalicelib.core.base.limits import DAY_MS, MINUTE_MS, SECOND_MS
from chalicelib.core.base.records import record

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

EXPORT_MS_MIN = 15 * MINUTE_MS
EXPORT_MS_MAX = DAY_MS
"""The period that AWS allows for an incremental export."""

EXPORTS_AT_ONCE_MAX = 7
"""The most that one call requests after missed days; the next day requests the rest."""


class Span(NamedTuple):
    """An export, in ms since the epoch: everything at `to`, or the changes from `since` to `to`."""

    since: int | None
    to: int


class Restorable(NamedTuple):
    """The earliest time AWS can restore, ms since the epoch."""

    first: int
    last: int


@record
class ExportTarget:
    """`arn`: of the table. `prefix`: of the keys in the bucket."""

    arn: str
    bucket: str
    prefix: str

    def token(self, span: Span) -> str:
        """The same for every request for this export."""
        place = hashlib.blake2b(f"{self.arn} {self.bucket} {self.prefix}".encode(), digest_size=6).hexdigest()
        return f"{span.to // SECOND_MS:x}-{(span.since or 0) // SECOND_MS:x}-{place}"


def export(client: DynamoDBClient, table: str, bucket: str, now: int) -> dict[str, Any]:
    """Requests the exports that are due today. Returns `exports`, their ARNs, or the `reason` why there are none."""
    described = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    backups = described.get("PointInTimeRecoveryDescription", {})
    if "EarliestRestorableDateTime" not in backups:
        return {"exports": [], "reason": f"table {table} has no point-in-time recovery, which exports need"}
    restorable = Restorable(_ms(backups["EarliestRestorableDateTime"]), _ms(backups["LatestRestorableDateTime"]))
    target = ExportTarget(client.describe_table(TableName=table)["Table"]["TableArn"], bucket, table)
    wanted = due(_spans(client, target), restorable, now)
    if not wanted:
        return {"exports": [], "reason": "all is exported that can be by today"}
    return {"exports": [_ask(client, target, span) for span in wanted]}


def due(known: Iterable[Span], restorable: Restorable, now: int) -> list[Span]:
    """The exports to request, up to last midnight, if these exist or are in progress."""
    midnight = now // DAY_MS * DAY_MS
    until = midnight if midnight <= restorable.last else midnight - DAY_MS
    end = _chained(list(known))
    if end is None or end < restorable.first:
        full = Span(None, max(until, restorable.first))
        return [full] if full.to <= restorable.last else []
    wanted: list[Span] = []
    while until - end >= EXPORT_MS_MIN and len(wanted) < EXPORTS_AT_ONCE_MAX:
        to = min(end + EXPORT_MS_MAX, until)
        wanted.append(Span(end, to if not 0 < until - to < EXPORT_MS_MIN else until - EXPORT_MS_MIN))
        end = wanted[-1].to
    return wanted


def _chained(known: list[Span]) -> int | None:
    """The end of the chain that begins with the newest full export, or None without a full one."""
    end = max((span.to for span in known if span.since is None), default=None)
    if end is None:
        return None
    for since, to in sorted((span.since, span.to) for span in known if span.since is not None):
        if since <= end < to:
            end = to
    return end


def _spans(client: DynamoDBClient, target: ExportTarget) -> Iterator[Span]:
    """The exports to this place that have not failed."""
    more: dict[str, Any] = {}
    while True:
        listed = client.list_exports(TableArn=target.arn, **more)
        for summary in listed["ExportSummaries"]:
            if summary["ExportStatus"] != "FAILED":
                about: dict[str, Any] = client.describe_export(ExportArn=summary["ExportArn"])["ExportDescription"]  # type: ignore[assignment]
                if about.get("S3Bucket") == target.bucket and about.get("S3Prefix") == target.prefix:
                    yield from _span(about)
        if "NextToken" not in listed:
            return
        more = {"NextToken": listed["NextToken"]}


def _span(about: dict[str, Any]) -> Iterator[Span]:
    changes = about.get("IncrementalExportSpecification")
    if changes:
        yield Span(_ms(changes["ExportFromTime"]), _ms(changes["ExportToTime"]))
    elif "ExportTime" in about:
        yield Span(None, _ms(about["ExportTime"]))


def _ask(client: DynamoDBClient, target: ExportTarget, span: Span) -> str:
    what: dict[str, Any] = {"ExportType": "FULL_EXPORT", "ExportTime": _time(span.to)}
    if span.since is not None:
        changes = {"ExportFromTime": _time(span.since), "ExportToTime": _time(span.to), "ExportViewType": "NEW_IMAGE"}
        what = {"ExportType": "INCREMENTAL_EXPORT", "IncrementalExportSpecification": changes}
    answer = client.export_table_to_point_in_time(
        TableArn=target.arn,
        S3Bucket=target.bucket,
        S3Prefix=target.prefix,
        ExportFormat="DYNAMODB_JSON",
        ClientToken=target.token(span),
        **what,
    )
    return answer["ExportDescription"]["ExportArn"]


def _ms(at: Any) -> int:
    """Milliseconds since the epoch of a time from boto3. AWS keeps whole seconds."""
    return int(at.timestamp()) * SECOND_MS


def _time(ms: int) -> int:
    return ms // SECOND_MS
