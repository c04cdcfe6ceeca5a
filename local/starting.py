"""How `make run` and `chalice local` begin alike: log, access, push, and the first token."""

from __future__ import annotations

import logging
import os
import sys

from chalicelib import wiring
from local import pushing
from local.unstartable import Unstartable

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
    """Follows `LOG` and `ACCESS`, and has the push run in this process. Raises `Unstartable`."""
    _choose_log(os.environ.get("LOG") or "0")
    _choose_access(os.environ.get("ACCESS") or "off")
    wiring.parts.wake = pushing.wake


def _choose_log(text: str) -> None:
    """Lines of JSON have stdout for themselves. Without them, what is logged goes to stderr, for people."""
    if text not in ("0", "1", "json"):
        raise Unstartable(f"LOG must be 0, 1 or json; it is {text!r}")
    if text == "json":
        os.environ["DECANT_LOG"] = "json"
    try:
        is_json = wiring.settings.is_logging
    except ValueError as error:
        raise Unstartable(str(error)) from error
    if is_json:
        wiring.report_as_lines()
    else:
        logging.basicConfig(format="decant: %(message)s")


def _choose_access(text: str) -> None:
    if text not in ("on", "off"):
        raise Unstartable(f"ACCESS must be on or off; it is {text!r}")
    if text == "on":
        os.environ["DECANT_ACCESS"] = "tokens"
    try:
        demand = wiring.settings.demand
    except ValueError as error:
        raise Unstartable(str(error)) from error
    if demand.iam:
        raise Unstartable("DECANT_ACCESS is 'iam', but no IAM lets callers in here: ACCESS=on asks for tokens")


def first_token() -> str:
    """What to say of the tokens that are needed; empty if none are. A table that is kept has had its first."""
    if not wiring.settings.demand.requests:
        return ""
    if wiring.api().service.access.tokens.page(1, None)[0]:
        return SHOWN_BEFORE
    made = wiring.first_token("first", [ALL_RIGHTS])
    return (SHOWN_ONCE + (ACCESS_KEY if made["secret_access_key"] else "")).format(**made)


def say(text: str) -> None:
    """To people."""
    print(text, end="", flush=True, file=sys.stderr if wiring.settings.is_logging else sys.stdout)
