"""Verdicts on messages, and the calls that tell the service of them. Without I/O."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from decant import operations
from decant.calls import Call, Json, given
from decant.errors import AlreadyReplied, DecantError, RequestExpired, RequestNotFound
from decant.flows import Flow, Step
from decant.messages import Bury, Message, Reply, Retry
from decant.payloads import Codec, body_of

RECEIPTS_MAX = 256
"""In a call."""
REASON_CHARS_MAX = 256
LINGER_S = 0.05
"""How long an ack waits for a pop to ride on."""


class Kind(enum.Enum):
    ACK = "ack"
    NACK = "nack"
    BURY = "bury"
    RELEASE = "release"
    """The message goes back at once, since nobody has begun to handle it."""


class Verdict(NamedTuple):
    """The fate of a message. `reply`: the fields of a reply that is sent before."""

    kind: Kind
    reason: str | None = None
    delay_ms: int | None = None
    reply: Json | None = None


ACK = Verdict(Kind.ACK)
RELEASE = Verdict(Kind.RELEASE)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def failed(error: BaseException) -> Verdict:
    """The verdict on a message whose handler raised this."""
    if isinstance(error, Bury):
        return Verdict(Kind.BURY, _text(error.reason) or None)
    if isinstance(error, Retry):
        return Verdict(Kind.NACK, _text(error.reason) or None, error.delay_ms)
    return nack(f"{type(error).__name__}: {error}")


def nack(reason: str) -> Verdict:
    return Verdict(Kind.NACK, _text(reason))


def _text(reason: object) -> str:
    """A reason that the service accepts: half a surrogate pair is no text."""
    return str(reason).encode(errors="replace").decode()[:REASON_CHARS_MAX]


def returned(value: Any, message: Message[Any], codec: Codec[Any]) -> Verdict:
    """The verdict on a message whose handler returned this. Raises TypeError if nothing has run yet."""
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise TypeError(f"the handler returned {value!r:.80} in place of a result")
    if isinstance(value, BaseException):  # `return Retry()` says what `raise Retry()` says
        return failed(value)
    if value is None or message.correlation_id is None:
        return ACK
    reply = value if isinstance(value, Reply) else Reply(value)
    return ACK._replace(reply={**body_of(codec.encode(reply.value)), **given(properties=reply.properties or None)})


def returned_for_all(value: Any, messages: Sequence[Message[Any]], codec: Codec[Any]) -> list[Verdict]:
    """The verdicts on a batch: the handler returned nothing, one verdict for all, or a list or tuple with
    one for each."""
    if not isinstance(value, list | tuple):
        return [returned(value, message, codec) for message in messages]
    if len(value) != len(messages):
        raise TypeError(f"the handler returned {len(value)} results for {len(messages)} messages")
    return [returned(each, message, codec) for each, message in zip(value, messages, strict=True)]


REFUSALS = (RequestExpired, AlreadyReplied, RequestNotFound)
"""The errors of replies that no repeat would get accepted."""


class Answered(NamedTuple):
    """The verdict on a message whose reply was sent. `refused`: why the service refuses any reply."""

    verdict: Verdict
    refused: DecantError | None = None


def answering(message: Message[Any], verdict: Verdict) -> Flow[Answered]:
    """Sends the reply, if there is one. A reply that came too late is none, and the message is done."""
    if verdict.reply is None or message.correlation_id is None or message.lost:
        return Answered(verdict)
    try:
        yield Step(operations.reply(message.correlation_id, **verdict.reply))
    except REFUSALS as error:
        return Answered(ACK, error)
    except DecantError as error:
        return Answered(failed(error))
    return Answered(ACK)


# -- calls -------------------------------------------------------------------------------------------------------------


class Settlement(NamedTuple):
    """A call that settles messages."""

    call: Call[Any]
    verdict: Verdict
    receipts: list[str]


class Settlements:
    """Verdicts on their way to the service. `now` is in seconds."""

    def __init__(self, topic: str, group: str) -> None:
        self._topic, self._group = topic, group
        self._waiting: dict[Verdict, list[str]] = {}
        """Receipts, by their verdict."""
        self._acks_since = 0.0
        self._not_before = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, receipt: str, verdict: Verdict, now: float) -> None:
        """The receipt of a message, and what becomes of it."""
        key = verdict._replace(reply=None)
        if key == ACK and ACK not in self._waiting:
            self._acks_since = now
        self._waiting.setdefault(key, []).append(receipt)

    def due_s(self, now: float, *, is_hurried: bool = False) -> float | None:
        """How long until the next call is to be made, 0 if now. None: there is nothing to settle."""
        if not self._waiting:
            return None
        is_urgent = is_hurried or self._waiting.keys() != {ACK} or len(self._waiting[ACK]) >= RECEIPTS_MAX
        at = 0.0 if is_urgent else self._acks_since + LINGER_S
        return max(at - now, self._not_before - now, 0.0)

    def acks(self) -> list[str]:
        """Takes the acks that ride on a pop."""
        return self._taken(ACK)

    def take(self) -> Settlement:
        """Takes the receipts of the next call."""
        verdict = next(iter(self._waiting))
        receipts = self._taken(verdict)
        return Settlement(self._call(verdict, receipts), verdict, receipts)

    def put_back(self, receipts: list[str], verdict: Verdict, not_before: float) -> None:
        """The call was not carried out, as far as is known: settling twice does no harm."""
        if receipts:
            self._waiting[verdict] = receipts + self._waiting.get(verdict, [])
            self._not_before = not_before

    def _taken(self, verdict: Verdict) -> list[str]:
        receipts = self._waiting.pop(verdict, [])
        if rest := receipts[RECEIPTS_MAX:]:
            self._waiting[verdict] = rest
        return receipts[:RECEIPTS_MAX]

    def _call(self, verdict: Verdict, receipts: list[str]) -> Call[Any]:
        place = self._topic, self._group
        if verdict.kind is Kind.ACK:
            return operations.ack(*place, receipts=receipts)
        if verdict.kind is Kind.BURY:
            return operations.bury(*place, receipts=receipts, reason=verdict.reason)
        if verdict.kind is Kind.NACK:
            return operations.nack(*place, receipts=receipts, reason=verdict.reason, delay_ms=verdict.delay_ms)
        return operations.extend(*place, receipts=receipts, invisible_ms=0)


def failures_of(answer: Mapping[str, Any]) -> list[Any]:
    """The receipts that did not count, and why."""
    return list(answer.get("failed") or ())
