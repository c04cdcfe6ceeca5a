"""The operations as JSON in, JSON out: the contract without HTTP. Every protocol calls these.

Every operation checks its whole input before it stores anything. It raises a `DecantError` that names the bad field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from chalicelib.api.about import ABOUT
from chalicelib.api.admission import NOBODY, Demand, admitted
from chalicelib.api.consuming import CONSUMING
from chalicelib.api.dead_letters import DEAD_LETTERS
from chalicelib.api.groups import GROUPS
from chalicelib.api.message_trace import TRACES
from chalicelib.api.messages import DELAYS, MESSAGES
from chalicelib.api.operation import Json, Operation
from chalicelib.api.push import PUSH
from chalicelib.api.requests import REQUESTS
from chalicelib.api.tokens import TOKENS
from chalicelib.api.topics import TOPICS
from chalicelib.api.transactions import TRANSACTIONS
from chalicelib.core.access import callers
from chalicelib.core.access.callers import called_by
from chalicelib.core.base.deadline import one_call
from chalicelib.core.table.writes import Item
from chalicelib.service import Service

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
