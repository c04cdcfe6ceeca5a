"""Bugs planted into the calls of a pushed group."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.push.outside import ConsumerResponse
from tests.history import pushes
from tests.simulation.bugs.lies import Plant, calling, unguarded, within
from tests.simulation.bugs.registry import shown_by
from tests.simulation.plans import PUSHED
from tests.simulation.pushes import Consumer


@shown_by(pushes.calls_keep_to_their_number, PUSHED)
def slots_that_anybody_takes() -> Plant:
    """A call takes a slot though another one has taken it since the read."""
    return unguarded(within("push"))


@shown_by(pushes.calls_bring_what_is_stored, PUSHED)
def calls_with_the_bodies_of_others() -> Plant:
    def invoke(true: Any, self: Any, function: str, body: bytes, timeout_ms: int) -> ConsumerResponse:
        asked = orjson.loads(body)
        for message in asked["messages"]:
            message["body"] = asked["messages"][0]["body"]
        answer: ConsumerResponse = true(self, function, orjson.dumps(asked), timeout_ms)
        return answer

    return calling(Consumer, "invoke", invoke)


@shown_by(pushes.a_success_is_acked, PUSHED)
def successes_that_are_lost() -> Plant:
    """The answers of consumers do not reach the dispatcher."""

    def invoke(true: Any, *args: Any) -> ConsumerResponse:
        true(*args)
        return ConsumerResponse(500)

    return calling(Consumer, "invoke", invoke)
