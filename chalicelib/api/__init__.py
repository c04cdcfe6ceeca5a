"""The operations as JSON in, JSON out: the contract without HTTP. Every protocol calls these.

Every operation checks its whole input before it stores anything. It raises a `DecantError` that names the bad field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

from chalicelib.api.about import ABOUT
from chalicelib.api.consuming import CONSUMING, DEAD_LETTERS
from chalicelib.api.messages import DELAYS, MESSAGES, TRACES
from chalicelib.api.operation import Json, Operation
from chalicelib.api.push import PUSH
from chalicelib.api.requests import REQUESTS
from chalicelib.api.tokens import TOKENS
from chalicelib.api.topics import GROUPS, TOPICS
from chalicelib.api.transactions import TRANSACTIONS
from chalicelib.core.access import callers
from chalicelib.core.access.callers import Caller, called_by, demand
from chalicelib.core.access.rights import Need, Verb
from chalicelib.core.base.deadline import one_call
from chalicelib.core.base.errors import Forbidden, RequestNotFound
from chalicelib.core.table.writes import Item
from chalicelib.service import Service

# -- admission: finds the caller and checks its rights before anything else in the call is read -----------------------


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


# -- the operations ---------------------------------------------------------------------------------------------------

FAMILIES = (
    TOPICS,
    MESSAGES,
    TRACES,
    DELAYS,
    TRANSACTIONS,
    GROUPS,
    CONSUMING,
    PUSH,
    DEAD_LETTERS,
    REQUESTS,
    TOKENS,
    ABOUT,
)
OPERATIONS = {operation.name: operation for family in FAMILIES for operation in family.operations}


class Api:
    """One instance of the service, as its clients see it.

    Each operation is a method by its name: `api.pop("orders", "billing", {"max_messages": 5})` takes the names in the
    path and the request as JSON, and returns the answer as JSON. These calls need no token: only `admitted` demands
    one. `demand`: which callers must show a token."""

    def __init__(self, service: Service, demand: Demand = NOBODY) -> None:
        self.service = service
        self._demand = demand

    @property
    def is_open(self) -> bool:
        """Whether anybody who reaches the address may call."""
        return not (self._demand.requests or self._demand.iam)

    @property
    def takes_signatures(self) -> bool:
        """Whether requests can be signed with the access key of a token."""
        return self._demand.requests and self.service.access.has_access_keys

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OPERATIONS:
            raise AttributeError(name)
        return partial(self._answer, OPERATIONS[name])

    def _answer(self, operation: Operation, *arguments: Any, **headers: str | None) -> Any:
        names, data = arguments[: len(operation.path_names)], arguments[len(operation.path_names) :]
        return operation.call(self.service, names, *data or ({},), **headers)[1]

    def admitted(
        self,
        operation: Operation,
        names: Sequence[str],
        authorization: str | None,
        principal: str = "",
        is_invoked: bool = False,
    ) -> AbstractContextManager[None]:
        """Runs a call as the caller that this `Authorization` names. `names`: those in the path. `principal`: the
        caller that IAM has admitted, or empty. `is_invoked`: the call is a direct invocation of a function. Raises
        Unauthenticated, Forbidden."""
        is_free = authorization is None and not self._demand.invocations if is_invoked else False
        if is_free or not self._demand.requests:
            return called_by(callers.principal(principal)) if principal else nullcontext()
        return admitted(self.service, operation, names, partial(self.service.access.callers.bearer, authorization))

    def outbox_item(self, topic_name: str, message: Json) -> Item:
        """The message as an item: a transaction that stores the item sends the message."""
        with one_call(self.service.env.runtime.uptime()):
            topic = self.service.env.catalogue.topic(topic_name)
            return self.service.producing.outbox_item(topic, message)
