"""Cases of an operation: what the document makes of it, and what a client of the world could really send.

Schemathesis makes them from the document as the service serves it. Left alone it would hardly ever name a topic that is
there; so a good part of its cases is drawn with known names in the path, and of the valid ones many get real receipts,
ids and page tokens."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import APIOperation, GenerationMode
from schemathesis.core.result import Ok

from tests.fuzz.world import GROUP, QUEUES, TOPIC, World, known
from tests.support import documented

Case = schemathesis.Case[Any]

BASE_URL = "http://decant"

NAMES = {"topic": TOPIC, "group": GROUP}


@cache
def operations() -> dict[str, APIOperation[Any, Any, Any, Any]]:
    """Operation id -> operation, of the document that the service serves."""
    served = World().ask("GET", "/openapi.json", b"", {}).json
    schema = schemathesis.openapi.from_dict(served)
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {each.definition.raw["operationId"]: each for each in found}


def document_of(operation_id: str) -> dict[str, Any]:
    return next(each for each in documented.operations().values() if each["operationId"] == operation_id)


def can_be_invalid(operation_id: str) -> bool:
    """Whether the document leaves anything to get wrong."""
    operation = document_of(operation_id)
    return "parameters" in operation or "requestBody" in operation


def valid(operation_id: str) -> st.SearchStrategy[Case]:
    return _cases(operation_id, GenerationMode.POSITIVE)


def invalid(operation_id: str) -> st.SearchStrategy[Case]:
    return _cases(operation_id, GenerationMode.NEGATIVE)


def likely(operation_id: str) -> st.SearchStrategy[Case]:
    """Valid cases about existing objects: nothing about them is strange but their values."""
    return _likely(operation_id)


def prepared(case: Case) -> requests.PreparedRequest:
    """The request as schemathesis would send it."""
    return requests.Request(**case.as_transport_kwargs(base_url=BASE_URL)).prepare()


def _cases(operation_id: str, mode: GenerationMode) -> st.SearchStrategy[Case]:
    operation = operations()[operation_id]
    anywhere = operation.as_strategy(generation_mode=mode)
    names = _names(operation_id)
    is_only_names = len(names) == len(document_of(operation_id).get("parameters", ()))
    if mode is GenerationMode.NEGATIVE and is_only_names and "requestBody" not in document_of(operation_id):
        return anywhere  # with the names known, nothing could be wrong
    return st.one_of(operation.as_strategy(generation_mode=mode, path_parameters=names), anywhere)


def _names(operation_id: str) -> dict[str, str]:
    path = operations()[operation_id].path
    return {name: value for name, value in NAMES.items() if f"{{{name}}}" in path}


@st.composite
def _likely(draw: st.DrawFn, operation_id: str) -> Case:
    operation = operations()[operation_id]
    case: Case = draw(operation.as_strategy(path_parameters=_names(operation_id)))
    if "message_id" in case.path_parameters:
        case.path_parameters["message_id"] = draw(st.sampled_from(known().message_ids))
    if "transaction_id" in case.path_parameters:
        case.path_parameters["transaction_id"] = draw(st.sampled_from(known().transaction_ids))
    if "secret_id" in case.path_parameters:
        case.path_parameters["secret_id"] = known().secret_id
    if "token_id" in case.path_parameters:
        case.path_parameters["token_id"] = known().token_id
    if "correlation_id" in case.path_parameters:
        case.path_parameters["correlation_id"] = draw(st.sampled_from(known().correlation_ids))
    case.query = draw(_real_query(operation_id, case.query))
    if isinstance(case.body, dict):
        case.body = draw(_real_body(case.body))
    return case


@st.composite
def _real_query(draw: st.DrawFn, operation_id: str, query: dict[str, Any]) -> dict[str, Any]:
    real = dict(query)
    if "next" in real:
        real["next"] = draw(st.sampled_from(known().tokens))
    if "queue" in real:
        real["queue"] %= QUEUES
    if "offset" in real:
        real |= {"offset": real["offset"] % 6, "queue": real.get("queue", 0)}
        real.pop("at_ms", None)
    return real


@st.composite
def _real_body(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """The same with receipts that were given out, queues that are there, and integers that JSON would call integers."""
    real: dict[str, Any] = json.loads(json.dumps(body), parse_float=lambda text: int(float(text)))
    for name in ("receipts", "ack"):
        if real.get(name):
            real[name] = draw(st.lists(st.sampled_from(known().receipts), min_size=1, max_size=6))
    if real.get("receipt"):
        real["receipt"] = draw(st.sampled_from(known().receipts))
    if real.get("message_ids"):
        real["message_ids"] = draw(st.lists(st.sampled_from(known().message_ids), min_size=1, max_size=6))
    for part in (real, real.get("to"), *(real.get("messages") or ())):
        if isinstance(part, dict) and part.get("queue") is not None:
            part["queue"] %= QUEUES
    if isinstance(real.get("to"), dict) and real["to"].get("offset") is not None:
        real["to"]["offset"] %= 5
    return real
