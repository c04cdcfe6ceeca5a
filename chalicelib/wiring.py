"""Chooses the real parts: the store, the clock, the signing key. They are built when a function of Lambda starts, and
elsewhere at the first request, since packaging imports the application too.

Environment: `DECANT_STORE` ("dynamodb", or "memory", within this process), `DECANT_TABLE`, `DECANT_BUCKET` (for
payloads too big for items), `DECANT_SIGNING_KEY` (at least 16 characters) or `DECANT_SIGNING_KEY_FROM` (where several
are kept: "ssm:<name>" or "secretsmanager:<ARN>"; without either a key is made once and kept in the table),
`DECANT_EXPORT_BUCKET` (where the table is exported every day; without it, it is not), `DECANT_PUSH_FUNCTION` (the
function that runs the push), `DECANT_STACK` (in Lambda: the stack of the stage, without which no function works),
`DECANT_LOG` ("json" or "off": whether each call writes a log line; "json" is the default in Lambda), `DECANT_ACCESS`
("tokens", "iam" or "none": who lets callers in), `DECANT_FUNCTION_ACCESS` ("iam", or "tokens": who invokes a function
shows a token too), `DECANT_ACCOUNT` (12 digits, which the URLs and ARNs of SQS queues have), `DECANT_MQ_INSTANCE`
(which clients of MQ over HTTP must name), `DECANT_INGEST` and `DECANT_INGEST_REJECTS` (what the records of event
sources become, and the topic of those that cannot be stored), and what boto3 reads.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.api import Api
from chalicelib.api.admission import Demand
from chalicelib.core.base.errors import Internal
from chalicelib.core.base.runtime import system
from chalicelib.core.catalogue.configured_keys import KEY_CHARS_MIN, ConfiguredKeys
from chalicelib.core.catalogue.signing_key import Configured
from chalicelib.core.producing.hooks import AfterSend, BeforeSend, SendHooks
from chalicelib.core.store import Store
from chalicelib.core.telemetry import reports
from chalicelib.core.telemetry.telemetry import Telemetry
from chalicelib.core.telemetry.trace_context import trace_id
from chalicelib.push.outside import Answer, Outside, Wake
from chalicelib.service import Service

TABLE_DEFAULT = "decant"

_HOOKS = SendHooks()

_log = logging.getLogger("decant")


class _Instance:
    """The one instance of the service in this process."""

    lock = threading.Lock()
    api: Api | None = None
    open_memory: Callable[[bool], Store] | None = None
    push_here: Wake | None = None


def api() -> Api:
    with _Instance.lock:
        if _Instance.api is None:
            _Instance.api = _built()
        return _Instance.api


def _built() -> Api:
    check_stage()
    api = Api(Service(store(), system(), signing_key(), _HOOKS, outside(), has_access_keys()), demand())
    if is_logging():
        api.service.telemetry.log_to(_to_stdout, _stack() if is_deployed() else None)
    return api


def start() -> None:
    """Builds the instance while a function starts, when it has more of a processor than a request to a small function
    has. What goes wrong is logged: then each request tries again, and is answered with a problem. Elsewhere, as while
    the application is packaged, it does nothing."""
    if is_deployed() and not _is_in_chalice():
        if os.environ.get("DECANT_LOG") != "off":
            report_as_lines()
        try:
            api()
        except Exception as error:  # noqa: BLE001 - a function that does not start answers nothing
            _log.exception("the service cannot be built: %s", error)


def report_as_lines() -> None:
    """Has defects and warnings written to stdout in lines of JSON, as calls are."""
    reports.report_to_stdout(lambda: trace_id({"x-amzn-trace-id": os.environ.get("_X_AMZN_TRACE_ID", "")}))


def telemetry() -> Telemetry | None:
    """What observes the calls of the instance, once it is built. A deployed stage where it cannot be built answers 500,
    and counts that in its metrics."""
    if _Instance.api:
        return _Instance.api.service.telemetry
    if not is_deployed():
        return None
    unbuilt = Telemetry(system())
    unbuilt.log_to(_to_stdout, _stack())
    return unbuilt


def _stack() -> str | None:
    return os.environ.get("DECANT_STACK")


def check_stage() -> None:
    """Raises Internal in a function of Lambda that is of no stage: `chalice deploy` makes such functions, without
    settings or rights. The templates of stages set `DECANT_STACK` for every function."""
    if is_deployed() and not _stack():
        raise Internal(WITHOUT_STAGE)


WITHOUT_STAGE = (
    "this function is of no stage, as DECANT_STACK is not set: `chalice deploy` cannot deploy Decant; run "
    "`chalice delete`, then `make deploy STAGE=dev` (docs/deploying.md)"
)


def is_logging() -> bool:
    """Whether each call writes a log line: in Lambda, unless it is switched off."""
    default = "json" if is_deployed() else "off"
    chosen = os.environ.get("DECANT_LOG", default)
    if chosen not in ("json", "off"):
        raise ValueError(f"DECANT_LOG must be json or off; it is {chosen!r}")
    return chosen == "json"


def is_deployed() -> bool:
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def _is_in_chalice() -> bool:
    """Whether a command of Chalice imports the application: to package it, or to serve it here."""
    return os.environ.get("AWS_CHALICE_CLI_MODE") == "true"


def is_served_by_chalice() -> bool:
    """Whether `chalice local` imports the application. Other commands package it, and are to start nothing. It says so
    to the process that it starts anew whenever a file changes; without these, it is the command of this thread."""
    if not _is_in_chalice():
        return False
    from click import get_current_context  # which Chalice's commands are made with, and which is not deployed

    command = get_current_context(silent=True)
    return "CHALICE_WORKER" in os.environ or (command is not None and command.info_name == "local")


def _to_stdout(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def outbox_item(topic: str, message: dict[str, Any]) -> dict[str, Any]:
    """A message as one of the `TransactItems` of the caller's own `TransactWriteItems`, for callers inside AWS that
    write something and send a message, both or neither. `message` has the fields of `produce`. Send the item once,
    within 15 minutes. The message is delivered if the transaction commits, and never otherwise. Raises what `produce`
    raises."""
    from chalicelib.core.store.dynamodb.values import outbox_put

    return outbox_put(table_name(), api().outbox_item(topic, message))


def on_send(before: BeforeSend | None = None, after: AfterSend | None = None) -> None:
    """Adds hooks to every send of this process. `BeforeSend` and `AfterSend` document their arguments and the
    exceptions they may raise. Call it once, in `app.py`."""
    if before:
        _HOOKS.before.append(before)
    if after:
        _HOOKS.after.append(after)


def demand() -> Demand:
    """Who has to show a token. Raises ValueError; a deployed stage that does not say so is never open by accident."""
    access = _choice("DECANT_ACCESS", ("tokens", "iam", "none"), None if is_deployed() else "none")
    functions = _choice("DECANT_FUNCTION_ACCESS", ("iam", "tokens"), "iam")
    if functions == "tokens" and access != "tokens":
        raise ValueError(f"DECANT_FUNCTION_ACCESS can be 'tokens' only where DECANT_ACCESS is; that is {access!r}")
    return Demand(access == "tokens", functions == "tokens", access == "iam")


def account() -> str | None:
    """The account in the URLs and ARNs of SQS queues. Raises ValueError."""
    chosen = os.environ.get("DECANT_ACCOUNT")
    if chosen is not None and not re.fullmatch("[0-9]{12}", chosen):
        raise ValueError(f"DECANT_ACCOUNT must be twelve digits; it is {chosen!r}")
    return chosen


def region() -> str | None:
    """That of the deployment, which Lambda tells. None: this machine is in none."""
    return os.environ.get("AWS_REGION") if is_deployed() else None


def mq_instance() -> str | None:
    """The instance that clients of MQ over HTTP must name. None: any, or none."""
    return os.environ.get("DECANT_MQ_INSTANCE") or None


def _choice(name: str, choices: Sequence[str], default: str | None) -> str:
    chosen = os.environ.get(name, default)
    if chosen is None or chosen not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; it is {chosen!r}")
    return chosen


def first_token(name: str, rights: list[dict[str, Any]]) -> dict[str, Any]:
    """Makes a token without showing one, and returns what `POST /tokens` answers. For whoever may write the table, with
    the settings that the deployed functions have: their table, and their signing key. Raises DecantError."""
    token: dict[str, Any] = api().make_token({"name": name, "rights": rights})
    return token


def use(api: Api | None) -> None:
    """Replaces the instance (None: the next request builds one)."""
    _Instance.api = api


def here(open_memory: Callable[[bool], Store]) -> None:
    """Registers the factory of the memory store, which is not deployed; its argument says whether to keep payloads too
    big for items. Call it before the first request; the last call counts."""
    _Instance.open_memory = open_memory


def push_here(wake: Wake) -> None:
    """Sets what runs the push in this process, on this machine, whose own addresses webhooks may have. Call it before
    the first request."""
    _Instance.push_here = wake


def outside() -> Outside:
    from chalicelib.core.store.dynamodb import boto
    from chalicelib.push.functions import Functions
    from chalicelib.push.webhooks import Webhooks

    is_here = _Instance.push_here is not None
    functions = Functions(lambda timeout_ms: boto.connect("lambda", timeout_ms), push_function())
    webhooks = Webhooks(system(), allows_loopback=is_here)
    wake = _Instance.push_here or functions.wake
    invoke = _invoke_nothing if store_kind() == "memory" else functions.invoke
    return Outside(webhooks.post, invoke, wake, allows_loopback=is_here)


def _invoke_nothing(*_call: object) -> Answer:
    """Whoever tries out pushes on a laptop does not reach the functions of an account by accident."""
    return Answer.missing("there are no functions beside a store in memory")


def push_function() -> str | None:
    """The name of the function that runs the push. None: only the schedule runs it."""
    return os.environ.get("DECANT_PUSH_FUNCTION")


def table_name() -> str:
    return os.environ.get("DECANT_TABLE", TABLE_DEFAULT)


def store() -> Store:
    """Raises ValueError."""
    kind = store_kind()
    if kind == "memory":
        if _Instance.open_memory is None:
            raise ValueError("DECANT_STORE is 'memory', but nothing here opens such a store")
        return _Instance.open_memory(bool(os.environ.get("DECANT_BUCKET")))
    return _dynamo_store()


def _dynamo_store() -> Store:
    from chalicelib.core.store.dynamodb import boto, client, table
    from chalicelib.core.store.dynamodb.store import DynamoStore

    name, bucket = table_name(), os.environ.get("DECANT_BUCKET")
    if "AWS_ENDPOINT_URL_DYNAMODB" in os.environ:
        table.ensure(boto.connect("dynamodb"), name)
    dynamodb = client.open_client(system(), os.environ)
    return DynamoStore(dynamodb, name, system(), boto.connect("s3") if bucket else None, bucket)


def ingest_rules() -> str | None:
    return os.environ.get("DECANT_INGEST")


def ingest_rejects() -> str | None:
    return os.environ.get("DECANT_INGEST_REJECTS") or None


def export() -> dict[str, Any]:
    """Requests the day's export from AWS, see `store.dynamodb.exports`. Raises Internal, as `check_stage` does."""
    check_stage()
    bucket = os.environ.get("DECANT_EXPORT_BUCKET")
    if not bucket:
        return {"exports": [], "reason": "DECANT_EXPORT_BUCKET, where exports go, is not set"}
    from chalicelib.core.store.dynamodb import boto, exports

    return exports.export(boto.connect("dynamodb"), table_name(), bucket, system().now())


def store_kind() -> str:
    """The store that is chosen. Raises ValueError."""
    kinds = ["dynamodb"] if is_deployed() else ["dynamodb", "memory"]
    return _choice("DECANT_STORE", kinds, "dynamodb")


def signing_key() -> Configured:
    """Raises ValueError, which never shows a key."""
    place, configured = os.environ.get("DECANT_SIGNING_KEY_FROM"), os.environ.get("DECANT_SIGNING_KEY")
    if place and configured:
        raise ValueError("DECANT_SIGNING_KEY and DECANT_SIGNING_KEY_FROM cannot both be set")
    if place:
        return _configured_keys(place)
    if configured is not None and len(configured) < KEY_CHARS_MIN:
        raise ValueError(f"DECANT_SIGNING_KEY must have at least {KEY_CHARS_MIN} characters")
    return configured.encode() if configured else None


def has_access_keys() -> bool:
    """Not where the signing key is in DynamoDB's table, which exports and backups hold as well."""
    return signing_key() is not None or store_kind() != "dynamodb"


def _configured_keys(place: str) -> ConfiguredKeys:
    from chalicelib.core.store.dynamodb import secrets

    service, _, name = place.partition(":")
    if service not in secrets.SERVICES or not name:
        raise ValueError("DECANT_SIGNING_KEY_FROM must be ssm:<name> or secretsmanager:<name or ARN>")
    return ConfiguredKeys("DECANT_SIGNING_KEY_FROM", lambda: secrets.text_at(place), system())
