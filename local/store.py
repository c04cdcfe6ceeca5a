"""Chooses the store by the environment, and opens it before the first request."""

from __future__ import annotations

import os

from chalicelib import wiring
from chalicelib.core.base.errors import StoreUnavailable
from local.endpoint import Answering
from local.memory.store import MemoryStore
from local.unstartable import Unstartable


def open_store() -> str:
    """Opens the store, and returns a description of it. Raises `Unstartable`."""
    endpoint, folder = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"), os.environ.get("DATA")
    kind = os.environ.get("DECANT_STORE") or ("dynamodb" if endpoint else "memory")
    os.environ["DECANT_STORE"] = kind
    try:
        _ = wiring.settings.store_kind
    except ValueError as error:
        raise Unstartable(str(error)) from error
    if kind == "memory":
        return _open_memory(folder)
    if folder:
        raise Unstartable(f"DATA is {folder!r}, but only the memory store keeps a folder: DECANT_STORE is {kind!r}")
    from local import dynamodb  # imports boto3, which the memory store does not need

    return dynamodb.open_dynamodb()


def answering() -> Answering | None:
    """Answers for the memory store as DynamoDB does; None: the store has an endpoint of its own."""
    store = wiring.api().service.env.store
    if not isinstance(store, MemoryStore):
        return None
    from local.memory.wire import Wire

    return Wire(store, wiring.settings.table).answer


def _open_memory(folder: str | None) -> str:
    try:
        wiring.api()
    except (StoreUnavailable, ValueError) as error:
        raise Unstartable(f"the store cannot be used: {error}") from error
    where = f"kept in {folder}" if folder else "gone when this process ends (DATA=folder keeps it)"
    return f"memory, {where}; table {wiring.settings.table!r}"
