"""Starts `make run` and `chalice local` alike: log, access, push, the store, and the first token."""

from __future__ import annotations

import logging
import os
import sys

from chalicelib import wiring
from chalicelib.core.base.errors import StoreUnavailable
from local import StartupError, background

SHOWN_ONCE = """tokens are needed; this is the first, it may do everything, and is shown this once:
  TOKEN={token}
"""
ACCESS_KEY = """Its access key, for clients of SQS and of MQ over HTTP, and for `make export`:
  export AWS_ACCESS_KEY_ID={access_key_id} AWS_SECRET_ACCESS_KEY={secret_access_key}
"""
SHOWN_BEFORE = """tokens are needed, and the table has some:
  TOKEN=
"""
ALL_RIGHTS = {"operations": ["produce", "consume", "read", "admin"], "topics": "*"}


def choose() -> None:
    """Follows `LOG` and `ACCESS`, and has the push run in this process. Raises `StartupError`."""
    _choose_log(os.environ.get("LOG") or "0")
    _choose_access(os.environ.get("ACCESS") or "off")
    wiring.parts.wake = background.wake


def _choose_log(text: str) -> None:
    """JSON lines have stdout for themselves. Without them, log records go to stderr, for people."""
    if text not in ("0", "1", "json"):
        raise StartupError(f"LOG must be 0, 1 or json; it is {text!r}")
    if text == "json":
        os.environ["DECANT_LOG"] = "json"
    try:
        is_json = wiring.settings.is_logging
    except ValueError as error:
        raise StartupError(str(error)) from error
    if is_json:
        wiring.report_as_lines()
    else:
        logging.basicConfig(format="decant: %(message)s")


def _choose_access(text: str) -> None:
    if text not in ("on", "off"):
        raise StartupError(f"ACCESS must be on or off; it is {text!r}")
    if text == "on":
        os.environ["DECANT_ACCESS"] = "tokens"
    try:
        demand = wiring.settings.demand
    except ValueError as error:
        raise StartupError(str(error)) from error
    if demand.iam:
        raise StartupError("DECANT_ACCESS is 'iam', but no IAM lets callers in here: ACCESS=on asks for tokens")


def first_token() -> str:
    """Returns the text to print about tokens, empty without access control. Makes the first token unless the table has
    one."""
    if not wiring.settings.demand.requests:
        return ""
    if wiring.api().service.access.tokens.page(1, None)[0]:
        return SHOWN_BEFORE
    made = wiring.first_token("first", [ALL_RIGHTS])
    return (SHOWN_ONCE + (ACCESS_KEY if made["secret_access_key"] else "")).format(**made)


def say(text: str) -> None:
    """To people."""
    print(text, end="", flush=True, file=sys.stderr if wiring.settings.is_logging else sys.stdout)


def open_store() -> str:
    """Opens the store, and returns a description of it. Raises `StartupError`."""
    endpoint, folder = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"), os.environ.get("DATA")
    kind = os.environ.get("DECANT_STORE") or ("dynamodb" if endpoint else "memory")
    os.environ["DECANT_STORE"] = kind
    try:
        _ = wiring.settings.store_kind
    except ValueError as error:
        raise StartupError(str(error)) from error
    if kind == "memory":
        return _open_memory(folder)
    if folder:
        raise StartupError(f"DATA is {folder!r}, but only the memory store keeps a folder: DECANT_STORE is {kind!r}")
    from local import dynamodb  # imports boto3, which the memory store does not need

    return dynamodb.open_dynamodb()


def _open_memory(folder: str | None) -> str:
    try:
        wiring.api()
    except (StoreUnavailable, ValueError) as error:
        raise StartupError(f"the store cannot be used: {error}") from error
    where = f"kept in {folder}" if folder else "gone when this process ends (DATA=folder keeps it)"
    return f"memory, {where}; table {wiring.settings.table!r}"
