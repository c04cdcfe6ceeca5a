"""Bugs planted into requests and replies."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.message import Message
from chalicelib.core.requests import reply, replying, waiting
from chalicelib.core.requests.correlation import Correlation
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Key
from tests.simulation.mutants import planted, without


@planted
def replies_that_overwrite() -> Any:
    """The last reply counts."""
    return patch.object(replying, "store", lambda *args: without(reply.store(*args), Absent))


@planted
def late_replies_that_are_taken() -> Any:
    """A reply counts though the deadline is over, if nobody was told so."""
    true = replying.Answerer.reply

    def taken(self: Any, correlation: Correlation, *args: Any) -> Any:
        return true(self, dataclasses.replace(correlation, timeout_ms=correlation.timeout_ms + 10_000), *args)

    return patch.object(replying.Answerer, "reply", taken)


@planted
def time_outs_that_do_not_last() -> Any:
    """A caller is told that no reply came, and one may come."""

    def told(correlation: Correlation, now: int) -> Any:
        made = reply.time_out(correlation, now)
        return dataclasses.replace(made, key=Key(made.key.pk, made.key.sk + "t"))

    return patch.object(waiting, "time_out", told)


@planted
def waits_that_end_early() -> Any:
    """A call is told that no reply came though there is time left."""
    true = waiting.Waiter.wait

    def wait(self: Any, correlation: Correlation, *args: Any) -> Any:
        return true(self, dataclasses.replace(correlation, timeout_ms=max(1, correlation.timeout_ms - 800)), *args)

    return patch.object(waiting.Waiter, "wait", wait)


@planted
def replies_to_somebody_else() -> Any:
    """The requests of a topic share one place for their replies."""
    return patch.object(Correlation, "key", property(lambda self: keys.reply(self.topic_id, bytes(8))))


@planted
def replies_that_are_not_stored() -> Any:
    """A reply is accepted, and only who waits in the same instance gets it."""

    def store(correlation: Correlation, *args: Any) -> Any:
        made = reply.store(correlation, *args)
        return dataclasses.replace(made, key=Key(made.key.pk, made.key.sk + "x"))

    return patch.object(replying, "store", store)


@planted
def requests_that_are_delivered_late() -> Any:
    """A request is delivered though nobody may answer it any more."""
    return patch.object(Message, "lives_ms", lambda self, _: self.ttl_ms)
