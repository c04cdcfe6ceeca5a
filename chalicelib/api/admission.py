"""Admits callers: finds the caller and checks its rights before anything else in the call is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

from chalicelib.api.operation import Operation
from chalicelib.core.access.callers import Caller, called_by, demand
from chalicelib.core.access.rights import Need, Verb
from chalicelib.core.base.errors import Forbidden, RequestNotFound
from chalicelib.service import Service


class Demand(NamedTuple):
    """The callers that must show a token. `requests`: those that send HTTP requests. `invocations`: also those that
    invoke a function, although IAM has admitted them; if requests need a token, one shown in an invocation counts in
    any case. `iam`: IAM admits requests before they arrive here."""

    requests: bool = False
    invocations: bool = False
    iam: bool = False


NOBODY = Demand()


Holder = Callable[[str | None], Caller]
"""Returns the caller. Takes the name of the topic that the call will look up, to read it in the same round trip."""


def admitted(
    service: Service, operation: Operation, names: Sequence[str], holder: Holder
) -> AbstractContextManager[None]:
    """Runs a call of the holder. `names`: those in the path. Raises the errors of `holder`, and Forbidden, which does
    not reveal what exists."""
    if operation.right == "anyone":
        return nullcontext()
    named = dict(zip(operation.path_names, map(str, names), strict=True))
    topic_name = named.get("topic")
    caller = holder(topic_name if operation.is_frequent else None)
    if "correlation_id" in named:
        _demand_for_request(service, caller, operation.right, named["correlation_id"])
    else:
        demand(caller, Need(operation.right, topic_name, named.get("group")), operation.is_filtered)
    return called_by(caller)


def _demand_for_request(service: Service, caller: Caller, verb: Verb, correlation_id: str) -> None:
    """Demands the right for the request's topic, or for all topics if this service did not issue the id. Both fail with
    the same text."""
    topic_name = None
    with suppress(RequestNotFound):
        topic_name = service.requests.correlation(correlation_id).topic_name
    try:
        demand(caller, Need(verb, topic_name))
    except Forbidden:
        raise Forbidden(f"the token has no right to '{verb}' for this request, whether or not it exists") from None
