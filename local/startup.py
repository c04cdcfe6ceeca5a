"""Starts `make run` and `chalice local` alike: log, access, push, the store, and the first token."""

from __future__ import annotations

import logging
import os
import sys
from ipaddress import ip_address
from pathlib import Path

from chalicelib import wiring
from chalicelib.core.access.rights import parse
from chalicelib.core.base.errors import InvalidField, StoreUnavailable
from chalicelib.core.base.fields import Label
from local import StartupError, background, seed
from local.browsers import OwnNames
from local.connection import HOST
from local.memory.opening import open_memory

SHOWN_ONCE = """tokens are needed; this is the first, it may do everything, and is shown this once:
  TOKEN={token}
"""
ACCESS_KEY = """Its access key, for clients of SQS and of MQ over HTTP, and for `make export`:
  export AWS_ACCESS_KEY_ID={access_key_id} AWS_SECRET_ACCESS_KEY={secret_access_key}
"""
SHOWN_BEFORE = """tokens are needed, and the table has some:
  TOKEN=
"""
CHOSEN = """tokens are needed; FIRST_TOKEN is one, and may do everything:
  TOKEN=
"""
ALL_RIGHTS = {"operations": ["produce", "consume", "read", "admin"], "topics": "*"}


def choose() -> None:
    """Follows `LOG` and `ACCESS`. Has this process open the memory store and run the push. Raises `StartupError`."""
    _choose_log(os.environ.get("LOG") or "0")
    _choose_access(os.environ.get("ACCESS") or "off")
    wiring.parts.open_memory, wiring.parts.wake = open_memory, background.wake


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


def host() -> str:
    """The address to listen on. Raises `StartupError` for one that others reach, unless they need tokens or somebody
    has said in so many words that they do not."""
    chosen, is_open = os.environ.get("HOST") or HOST, os.environ.get("OPEN") or "0"
    if is_open not in ("0", "1"):
        raise StartupError(f"OPEN must be 0 or 1; it is {is_open!r}")
    if not (_is_loopback(chosen) or is_open == "1" or wiring.settings.demand.requests):
        raise StartupError(
            f"HOST is {chosen!r}, where everybody who reaches this machine could read and send messages: ACCESS=on"
            " demands tokens, OPEN=1 lets them"
        )
    return chosen


def own_names(host: str) -> OwnNames:
    """The names under which a server at this address is called."""
    allowed = filter(None, map(str.strip, os.environ.get("ALLOW_HOST", "").lower().split(",")))
    return OwnNames(frozenset([*allowed, host.lower(), f"[{host.lower()}]"]), numeric=host in ("0.0.0.0", "::"))  # noqa: S104


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def seeded() -> str:
    """Makes what the file `SEED` lists, and returns what to say about it. Raises `StartupError`."""
    path = os.environ.get("SEED")
    return seed.apply(Path(path), wiring.api()) if path else ""


def first_token() -> str:
    """Returns the text to print about tokens, empty without access control. Makes the first token unless the table has
    one. Raises `StartupError`."""
    if not wiring.settings.demand.requests:
        return ""
    if wiring.api().service.access.tokens.page(1, None)[0]:
        return SHOWN_BEFORE
    chosen = os.environ.get("FIRST_TOKEN")
    if chosen:
        try:
            wiring.api().service.access.tokens.make("first", parse([ALL_RIGHTS], Label("rights")), text=chosen)
        except InvalidField as error:
            raise StartupError(f"FIRST_TOKEN: {error.detail}") from error
        return CHOSEN
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
