"""Half messages: stored, and invisible until their sender commits or rolls back the transaction."""

from __future__ import annotations

from typing import Any, ClassVar

from chalicelib.api.messages import NEW, Stored, produced
from chalicelib.api.operation import TOPIC, TOPIC_NAME, TRANSACTION_ID, Family, Json, Page, page_of
from chalicelib.core.base.errors import TransactionEnded
from chalicelib.core.base.fields import Answer, Sometimes, array, instant, integer, nullable
from chalicelib.core.base.message import QUEUE
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing.new_message import BODY_OR_BYTES
from chalicelib.core.telemetry.record import TRACE_HEADERS
from chalicelib.core.transactions.half import Begin, Check
from chalicelib.service import Service

TRANSACTIONS = Family("Transactions", __doc__)

_TRANSACTIONS = TOPIC + "/transactions"
_TRANSACTION = _TRANSACTIONS + "/{transaction_id}"
_ROLLED_BACK = instant("When the service rolls it back, if it is still undecided.")

# -- types ------------------------------------------------------------------------------------------------------------


class Begun(Answer):
    """An undecided transaction."""

    transaction_id = TRANSACTION_ID
    rollback_at_ms = _ROLLED_BACK


class HeldMessage(Answer):
    """A message as its sender sent it, with exactly one of `body` and `body_base64`.

    body: The payload, if it was sent as text.
    body_base64: The payload in base64, if it was sent as bytes.
    key: Null: the message has none.
    tag: Null: the message has none.
    properties: The producer's own names and values.
    queue: The queue that the sender chose. Absent if it chose none.
    ttl_ms: How long the message is delivered after the commit, in milliseconds. Absent if none was given."""

    RULES: ClassVar[Any] = BODY_OR_BYTES
    key = nullable(NEW["key"])
    tag = nullable(NEW["tag"])
    properties = NEW["properties"]
    body = Sometimes(NEW["body"])
    body_base64 = Sometimes(NEW["body_base64"])
    queue = Sometimes(QUEUE)
    ttl_ms = Sometimes(NEW["ttl_ms"])


class Transaction(Answer):
    """An undecided transaction and its messages.

    messages: In the order given.
    checks: How many checks have returned the transaction, including this one."""

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
    """The transactions to decide, if any.

    transactions: Oldest first."""

    transactions = array(Transaction)


# -- operations -------------------------------------------------------------------------------------------------------


@TRANSACTIONS.operation("POST", _TRANSACTIONS, "produce", {201: Begun}, Begin, headers=TRACE_HEADERS)
def begin_transaction(service: Service, topic: Topic, request: Begin, **trace: str | None) -> Json:
    """Store messages and hold them back.

    Unless all messages are valid, the call stores none. They cannot have a delay or a `dedup_id`. No group sees them
    before the commit. The hooks for sends run with this request."""
    begun = service.transactions.decisions.begin(topic, request, trace)
    return {"transaction_id": str(begun.id), "rollback_at_ms": begun.rollback_at_ms}


@TRANSACTIONS.operation("POST", _TRANSACTION + "/commit", "produce", CommitResult, errors=(TransactionEnded,))
def commit_transaction(service: Service, topic: Topic, transaction_id: str) -> Json:
    """Deliver the messages of a transaction.

    All messages become visible exactly once, or none does; a repeat returns the same answer. Messages without `queue`
    get their queue now. `offset` is null if a message cannot be found: it has expired since, or was cancelled while a
    crashed commit was incomplete."""
    results = service.transactions.decisions.commit(topic, transaction_id)
    service.stored(topic)
    return {"messages": [produced(result) for result in results]}


@TRANSACTIONS.operation("POST", _TRANSACTION + "/rollback", "produce", RollbackResult, errors=(TransactionEnded,))
def rollback_transaction(service: Service, topic: Topic, transaction_id: str) -> Json:
    """Drop the messages of a transaction.

    No consumer ever sees them. A repeat returns the same answer."""
    service.transactions.decisions.roll_back(topic, transaction_id)
    return {}


@TRANSACTIONS.operation("POST", _TRANSACTIONS + "/check", "produce", CheckResult, Check, hands_out=("",))
def check_transactions(service: Service, topic: Topic, request: Check) -> Json:
    """Take transactions to decide.

    A sender finds here the transactions of its crashed instances. Returns those that have been undecided for their
    `check_after_ms`, oldest first. Each goes to one caller, and to a caller again after another `check_after_ms`. A
    response may hold fewer than `max` to stay small enough."""
    transactions = service.transactions.checks.check(topic, request.max, request.wait_ms)
    return {"transactions": [transaction.as_json(topic.name) for transaction in transactions]}


@TRANSACTIONS.operation("GET", _TRANSACTIONS, "read", page_of("transactions", Transaction), Page)
def list_transactions(service: Service, topic: Topic, request: Page) -> Json:
    """List undecided transactions.

    The list is ordered oldest first. A page may hold fewer than `limit` transactions to keep the response small enough,
    or since some were rolled back undecided."""
    transactions, rest = service.transactions.checks.page(topic, request.limit, request.next)
    return {"transactions": [transaction.as_json(topic.name) for transaction in transactions], "next": rest}
