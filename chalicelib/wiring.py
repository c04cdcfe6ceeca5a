"""Builds the instance of the service, by its settings and from what the process hands in. A function of Lambda builds
it when it starts, other processes at the first request, since packaging imports the application too."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import field
from importlib import import_module
from typing import Any

from chalicelib.api import Api
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime, system
from chalicelib.core.producing.hooks import SendHooks
from chalicelib.core.store import Store
from chalicelib.core.telemetry.record import trace_id
from chalicelib.core.telemetry.telemetry import Telemetry, report_to_stdout
from chalicelib.push.outside import ConsumerResponse, Outside, Wake
from chalicelib.service import Service
from chalicelib.settings import Settings

_log = logging.getLogger("decant")


@mutable
class Parts:
    """A process hands these in. `open_memory`: opens the memory store, which is not deployed; the argument says whether
    it keeps payloads too big for items. `wake`: runs the push in this process, on this machine, whose own addresses
    webhooks may have; None: a function runs it."""

    open_memory: Callable[[bool], Store] | None = None
    wake: Wake | None = None
    hooks: SendHooks = field(default_factory=SendHooks)
    runtime: Runtime = field(default_factory=system)


def build(settings: Settings, parts: Parts) -> Api:
    """A new instance. Raises ValueError; Internal in a function of no stage."""
    settings.check_stage()
    _import_hooks(settings.hooks)
    store, outside = open_store(settings, parts), outside_of(settings, parts)
    service = Service(store, parts.runtime, settings.signing_key, parts.hooks, outside, settings.has_access_keys)
    if settings.is_logging:
        service.telemetry.log_to(_to_stdout, settings.stack if settings.is_deployed else None)
    return Api(service, settings.demand)


def _import_hooks(module: str | None) -> None:
    """Imports the module that registers hooks in `parts`. Raises ValueError."""
    if module:
        try:
            import_module(module)
        except Exception as error:
            raise ValueError(f"DECANT_HOOKS is {module!r}, which cannot be imported: {error!r}") from error


def open_store(settings: Settings, parts: Parts) -> Store:
    """Raises ValueError."""
    if settings.store_kind == "memory":
        if parts.open_memory is None:
            raise ValueError("DECANT_STORE is 'memory', but nothing here opens such a store")
        return parts.open_memory(settings.bucket is not None)
    from chalicelib.core.store.dynamodb import boto, client
    from chalicelib.core.store.dynamodb.store import DynamoStore

    if settings.has_endpoint:
        boto.ensure(boto.connect("dynamodb"), settings.table)
    dynamodb = client.open_client(system(), settings.environ)
    s3 = boto.connect("s3") if settings.bucket else None
    return DynamoStore(dynamodb, settings.table, system(), s3, settings.bucket)


def outside_of(settings: Settings, parts: Parts) -> Outside:
    """Returns the callers of webhooks and functions."""
    from chalicelib.core.store.dynamodb import boto
    from chalicelib.push.outside import Functions
    from chalicelib.push.webhooks import Webhooks

    is_here = parts.wake is not None
    functions = Functions(lambda timeout_ms: boto.connect("lambda", timeout_ms), settings.push_function)
    webhooks = Webhooks(system(), allows_loopback=is_here)
    invoke = _invoke_nothing if settings.store_kind == "memory" else functions.invoke
    return Outside(webhooks.post, invoke, parts.wake or functions.wake, allows_loopback=is_here)


def _invoke_nothing(*_call: object) -> ConsumerResponse:
    """Pushes that somebody tries out on a laptop never reach the functions of an account by accident."""
    return ConsumerResponse.missing("there are no functions beside a store in memory")


def _to_stdout(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


# -- the instance of this process -------------------------------------------------------------------------------------

settings = Settings.from_env()
parts = Parts()
"""A process sets these before the first request."""


class _Instance:
    lock = threading.Lock()
    api: Api | None = None


def api() -> Api:
    with _Instance.lock:
        if _Instance.api is None:
            _Instance.api = build(settings, parts)
        return _Instance.api


def use(api: Api | None) -> None:
    """Replaces the instance (None: the next request builds one)."""
    with _Instance.lock:
        _Instance.api = api


def start() -> None:
    """Builds the instance while a function starts, when it has more of a processor than a request to a small function
    has. A failure is logged: then each request tries again, and gets a problem. Elsewhere, as while
    the application is packaged, it does nothing."""
    if settings.is_deployed and not settings.is_in_chalice:
        if settings.environ.get("DECANT_LOG") != "off":
            report_as_lines()
        try:
            api()
        except Exception as error:  # noqa: BLE001 - a function that does not start answers nothing
            _log.exception("the service cannot be built: %s", error)


def report_as_lines() -> None:
    """Has defects and warnings written to stdout in lines of JSON, as calls are."""
    report_to_stdout(lambda: trace_id({"x-amzn-trace-id": settings.environ.get("_X_AMZN_TRACE_ID", "")}))


def telemetry() -> Telemetry | None:
    """Returns the observer of the instance's calls, once the instance is built. A deployed stage where it cannot be
    built answers 500, and counts that in its metrics."""
    if _Instance.api:
        return _Instance.api.service.telemetry
    if not settings.is_deployed:
        return None
    unbuilt = Telemetry(system())
    unbuilt.log_to(_to_stdout, settings.stack)
    return unbuilt


def is_served_by_chalice() -> bool:
    """Whether `chalice local` imports the application. Other commands package it, and are to start nothing. It says so
    to the process that it starts anew whenever a file changes; without these, it is the command of this thread."""
    if not settings.is_in_chalice:
        return False
    from click import get_current_context  # which Chalice's commands are made with, and which is not deployed

    command = get_current_context(silent=True)
    return "CHALICE_WORKER" in settings.environ or (command is not None and command.info_name == "local")


def first_token(name: str, rights: list[dict[str, Any]]) -> dict[str, Any]:
    """Makes a token without showing one, and returns what `POST /tokens` answers. The caller needs the right to write
    the table, and the settings of the deployed functions: their table and signing key. Raises DecantError."""
    token: dict[str, Any] = api().make_token({"name": name, "rights": rights})
    return token


def export() -> dict[str, Any]:
    """Requests the day's export from AWS, see `core.store.dynamodb.exports`. Raises Internal, as `check_stage` does."""
    settings.check_stage()
    if not settings.export_bucket:
        return {"exports": [], "reason": "DECANT_EXPORT_BUCKET, where exports go, is not set"}
    from chalicelib.core.store.dynamodb import boto, exports

    return exports.export(boto.connect("dynamodb"), settings.table, settings.export_bucket, system().now())
