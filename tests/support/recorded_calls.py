"""Records the AWS calls of the service, as IAM sees them: actions on resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from chalicelib.api import Api
from chalicelib.api.operation import Operation
from chalicelib.core.upkeep.sweeps import Sweeps
from chalicelib.push.dispatcher import Dispatcher
from chalicelib.service import Service
from tests.support.client import Client

SWEEPS = ("revive", "forward", "expire", "check", "push", "move")

_PARTS = {"Update": "UpdateItem", "Delete": "DeleteItem", "Put": "PutItem", "ConditionCheck": "ConditionCheckItem"}
"""IAM checks the rights of the parts of a transaction, and none of the transaction itself."""


class Use(NamedTuple):
    """`resource`: `Table` or `Bodies`, their names in the template, or an object within."""

    action: str
    resource: str


class Recorder:
    """`uses`: by the name of the operation or the sweep, or `run`, the push. Calls made elsewhere are not recorded."""

    def __init__(self, push_function: str) -> None:
        self.uses: dict[str, set[Use]] = defaultdict(set)
        self._push_function = push_function
        self._within: list[str] = []

    def listening(self, client: Any) -> Any:
        """A client of boto3, whose calls are recorded from now on."""
        client.meta.events.register("provide-client-params", self._called)
        return client

    def wake(self, _topic_name: str, _is_staying: bool) -> None:
        """Replaces `Functions.wake`."""
        self._note("lambda:InvokeFunction", self._push_function)

    def _called(self, params: Any, model: Any, **_: Any) -> None:
        service, name = model.service_model.service_name, model.name
        if service == "s3":
            self._note(f"s3:{name}", f"Bodies/{params['Key']}")
        elif name == "TransactWriteItems":
            for item in params["TransactItems"]:
                self._note(f"dynamodb:{_PARTS[next(iter(item))]}", "Table")
        else:
            self._note(f"{service}:{name}", _OTHER_RESOURCES.get(name, "Table"))

    def _note(self, action: str, resource: str) -> None:
        if self._within:
            self.uses[self._within[-1]].add(Use(action, resource))

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        self._within.append(name)
        try:
            yield
        finally:
            self._within.pop()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records calls. Those that run in several threads at once must all have the same name."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Operation, "call", self._recorded(Operation.call, lambda operation: operation.id))
            patch.setattr(Dispatcher, "run", self._recorded(Dispatcher.run))
            for sweep in SWEEPS:
                patch.setattr(Sweeps, sweep, self._recorded(getattr(Sweeps, sweep)))
            yield

    def _recorded(self, run: Callable[..., Any], name: Callable[[Any], str] | None = None) -> Callable[..., Any]:
        def recorded(self_: Any, *arguments: Any, **more: Any) -> Any:
            with self.within(name(self_) if name else run.__name__):
                return run(self_, *arguments, **more)

        return recorded


_OTHER_RESOURCES = {"DescribeExport": "Table/export/01767225600000-0a1b2c3d", "ListExports": "anything"}


class ColdClient(Client):
    """Each request, and each sweep, runs on a new instance, whose caches are empty, and which draws ids of its own."""

    @property
    def api(self) -> Api:
        return Api(Service(self.store, self.clock.runtime(uuid4().int), outside=self.outside))

    @api.setter
    def api(self, _warm: Api) -> None:
        """The first instance is not used."""
