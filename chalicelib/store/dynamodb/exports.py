"""Asks AWS to export the table to S3: all of it once, and then what has changed, a day at a time.

What is asked for depends only on the day and on the exports that there are, so any number of calls on one day, at once
or one after another, ask for the same, under the same token, and AWS knows it as one export. An incremental export
begins where an unbroken chain of those before it ends: one that failed is asked for again, the next day. AWS lists
exports for 90 days and can go back 35; when the chain has no beginning there any more, all is exported anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from chalicelib.base.limits import DAY_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

EXPORT_MS_MIN = 15 * MINUTE_MS
EXPORT_MS_MAX = DAY_MS
"""What an incremental export of AWS covers."""

EXPORTS_AT_ONCE_MAX = 7
"""Asked for by one call, where some were missed; the rest are left to the next day."""

_FAILED = "FAILED"


class Span(NamedTuple):
    """What an export shows, ms since the epoch: all that there was at `to`, or what changed since `since`."""

    since: int | None
    to: int


class Restorable(NamedTuple):
    """The time that AWS can go back to, ms since the epoch."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Target:
    """`arn`: of the table. `prefix`: of the keys in the bucket."""

    arn: str
    bucket: str
    prefix: str

    def token(self, span: Span) -> str:
        """The same for everybody who asks for this export."""
        place = hashlib.blake2b(f"{self.arn} {self.bucket} {self.prefix}".encode(), digest_size=6).hexdigest()
        return f"{span.to // SECOND_MS:x}-{(span.since or 0) // SECOND_MS:x}-{place}"


def export(client: DynamoDBClient, table: str, bucket: str, now: int) -> dict[str, Any]:
    """Asks for what is to be exported by today. Returns `exports`, the ARNs, and, where there are none, why."""
    described = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    backups = described.get("PointInTimeRecoveryDescription", {})
    if "EarliestRestorableDateTime" not in backups:
        return {"exports": [], "reason": f"table {table} has no point-in-time recovery, which exports need"}
    restorable = Restorable(_ms(backups["EarliestRestorableDateTime"]), _ms(backups["LatestRestorableDateTime"]))
    target = Target(client.describe_table(TableName=table)["Table"]["TableArn"], bucket, table)
    wanted = due(_spans(client, target), restorable, now)
    if not wanted:
        return {"exports": [], "reason": "all is exported that can be by today"}
    return {"exports": [_ask(client, target, span) for span in wanted]}


def due(known: Iterable[Span], restorable: Restorable, now: int) -> list[Span]:
    """What to ask for, where these exports are there or under way: up to the midnight before."""
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
    """Where the chain that begins with the newest full export ends; None: there is no full one."""
    end = max((span.to for span in known if span.since is None), default=None)
    if end is None:
        return None
    for since, to in sorted((span.since, span.to) for span in known if span.since is not None):
        if since <= end < to:
            end = to
    return end


def _spans(client: DynamoDBClient, target: Target) -> Iterator[Span]:
    """Of the exports to this place that have not failed."""
    more: dict[str, Any] = {}
    while True:
        listed = client.list_exports(TableArn=target.arn, **more)
        for summary in listed["ExportSummaries"]:
            if summary["ExportStatus"] != _FAILED:
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


def _ask(client: DynamoDBClient, target: Target, span: Span) -> str:
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
    """Of a time as boto3 has it. AWS keeps whole seconds."""
    return int(at.timestamp()) * SECOND_MS


def _time(ms: int) -> int:
    return ms // SECOND_MS
