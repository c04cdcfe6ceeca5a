"""Stores the records of an event as messages, and says in the way of its source which ones are not stored.

Each record ends in one of three ways: stored, rejected (stored in the topic of rejects, with the reason), or reported.
A record is rejected if it can never be stored. It is reported if it may be stored later, or if there is no topic of
rejects: then its source gives it again, or keeps it where the deployment says.

Order: records of one *lane* (the shard of a stream, a group of a FIFO queue) go into a topic in the order of the event,
and one behind a record that failed is not tried, since it would overtake it. Within one request to produce, a queue
stores its messages in order or stops; so messages with one key keep their order through any retries, as long as their
`dedup_id` is remembered. A rejected record holds up none: it will never come."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    ID_CHARS_MAX,
    MIB,
    REASON_CHARS_MAX,
    SECOND_MS,
)
from chalicelib.core.telemetry.record import note
from chalicelib.doors.dispatch import OperationCall, answer
from chalicelib.doors.functions import left_ms
from chalicelib.doors.ingest.rules import Rule, about, fitting, parse, parse_rejects, rule_for
from chalicelib.doors.ingest.sources import Arrival, Json, Rejection, arrivals

_log = logging.getLogger("decant")

UNSTORABLE = ("InvalidField", "UnknownField", "MessageTooLarge")
"""Codes of produce that say that a message can never be stored."""

PART_CHARS_MAX = MIB
"""A part of a rejected record: as JSON inside JSON inside JSON, each of its characters has at most four bytes."""


BATCH_MS_MIN = SECOND_MS
"""With less time than that no batch is begun."""


class RecordsNotStored(Exception):
    """Some records of an asynchronous event are not stored: raised so that Lambda repeats it. The others are found
    again by their `dedup_id`."""


class Parcel(NamedTuple):
    """A message on its way into a topic: a record, or a part of one that was rejected."""

    arrival: Arrival
    message: Json
    is_reject: bool = False

    @property
    def body_bytes(self) -> int:
        text, data = self.message.get("body"), self.message.get("body_base64")
        return len(text.encode(errors="surrogatepass")) if text is not None else len(data or "") * 3 // 4


def ingested(event: object, context: Any) -> Json:
    """Takes one event, by the settings of the deployment. Raises UnknownEvent, NotStored, and what `parse` and
    `check_stage` raise."""
    wiring.settings.check_stage()
    telemetry = wiring.telemetry()
    with telemetry.call("ingest") if telemetry else nullcontext():
        rules, rejects = parse(wiring.settings.ingest_rules), parse_rejects(wiring.settings.ingest_rejects)
        return Ingest(rules, rejects, left_ms(context)).run(event)


class Ingest:
    """Takes one event. `rejects`: the topic of rejects, if there is one. `left_ms`: how much time there is."""

    def __init__(self, rules: Sequence[Rule], rejects: str | None, left_ms: Callable[[], int | None]) -> None:
        self._rules, self._rejects, self._left_ms = rules, rejects, left_ms
        self._rejected: list[Parcel] = []
        self._failed_at: dict[str, int] = {}
        """By lane, the place of the first record that is not stored."""

    def run(self, event: object) -> Json:
        """The answer for Lambda. Raises UnknownEvent, and NotStored where Lambda reads no answer."""
        arrived = arrivals(event)
        by_topic: dict[str, list[Parcel]] = {}
        for arrival in arrived:
            self._sort(arrival, by_topic)
        for topic, parcels in by_topic.items():
            self._deliver(topic, parcels)
        self._deliver(self._rejects or "", self._rejected)
        return self._answer(arrived)

    def _sort(self, arrival: Arrival, by_topic: dict[str, list[Parcel]]) -> None:
        topic = ""
        try:
            rule = rule_for(self._rules, arrival)
            topic = rule.topic
            parcel = Parcel(arrival, rule.message(arrival))
        except DecantError as error:
            self._reject(arrival, topic, Rejection(error.code, error.detail))
        except RecursionError:
            self._reject(arrival, topic, Rejection("InvalidField", "what an expression takes of it is nested too deep"))
        else:
            by_topic.setdefault(topic, []).append(parcel)

    def _deliver(self, topic: str, parcels: Sequence[Parcel]) -> None:
        for batch in _batches(parcels):
            self._produce(topic, batch)

    def _produce(self, topic: str, parcels: Sequence[Parcel]) -> None:
        batch = [parcel for parcel in parcels if self._may_go(parcel.arrival)]
        if not batch:
            return
        request = {"messages": [parcel.message for parcel in batch]}
        call = OperationCall(OPERATIONS["produce"], (topic,), lambda: request, {}, left_ms=self._left_ms, is_own=True)
        status, body = answer(call)
        if status in (200, 207):
            for parcel, result in zip(batch, body["messages"], strict=True):
                if error := result.get("error"):
                    self._fail(parcel.arrival, Rejection(error["code"], error["detail"]))
        elif body["code"] in UNSTORABLE:
            self._produce_good_ones(topic, batch, body)
        else:
            for parcel in batch:
                self._fail(parcel.arrival, Rejection(body["code"], body["detail"]))

    def _produce_good_ones(self, topic: str, batch: Sequence[Parcel], problem: Json) -> None:
        """Nothing of the batch was stored: some messages can never be. The problem lists them, unless a hook refused
        them: then each is tried alone."""
        wrong = {error["index"]: Rejection(error["code"], error["detail"]) for error in problem.get("errors", ())}
        if len(batch) == 1:
            wrong = {0: Rejection(problem["code"], problem["detail"])}
        for index, trouble in wrong.items():
            self._reject(batch[index].arrival, topic, trouble, batch[index].is_reject)
        good = [parcel for index, parcel in enumerate(batch) if index not in wrong]
        for part in [good] if wrong else [[parcel] for parcel in good]:
            self._produce(topic, part)

    def _may_go(self, arrival: Arrival) -> bool:
        """Fails the record if it has to wait for an earlier one, or there is no time for it."""
        left_ms = self._left_ms()
        if left_ms is not None and left_ms < BATCH_MS_MIN:
            self._fail(arrival, Rejection("StoreUnavailable", "the invocation has no time left"))
        elif arrival.lane is not None and arrival.place > self._failed_at.get(arrival.lane, arrival.place):
            self._fail(arrival, Rejection("StoreUnavailable", "an earlier record is not stored"))
        return arrival.trouble is None

    def _fail(self, arrival: Arrival, trouble: Rejection) -> None:
        arrival.trouble = arrival.trouble or trouble
        if arrival.lane is not None:
            self._failed_at[arrival.lane] = min(arrival.place, self._failed_at.get(arrival.lane, arrival.place))

    def _reject(self, arrival: Arrival, topic: str, trouble: Rejection, is_reject: bool = False) -> None:
        """Sends the record to the topic of rejects; it fails if there is none, or that does not take it."""
        if self._rejects is None or is_reject:
            self._fail(arrival, trouble)
        else:
            self._rejected += [Parcel(arrival, message, True) for message in _as_rejects(arrival, topic, trouble)]

    def _answer(self, arrived: Sequence[Arrival]) -> Json:
        failed = [arrival for arrival in arrived if arrival.trouble]
        rejected = {parcel.arrival.place for parcel in self._rejected if not parcel.arrival.trouble}
        note(records=len(arrived), rejected=len(rejected), not_stored=len(failed))
        if failed or rejected:
            _log.warning("%s", _summary(arrived, failed, len(rejected)))
        if failed and failed[0].source.reports is None:
            raise RecordsNotStored(_summary(arrived, failed, len(rejected)))
        listed = failed[:1] if failed and failed[0].source.reports == "first" else failed
        return {"batchItemFailures": [{"itemIdentifier": arrival.id} for arrival in listed]}


def _as_rejects(arrival: Arrival, topic: str, trouble: Rejection) -> Iterator[Json]:
    """The record as JSON in ASCII, in as many messages as it takes, which say why it was rejected."""
    text = json.dumps(arrival.record)
    parts = range(0, len(text), PART_CHARS_MAX)
    reason = f"{trouble.code}: {trouble.detail}"[:REASON_CHARS_MAX]
    properties = {**about(arrival), "source": arrival.source.name, "topic": topic, "reason": reason}
    for number, start in enumerate(parts, 1):
        part = f"{number}/{len(parts)}"
        yield {
            "body": text[start : start + PART_CHARS_MAX],
            "properties": {**properties, "part": part},
            "dedup_id": fitting(f"{arrival.dedup_id} {part}", ID_CHARS_MAX),
        }


def _batches(parcels: Iterable[Parcel]) -> Iterator[list[Parcel]]:
    """In order, as many as one request to produce takes. One that is too large on its own goes alone."""
    batch: list[Parcel] = []
    size = 0
    for parcel in parcels:
        if batch and (len(batch) == BATCH_MESSAGES_MAX or size + parcel.body_bytes > BODY_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(parcel)
        size += parcel.body_bytes
    if batch:
        yield batch


def _summary(arrived: Sequence[Arrival], failed: Sequence[Arrival], rejected: int) -> str:
    """For the log: without what is in the records."""
    stored = len(arrived) - len(failed) - rejected
    text = f"of {len(arrived)} records from {quoted(arrived[0].origin)} {stored} are stored, {rejected} rejected"
    if not failed:
        return text
    codes = Counter(arrival.trouble.code for arrival in failed if arrival.trouble)
    counts = ", ".join(f"{count} {code}" for code, count in codes.items())
    return f"{text}, {len(failed)} not stored ({counts}), {quoted(failed[0].id)} first"
