"""Consuming: pop, and what settles its messages."""

from __future__ import annotations

from chalicelib.api import views
from chalicelib.api.operations import Json, Operations, operation
from chalicelib.base.fields import Fields, checked_name
from chalicelib.base.limits import (
    BATCH_MESSAGES_MAX,
    ID_CHARS_MAX,
    INVISIBLE_MS_MAX,
    NACK_DELAY_MS_MAX,
    POP_MESSAGES_DEFAULT,
    REASON_CHARS_MAX,
    RECEIPT_CHARS_MAX,
    WAIT_MS_MAX,
)
from chalicelib.consuming.claim import Pop

_POP_FIELDS = frozenset({"max_messages", "invisible_ms", "wait_ms", "consumer_id", "attempt_id", "ack"})


class Consuming(Operations):
    @operation
    def pop(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        ask = _pop(Fields(body, _POP_FIELDS))
        popped = self._in_topic(name, lambda found: self._service.consuming.pop(found, group_name, ask))
        return views.popped(name, popped, len(ask.ack))

    @operation
    def ack(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        receipts = _receipts(Fields(body, {"receipts"}))
        failed = self._in_topic(name, lambda found: self._service.consuming.ack(found, group_name, receipts))
        return {"acked": len(receipts) - len(failed), "failed": views.failures(failed)}

    @operation
    def nack(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "delay_ms", "reason"})
        receipts = _receipts(fields)
        delay_ms = fields.integer("delay_ms", 0, NACK_DELAY_MS_MAX)
        reason = _reason(fields)
        failed = self._in_topic(
            name, lambda found: self._service.consuming.nack(found, group_name, receipts, delay_ms, reason)
        )
        return {"nacked": len(receipts) - len(failed), "failed": views.failures(failed)}

    @operation
    def bury(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "reason"})
        receipts = _receipts(fields)
        reason = _reason(fields)
        failed = self._in_topic(name, lambda found: self._service.consuming.bury(found, group_name, receipts, reason))
        return {"buried": len(receipts) - len(failed), "failed": views.failures(failed)}

    @operation
    def extend(self, name: str, group_name: str, body: Json) -> Json:
        checked_name("group", group_name)
        fields = Fields(body, {"receipts", "invisible_ms"})
        receipts = _receipts(fields)
        invisible_ms = fields.integer("invisible_ms", 1, INVISIBLE_MS_MAX)
        if invisible_ms is None:
            raise fields.wrong("invisible_ms", f"given: an integer from 1 to {INVISIBLE_MS_MAX}")
        extended, failed = self._in_topic(
            name, lambda found: self._service.consuming.extend(found, group_name, receipts, invisible_ms)
        )
        return {"extended": views.extended(extended), "failed": views.failures(failed)}


def _pop(fields: Fields) -> Pop:
    return Pop(
        fields.integer("max_messages", 1, BATCH_MESSAGES_MAX) or POP_MESSAGES_DEFAULT,
        fields.integer("invisible_ms", 1, INVISIBLE_MS_MAX),
        fields.integer("wait_ms", 0, WAIT_MS_MAX) or 0,
        fields.text("consumer_id", ID_CHARS_MAX),
        fields.text("attempt_id", ID_CHARS_MAX),
        tuple(fields.strings("ack", BATCH_MESSAGES_MAX, RECEIPT_CHARS_MAX, least=0) or ()),
    )


def _receipts(fields: Fields) -> list[str]:
    receipts = fields.strings("receipts", BATCH_MESSAGES_MAX, RECEIPT_CHARS_MAX)
    if receipts is None:
        raise fields.wrong("receipts", f"given: a list of 1 to {BATCH_MESSAGES_MAX} strings")
    return receipts


def _reason(fields: Fields) -> str:
    return fields.text("reason", REASON_CHARS_MAX, chars_min=0) or ""
