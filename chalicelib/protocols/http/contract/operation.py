"""What an operation of the contract is made of. Named tuples: they cost a cold start a third of what dataclasses do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from chalicelib.base.errors import DecantError
from chalicelib.protocols.http.contract.values import Json


class Body(NamedTuple):
    """What a request or an answer holds: the name of its schema, and an example."""

    schema: str
    example: Any


class Operation(NamedTuple):
    """`answers`: what each status that is no error means, and its body. The errors follow from the rest: `problems`."""

    method: str
    path: str
    id: str
    summary: str
    text: str
    answers: Mapping[int, tuple[str, Body | None]]
    request: Body | None = None
    parameters: tuple[str, ...] = ()
    """Those that are not in the path."""
    asks_store: bool = True
    names: tuple[str, ...] = ()
    """What the request body names, as path parameters do: each has its 404."""
    conflict: tuple[type[DecantError], ...] = ()
    """What it answers 409 with."""

    @property
    def path_parameters(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


class Family(NamedTuple):
    """Operations that belong together, under one tag of the document."""

    tag: str
    text: str
    schemas: Mapping[str, Json]
    operations: tuple[Operation, ...]
