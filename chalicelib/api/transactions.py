"""Half messages: stored, and invisible until their sender commits them or rolls them back."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.api.messages import NEW, Stored, produced
from chalicelib.api.operation import TOPIC, TOPIC_NAME, TRANSACTION_ID, Family, Json, Page, page_of
from chalicelib.core.base.errors import TransactionEnded
from chalicelib.core.base.fields import Answer, Sometimes
from chalicelib.core.base.message import QUEUE
from chalicelib.core.base.schema import array, instant, integer, nullable
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.telemetry.trace_context import HEADERS
from chalicelib.core.transactions.request import Begin, Check
from chalicelib.service import Service

TRANSACTIONS = Family("Transactions", __doc__)

_TRANSACTIONS = TOPIC + "/transactions"
_TRANSACTION = _TRANSACTIONS + "/{transaction_id}"
_ROLLED_BACK = instant("When it is rolled back, if nothing is decided before.")

# -- types ------------------------------------------------------------------------------------------------------------


class Begun(Answer):
    """A transaction that waits for its decision."""

    transaction_id = TRANSACTION_ID
    rollback_at_ms = _ROLLED_BACK


class HeldMessage(Answer):
    """A message as its sender sent it, with exactly one of `body` and `body_base64`.

    body: The payload, where it was sent as text.
    body_base64: The payload, where it was sent as bytes, in base64.
    key: Null: the message has none.
    tag: Null: the message has none.
    properties: The producer's own names and values.
    queue: The queue that the message asked for. Missing where it did not ask for one.
    ttl_ms: For how long the message is delivered after the commit. Missing where none was given."""

    RULES: ClassVar = {"oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
    key = nullable(NEW["key"])
    tag = nullable(NEW["tag"])
    properties = NEW["properties"]
    body = Sometimes(NEW["body"])
    body_base64 = Sometimes(NEW["body_base64"])
    queue = Sometimes(QUEUE)
    ttl_ms = Sometimes(NEW["ttl_ms"])


class Transaction(Answer):
    """A transaction that is not decided yet.

    messages: In the order given.
    checks: How many checks have returned it, with this one."""

    topic = TOPIC_NAME
    transaction_id = TRANSACTION_ID
    messages = array(HeldMessage)
    checks = integer(examples=[1])
    created_at_ms = instant()
    rollback_at_ms = _ROLLED_BACK


class CommitResult(Answer):
    """All messages are stored.

    messages: In the order given."""

    messages = array(Stored)


class RollbackResult(Answer):
    """The messages are dropped."""


class CheckResult(Answer):
    """The transactions to decide about, perhaps none.

    transactions: Oldest first."""

    transactions = array(Transaction)


# -- operations -------------------------------------------------------------------------------------------------------


@TRANSACTIONS.operation("POST", _TRANSACTIONS, "produce", {201: Begun}, Begin, headers=HEADERS)
def begin_transaction(service: Service, topic: Topic, request: Begin, **trace: str | None) -> Json:
    """Store messages and hold them back.

    Nothing is stored unless all messages are valid. They have no delay and no `dedup_id`. No group sees them before the
    commit. The hooks for sends run around this request."""
    begun = service.transactions.decisions.begin(topic, request, trace)
    return {"transaction_id": str(begun.id), "rollback_at_ms": begun.rollback_at_ms}


@TRANSACTIONS.operation("POST", _TRANSACTION + "/commit", "produce", CommitResult, errors=(TransactionEnded,))
def commit_transaction(service: Service, topic: Topic, transaction_id: str) -> Json:
    """Deliver the messages of a transaction.

    All become visible or none, once, however often this is called: a repeat gets the same answer. Messages without
    `queue` are given theirs now. `offset` is null where a message cannot be found: it has expired since, or was
    cancelled while it waited for a commit that had died."""
    results = service.transactions.decisions.commit(topic, transaction_id)
    service.stored(topic)
    return {"messages": [produced(result) for result in results]}


@TRANSACTIONS.operation("POST", _TRANSACTION + "/rollback", "produce", RollbackResult, errors=(TransactionEnded,))
def rollback_transaction(service: Service, topic: Topic, transaction_id: str) -> Json:
    """Drop the messages of a transaction.

    Nobody ever sees them. A repeat gets the same answer."""
    service.transactions.decisions.roll_back(topic, transaction_id)
    return {}


@TRANSACTIONS.operation("POST", _TRANSACTIONS + "/check", "produce", CheckResult, Check, hands_out=("",))
def check_transactions(service: Service, topic: Topic, request: Check) -> Json:
    """Take transactions to decide about.

    For a sender to find those whose instance died. Returns those that have been undecided for their `check_after_ms`,
    oldest first. Each is given to one caller, and again after another `check_after_ms`. An answer may hold fewer than
    `max` where it would be too large."""
    transactions = service.transactions.checks.check(topic, request.max, request.wait_ms)
    return {"transactions": [transaction.as_json(topic.name) for transaction in transactions]}


@TRANSACTIONS.operation("GET", _TRANSACTIONS, "read", page_of("transactions", Transaction), Page)
def list_transactions(service: Service, topic: Topic, request: Page) -> Json:
    """List the transactions that are not decided.

    Oldest first. A page may hold fewer than `limit` where a response would be too large, or where some were rolled back
    because nothing was decided."""
    transactions, rest = service.transactions.checks.page(topic, request.limit, request.next)
    return {"transactions": [transaction.as_json(topic.name) for transaction in transactions], "next": rest}
