"""Where real parts are chosen: the store, the clock, the signing key. Everything is built at the first request, since
packaging imports the application too.

Environment: `DECANT_STORE` ("dynamodb", or "embedded": an emulation in this process), `DECANT_TABLE`, `DECANT_BUCKET`
(for payloads too big for items), `DECANT_SIGNING_KEY` (at least 16 characters; without it a key is made once and kept
in the table), `DECANT_EXPORT_BUCKET` (where the table is exported every day; without it, it is not), and what boto3
reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from chalicelib.api import Api
from chalicelib.base.runtime import system
from chalicelib.producing.hooks import AfterSend, BeforeSend, SendHooks
from chalicelib.service import build
from chalicelib.store import Store

TABLE_DEFAULT = "decant"
_KEY_CHARS_MIN = 16


_HOOKS = SendHooks()


class _Instance:
    """The one instance of the service in this process."""

    lock = threading.Lock()
    api: Api | None = None
    start_embedded: Callable[[], None] | None = None


def api() -> Api:
    with _Instance.lock:
        if _Instance.api is None:
            _Instance.api = Api(build(store(), system(), signing_key(), _HOOKS))
        return _Instance.api


def outbox_item(topic: str, message: dict[str, Any]) -> dict[str, Any]:
    """For callers inside AWS that store something of their own and send a message, both or neither: the message, as
    `produce` takes it, as one of the `TransactItems` of their `TransactWriteItems`, to be sent once, within 15 minutes.
    It is delivered when the transaction has committed, and never if it does not. Raises what `produce` raises."""
    from chalicelib.store.dynamodb import outbox

    return outbox.put(os.environ.get("DECANT_TABLE", TABLE_DEFAULT), api().outbox_item(topic, message))


def on_send(before: BeforeSend | None = None, after: AfterSend | None = None) -> None:
    """Adds a hook before, or after, or both, to every send through this process: `BeforeSend` and `AfterSend` say with
    what they are called, and what they may raise. To be called once, where the process begins: in `app.py`."""
    if before:
        _HOOKS.before.append(before)
    if after:
        _HOOKS.after.append(after)


def use(api: Api | None) -> None:
    """Puts another instance in place (None: the next request builds one)."""
    _Instance.api = api


def embed_with(start: Callable[[], None]) -> None:
    """Says how the embedded store is started, which is not deployed. Called once, by `app.py`."""
    _Instance.start_embedded = start


def store() -> Store:
    from chalicelib.store.dynamodb import client, table
    from chalicelib.store.dynamodb.store import DynamoStore

    name, bucket = os.environ.get("DECANT_TABLE", TABLE_DEFAULT), os.environ.get("DECANT_BUCKET")
    if is_embedded() and _Instance.start_embedded:
        _Instance.start_embedded()
    dynamodb = client.dynamodb()
    if is_embedded() or "AWS_ENDPOINT_URL_DYNAMODB" in os.environ:
        table.ensure(dynamodb, name)
    return DynamoStore(dynamodb, name, system(), client.s3() if bucket else None, bucket)


def export() -> dict[str, Any]:
    """Asks AWS for the export of the day, see `store.dynamodb.exports`."""
    bucket = os.environ.get("DECANT_EXPORT_BUCKET")
    if not bucket:
        return {"exports": [], "reason": "DECANT_EXPORT_BUCKET, where exports go, is not set"}
    from chalicelib.store.dynamodb import client, exports

    return exports.export(client.dynamodb(), os.environ.get("DECANT_TABLE", TABLE_DEFAULT), bucket, system().now())


def is_embedded() -> bool:
    """Said so, or `chalice local` without an endpoint: then there is no table to be surprised about."""
    chosen = os.environ.get("DECANT_STORE")
    is_local = os.environ.get("AWS_CHALICE_CLI_MODE") == "true" and "AWS_ENDPOINT_URL_DYNAMODB" not in os.environ
    return chosen == "embedded" or (chosen is None and is_local)


def signing_key() -> bytes | None:
    configured = os.environ.get("DECANT_SIGNING_KEY")
    if configured is not None and len(configured) < _KEY_CHARS_MIN:
        raise ValueError(f"DECANT_SIGNING_KEY must have at least {_KEY_CHARS_MIN} characters")
    return configured.encode() if configured else None
