"""Health, metrics, and the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib import COMMIT, VERSION
from chalicelib.api.operation import Family, Json, Text
from chalicelib.api.topics import totals
from chalicelib.core.base.fields import Answer, Sometimes, mapping, string
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.catalogue.topic import Topic
from chalicelib.service import Service

if TYPE_CHECKING:
    from chalicelib.core.admin.groups import GroupDetails
    from chalicelib.core.telemetry.exposition import GroupGauges

ABOUT = Family("About", __doc__)


class Health(Answer):
    """The service works.

    status: `ok`: the service and its store respond. `full`: they respond, but the disk of a local server is full, so it
        accepts only requests that free space.
    version: The release that is running.
    commit: The commit that the release was packaged from, followed by `-dirty` if files had changed since."""

    status = string(enum=["ok", "full"])
    version = string(examples=[VERSION])
    commit = Sometimes(string(examples=["79984cb0d1f5"]))


@ABOUT.operation("GET", "/health", "anyone", Health)
def get_health(service: Service) -> Json:
    """Check that the service works.

    The check includes a read from the store."""
    service.admin.topics.names(1, None)
    status = "full" if service.env.store.is_full else "ok"
    return {"status": status, "version": VERSION} | ({"commit": COMMIT} if COMMIT else {})


class Metrics(Text):
    """The metrics in the text format of Prometheus."""

    MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
    EXAMPLE = 'decant_ready_messages{topic="orders",group="billing"} 3.0\n'


@ABOUT.operation("GET", "/metrics", "read", Metrics)
def get_metrics(service: Service) -> str:
    """Get metrics for Prometheus.

    Contains the backlog of up to {BACKLOG_GROUPS_MAX} groups, at most a minute old, and the counters of this instance
    since it started. Each instance counts for itself; the label `process` tells them apart."""
    from chalicelib.core.telemetry import exposition  # it imports the Prometheus client

    at_ms, known, is_whole = service.admin.backlogs.read()
    gauges = [_gauges(at_ms, topic, details) for topic, details in known]
    backlogs = exposition.Gauges(at_ms, gauges, is_whole)
    return exposition.text(service.telemetry.totals, service.telemetry.process, backlogs)


def _gauges(at_ms: int, topic: Topic, details: GroupDetails) -> GroupGauges:
    from chalicelib.core.telemetry.exposition import GroupGauges

    progress = totals(topic, details)
    oldest = [queue.oldest_ready_at_ms for queue in details.queues if queue.oldest_ready_at_ms is not None]
    age_s = max(0, at_ms - min(oldest, default=at_ms)) / SECOND_MS
    ready, in_flight, retrying = progress["ready"], progress["in_flight"], progress["retrying"]
    name = details.group.name
    return GroupGauges(topic.name, name, ready, in_flight, retrying, progress["lag"], progress["dead"], age_s)


class Document(Answer):
    """This document.

    openapi: The version of OpenAPI.
    info: Title, version and conventions.
    paths: Every operation."""

    openapi = string(examples=["3.1.0"])
    info = mapping(examples=[{"title": "Decant"}])
    paths = mapping(examples=[{}])


@ABOUT.operation("GET", "/openapi.json", "read", Document, asks_store=False, is_filtered=True)
def get_openapi() -> Json:
    """Get this document.

    The document itself needs no store; checking a token does."""
    raise NotImplementedError("each door returns its own document")
