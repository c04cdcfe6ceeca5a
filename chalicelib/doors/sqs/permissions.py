"""Permissions: the statements of a queue's `Policy`, which is kept and has no effect."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from chalicelib.doors.sqs.action import TEXT, TEXTS, Actions, Call, Json
from chalicelib.doors.sqs.errors import SqsError, bad_value, missing
from chalicelib.doors.sqs.queue_attributes import POLICY, POLICY_BYTES_MAX
from chalicelib.doors.sqs.registry import Change, Standing

PERMISSIONS = Actions()

_ACTIONS_MAX = 7
_LABEL = re.compile("[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile("[0-9]{12}")
_GRANTABLE = (
    *("*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "PurgeQueue"),
    *("GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues"),
)
_VERSION = "2008-10-17"

Statements = list[Any]


@PERMISSIONS.action(
    "AddPermission",
    "admin",
    {"QueueUrl": TEXT, "Label": TEXT, "AWSAccountIds": TEXTS, "Actions": TEXTS},
    required=("Label", "AWSAccountIds", "Actions"),
)
def add_permission(call: Call) -> Json:
    label = call.request["Label"]
    statement = _statement(call)

    def with_statement(statements: Statements) -> Statements:
        if _labelled(statements, label):
            raise bad_value(label, "Label", "Already exists.")
        return [*statements, statement]

    return _changed(call, with_statement)


@PERMISSIONS.action("RemovePermission", "admin", {"QueueUrl": TEXT, "Label": TEXT}, required=("Label",))
def remove_permission(call: Call) -> Json:
    label = call.request["Label"]

    def without_statement(statements: Statements) -> Statements:
        removed = _labelled(statements, label)
        if not removed:
            raise bad_value(label, "Label", "can't find label.")
        return [each for each in statements if each not in removed]

    return _changed(call, without_statement)


def _labelled(statements: Statements, label: str) -> Statements:
    return [each for each in statements if isinstance(each, dict) and each.get("Sid") == label]


def _statement(call: Call) -> Json:
    """Raises SqsError."""
    label, accounts, actions = (call.request[name] for name in ("Label", "AWSAccountIds", "Actions"))
    if not _LABEL.fullmatch(label):
        reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        raise bad_value(label, "Label", reason)
    if not actions:
        raise missing("Actions")
    if len(actions) > _ACTIONS_MAX:
        raise SqsError("OverLimit", f"{len(actions)} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    for action in actions:
        if action not in _GRANTABLE:
            reason = "Only the queue owner is allowed to invoke this action."
            raise bad_value(f"SQS:{action}", "ActionName", reason)
    if not accounts or not all(map(_ACCOUNT.fullmatch, accounts)):
        raise bad_value(f"[{', '.join(accounts)}]", "PrincipalId", "Unable to verify.")
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{account}:root" for account in accounts])},
        "Action": _one_or_all([f"SQS:{action}" for action in actions]),
        "Resource": call.context.arn(call.queue.name),
    }


def _one_or_all(texts: list[str]) -> str | list[str]:
    return texts if len(texts) > 1 else texts[0]


def _changed(call: Call, change: Callable[[Statements], Statements]) -> Json:
    """Changes the statements of the policy, which goes with the last of them. Raises SqsError."""
    new = {"Version": _VERSION, "Id": f"{call.context.arn(call.queue.name)}/SQSDefaultPolicy"}

    def changed(standing: Standing) -> Change:
        queue = standing.queue
        policy = orjson.loads(queue.attributes.get(POLICY) or "{}")
        statements = policy.get("Statement", [])
        kept = change(statements if isinstance(statements, list) else [statements])
        others = {name: text for name, text in queue.attributes.items() if name != POLICY}
        if not kept:
            return Change(others, queue.tags, {}, {})
        text = orjson.dumps({**(policy or new), "Statement": kept}).decode()
        if len(text.encode()) > POLICY_BYTES_MAX:
            raise SqsError(
                "OverLimit", f"The policy of queue {queue.name} would have more than {POLICY_BYTES_MAX} bytes."
            )
        return Change({**others, POLICY: text}, queue.tags, {}, {})

    call.change(changed)
    return {}
