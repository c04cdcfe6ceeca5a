"""The outcome of a request: its reply, or its time-out. The first write wins. The item does not exist before, and its
key follows from the correlation id. So a reply and a time-out are each one conditional write, and only one of them
succeeds, however late the other arrives: a request that timed out never gets a reply.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from chalicelib.core.base.message import Message
from chalicelib.core.base.records import record
from chalicelib.core.log.segment import Entry
from chalicelib.core.requests.correlation import Correlation
from chalicelib.core.table.writes import Absent, Item, Set, Write

_FINGERPRINT_BYTES = 16


@record
class Replier:
    """The replier, from its receipt: the group, the message of the request, and when it was taken (0: unknown)."""

    group: str
    queue: int
    offset: int
    attempt: int
    taken_at_ms: int

    def as_attributes(self) -> dict[str, Any]:
        place = {"queue": self.queue, "offset": self.offset, "attempt": self.attempt}
        taken = {"taken_at": self.taken_at_ms} if self.taken_at_ms else {}
        return {"group": self.group, **place, **taken}


def fingerprint(reply: Message) -> bytes:
    """The same for the same body and properties."""
    content = orjson.dumps(reply.content(), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(content, digest_size=_FINGERPRINT_BYTES).digest()


def store(correlation: Correlation, entry: Entry, content: bytes, by: Replier | None) -> Write:
    """Stores the reply, unless the request has another reply or has timed out. `content`: its fingerprint."""
    about = {"at": entry.stored_at_ms, "entry": entry.as_value(), "content": content}
    return _write(correlation, {**about, **(by.as_attributes() if by else {})})


def time_out(correlation: Correlation, now: int) -> Write:
    """Ends the request without a reply, unless there is one."""
    return _write(correlation, {"at": now})


def is_reply(item: Item) -> bool:
    """Whether this is a reply, not a time-out."""
    return "entry" in item


def _write(correlation: Correlation, attributes: dict[str, Any]) -> Write:
    """If the write is refused, its caller uses the existing item, which may be its own."""
    call = {"asked_at": correlation.asked_at_ms, "reply_by": correlation.reply_by_ms, "ttl": correlation.ttl}
    return Write(
        correlation.key,
        (Absent(("at",)),),
        tuple(Set((name,), value) for name, value in {**attributes, **call}.items()),
    )
