"""Work that takes several calls, without I/O: a flow yields a `Step` or a `Pause`, and receives the answer, or the
error that the call has raised. Both faces of the client follow the same flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from decant import operations
from decant.calls import DEDUP_S, REQUEST_WAIT_MS_MAX, Backoff, Call, Json, Pause, given
from decant.errors import (
    DecantError,
    OutcomeUnknown,
    PartlySent,
    Problem,
    ReplyTimeout,
    RequestNotFound,
    SettingError,
    problem_of,
)
from decant.messages import Outgoing, Sent
from decant.payloads import Codec, Topic, body_of, encoded_in

T = TypeVar("T")
R = TypeVar("R")

BATCH_MESSAGES_MAX, BATCH_BYTES_MAX = 256, 4 * 1024 * 1024
HALF_MESSAGES_MAX = 32


class Step(NamedTuple):
    """A call, and how long it may take with its repeats. None: as long as any."""

    call: Call[Any]
    timeout_s: float | None = None


Flow = Generator[Step | Pause, Any, T]


class Time(NamedTuple):
    """Time and chance, as flows need them."""

    clock: Callable[[], float]
    random: Callable[[], float]
    timeout_s: float


# -- sending ----------------------------------------------------------------------------------------------------------


class Batch:
    """Messages of one call, until each is stored or has failed. `is_shared`: they come from several sends, so one that
    is malformed does not take the others with it."""

    def __init__(self, topic: str, messages: Sequence[Json], *, is_shared: bool = False) -> None:
        self._topic, self._messages, self._is_shared = topic, messages, is_shared
        self.results: list[Sent | DecantError | None] = [None] * len(messages)

    @property
    def pending(self) -> list[int]:
        """The places of those that are neither stored nor failed."""
        return [place for place, result in enumerate(self.results) if result is None]

    def call(self) -> Call[Any]:
        return operations.produce(self._topic, messages=[cast(Any, self._messages[place]) for place in self.pending])

    def answered(self, answer: Json) -> DecantError | None:
        """Takes the places of stored messages. Returns the last error of a message that can be repeated."""
        last = None
        for place, stored in zip(self.pending, answer["messages"], strict=True):
            if "error" not in stored:
                self.results[place] = sent_of(stored)
                continue
            last = _error_of(stored["error"])
            if isinstance(last, OutcomeUnknown) and "dedup_id" not in self._messages[place]:
                self.results[place] = last
        return last

    def failed(self, error: DecantError) -> None:
        """Fails those that caused the error, or else all."""
        bad = error.body.get("errors") if self._is_shared and isinstance(error, Problem) else None
        pending = self.pending
        if isinstance(error, Problem) and isinstance(bad, list) and len(pending) > 1:
            for entry in bad:
                self.results[pending[entry["index"]]] = problem_of(error.status, entry)
            return
        for place in pending:
            self.results[place] = error


def _error_of(error: Json) -> DecantError:
    problem = problem_of(429 if error["code"] == "QueueFull" else 503, error)
    if error.get("outcome") == "unknown":
        return OutcomeUnknown(f"the message may be stored: {problem}", problem)
    return problem


def sent_of(stored: Json) -> Sent:
    return Sent(stored["message_id"], stored["queue"], stored["offset"], stored.get("deliver_at_ms"))


def sending(batch: Batch, time: Time) -> Flow[None]:
    """Sends a batch: repeats what is not stored, in its order, until the time is over."""
    deadline = time.clock() + min(time.timeout_s, DEDUP_S)
    backoff = Backoff(time.random)
    while batch.pending:
        try:
            answer = yield Step(batch.call(), deadline - time.clock())
        except DecantError as error:
            batch.failed(error)
            continue
        last = batch.answered(answer)
        pause_s = backoff.next_s()
        if last and time.clock() + pause_s >= deadline:
            batch.failed(last)
        elif last:
            yield Pause(pause_s)


def sending_all(topic: Topic[T], values: Iterable[T | Outgoing[T]], time: Time) -> Flow[list[Sent]]:
    """Sends messages in batches, one after another, up to the first that fails."""
    results: list[Sent | DecantError] = []
    messages = [as_json(topic, value) for value in values]
    for batch in (Batch(topic.name, part) for part in batches(messages, weight_of)):
        yield from sending(batch, time)
        results += [result for result in batch.results if result is not None]
        if failed := [result for result in results if isinstance(result, DecantError)]:
            rest = [DecantError("an earlier message was not sent")] * (len(messages) - len(results))
            if any(isinstance(result, Sent) for result in results):
                raise PartlySent([*results, *rest])
            raise failed[0]
    return [result for result in results if isinstance(result, Sent)]


def as_json(topic: Topic[T], value: T | Outgoing[T]) -> Json:
    """The message as the service takes it."""
    return value.as_json(topic) if isinstance(value, Outgoing) else body_of(topic.codec.encode(value))


def batches(items: Iterable[T], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """Parts that each fit into a call. `weigh`: the bytes of an item."""
    part: list[T] = []
    size = 0
    for item in items:
        weight = weigh(item)
        if part and is_full(len(part), size + weight):
            yield part
            part, size = [], 0
        part.append(item)
        size += weight
    if part:
        yield part


def is_full(count: int, size: int) -> bool:
    """Whether a call of so many messages has no room for one more, which makes it `size` bytes."""
    return count >= BATCH_MESSAGES_MAX or size > BATCH_BYTES_MAX


def weight_of(message: Json) -> int:
    """The bytes of the body, about as many as it has in JSON."""
    body = message.get("body")
    if body is None:
        return len(message["body_base64"])
    return len(body) if len(body) < 1_024 else len(json.dumps(body))


# -- requests ---------------------------------------------------------------------------------------------------------


def requesting(topic: Topic[T], outgoing: Outgoing[T], reply: Codec[R], timeout_s: float, time: Time) -> Flow[R]:
    """Sends a request, and waits for its reply. Raises ReplyTimeout."""
    ends = time.clock() + timeout_s
    if foreign := outgoing.fields.keys() - _OF_REQUESTS:
        raise SettingError(f"a request has no {', '.join(sorted(foreign))}; it has {', '.join(sorted(_OF_REQUESTS))}")
    fields = outgoing.as_json(topic)
    try:
        answer = yield Step(operations.request(topic.name, **fields, timeout_ms=round(timeout_s * 1_000)))
    except OutcomeUnknown as error:
        answer = yield from _sent_perhaps(error)
    while "reply" not in answer:
        wait_ms = min(max(round((ends - time.clock()) * 1_000), LAST_LOOK_MS), REQUEST_WAIT_MS_MAX)
        if time.clock() > ends + time.timeout_s:
            raise ReplyTimeout(504, {"code": "ReplyTimeout", "detail": f"no reply came within {timeout_s} s"})
        answer = yield Step(operations.get_reply(answer["correlation_id"], wait_ms=wait_ms))
    return reply.decode(encoded_in(answer["reply"]))


_OF_REQUESTS = frozenset({"key", "tag", "properties", "queue", "zone"})
LAST_LOOK_MS = 500
"""How long the last call waits beyond the time: it is the service that says when a request has timed out."""


def _sent_perhaps(error: OutcomeUnknown) -> Flow[Json]:
    """The id of a request whose outcome is unknown: a reply shows that it was sent."""
    id_ = error.problem and error.problem.body.get("correlation_id")
    if not id_:
        raise error
    try:
        answer: Json = yield Step(operations.get_reply(id_))
    except RequestNotFound:
        raise error from None
    return answer


# -- transactions -----------------------------------------------------------------------------------------------------


class Begun(Generic[T]):
    """Transactions of one topic that are begun together, and decided together."""

    def __init__(self, topic: Topic[T], check_after_ms: int | None, rollback_after_ms: int | None) -> None:
        self._topic = topic
        self._limits = given(check_after_ms=check_after_ms, rollback_after_ms=rollback_after_ms)
        self.ids: list[str] = []
        """The transactions that are begun."""
        self.sent: list[Sent] = []
        """Where the messages are, once they are committed."""

    def begin(self, values: Iterable[T | Outgoing[T]]) -> Flow[str]:
        """Stores half messages. Returns the id of their transaction."""
        messages = [as_json(self._topic, value) for value in values]
        if not 0 < len(messages) <= HALF_MESSAGES_MAX:
            raise SettingError(f"a transaction takes 1 to {HALF_MESSAGES_MAX} messages at a time, not {len(messages)}")
        call = operations.begin_transaction(self._topic.name, messages=cast(Any, messages), **self._limits)
        begun = yield Step(call)
        self.ids.append(begun["transaction_id"])
        return self.ids[-1]

    def commit(self) -> Flow[None]:
        """Commits all. Raises the first error, once the others are committed."""
        errors = []
        for id_ in self.ids:
            try:
                answer = yield Step(operations.commit_transaction(self._topic.name, id_))
            except DecantError as error:
                errors.append(error)
            else:
                self.sent += map(sent_of, answer["messages"])
        if errors:
            raise errors[0]

    def roll_back(self) -> Flow[None]:
        """Rolls all back. The service itself rolls back, later, what this cannot."""
        for id_ in self.ids:
            try:
                yield Step(operations.rollback_transaction(self._topic.name, id_))
            except DecantError as error:
                import logging  # which few programs need

                logging.getLogger("decant").warning("transaction %s is not rolled back: %s", id_, error)


# -- lists ------------------------------------------------------------------------------------------------------------


def items_of(page: Mapping[str, Any]) -> list[Any]:
    """The items of a page, whatever their name."""
    return next(list(value) for name, value in page.items() if name != "next")
