"""Lets callers in: who calls, and what the call needs a right for, before anything else of it is looked at."""

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
    """Who has to show a token. `requests`: who sends one by HTTP. `invocations`: who invokes a function, too, although
    IAM has let them; a token that they show counts in any case where requests need one. `iam`: IAM lets requests in,
    before they get here."""

    requests: bool = False
    invocations: bool = False
    iam: bool = False


NOBODY = Demand()


Holder = Callable[[str | None], Caller]
"""Who calls. It is told which topic the call will look up, to be read in the same round trip."""


def admitted(
    service: Service, operation: Operation, names: Sequence[str], holder: Holder
) -> AbstractContextManager[None]:
    """Runs a call of the holder. `names`: those in the path. Raises what `holder` raises, and Forbidden,
    which tells nothing of what exists."""
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
    """Demands the right for the request's topic; where the id is none of this service, for all. One text for both."""
    topic_name = None
    with suppress(RequestNotFound):
        topic_name = service.requests.correlation(correlation_id).topic_name
    try:
        demand(caller, Need(verb, topic_name))
    except Forbidden:
        raise Forbidden(f"the token has no right to '{verb}' for this request, if there is one") from None
