"""Transactions as their callers see them: the caller, and its judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from chalicelib.core.base.errors import StoreUnavailable, TransactionEnded, TransactionNotFound
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.transactions.half import Begin
from chalicelib.service import Service
from tests.history.caller import PADDED, Record
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Begun, Checked, Decision, Sent
from tests.history.history import History

COMMIT, ROLLBACK = "commit", "rollback"
ENDED, NOT_FOUND = TransactionEnded.__name__, TransactionNotFound.__name__


class TransactionCaller:
    def __init__(self, service: Service, topic: Topic, record: Record, now: Callable[[], int]) -> None:
        self._transactions, self._catalogue = service.transactions, service.env.catalogue
        self._known, self._record, self._now = topic, record, now

    @property
    def _topic(self) -> Topic:
        return self._catalogue.topic(self._known.name)

    def begin(
        self,
        bodies: list[str],
        keys: Sequence[str | None],
        check_after_ms: int,
        rollback_after_ms: int,
        padding: str = "",
    ) -> Begun:
        fact = Begun(bodies, check_after_ms, rollback_after_ms, self._now())
        sent = [Sent(body, key, self._now(), is_unknown=True) for body, key in zip(bodies, keys, strict=True)]
        self._record.begin([fact, *sent])
        padded = [f"{body}{PADDED}{padding}" for body in bodies]
        messages = [{"body": body, "key": key} for body, key in zip(padded, keys, strict=True)]
        try:
            begun = self._transactions.decisions.begin(self._topic, Begin(messages, check_after_ms, rollback_after_ms))
        except StoreUnavailable:
            return fact
        fact.id, fact.at_ms = str(begun.id), self._now()
        self._record.end([fact])
        return fact

    def decide(self, transaction_id: str, verb: str) -> str:
        """Returns the outcome."""
        fact = Decision(transaction_id, verb, self._now())
        self._record.begin([fact])
        decisions = self._transactions.decisions
        try:
            if verb == COMMIT:
                made = decisions.commit(self._topic, transaction_id)
                fact.places = [(produced.message_id, produced.queue, produced.offset) for produced in made]
            else:
                decisions.roll_back(self._topic, transaction_id)
            fact.outcome = "ok"
        except (TransactionEnded, TransactionNotFound) as error:
            fact.outcome = error.code
        except StoreUnavailable:
            return fact.outcome
        fact.at_ms = self._now()
        self._record.end([fact])
        return fact.outcome

    def check(self, most: int) -> list[Checked]:
        began_ms = self._now()
        try:
            shown = self._transactions.checks.check(self._topic, most, 0)
        except StoreUnavailable:
            return []
        checked = [
            Checked(
                str(each.transaction.id),
                [message.body.decode().split(PADDED)[0] for message in each.messages],
                each.transaction.checks,
                began_ms,
                self._now(),
            )
            for each in shown
        ]
        self._record.begin(checked)
        return checked


def note_places(history: History) -> None:
    """Records the places of messages, from the answers of their commits."""
    sent = {each.body: each for each in history.sent}
    for made in history.decisions:
        for body, (message_id, queue, offset) in zip(bodies_of(history, made.id), made.places, strict=False):
            if offset is not None and body in sent:
                sent[body].message_id, sent[body].place = message_id, (queue, offset)
                sent[body].at_ms = min(made.at_ms, sent[body].at_ms)


def bodies_of(history: History, transaction_id: str) -> list[str]:
    """The messages of the transaction, as its sender knows them, or a caller that had to decide."""
    facts: list[Begun | Checked] = [*history.begun, *history.checked]
    known = [fact.bodies for fact in facts if fact.id == transaction_id]
    return known[0] if known else []


def a_transaction_is_all_or_none(case: Case) -> Iterator[str]:
    history = case.history
    there = set(history.log.values())
    for begun in history.begun:
        stored = [body for body in begun.bodies if body in there]
        if stored and len(stored) < len(begun.bodies):
            yield f"of {begun.id} {stored} is in the log, and not the rest of {begun.bodies}"


def a_decision_stands(case: Case) -> Iterator[str]:
    """Committed messages are in the log where each commit says. Others are not, rolled back or undecided."""
    history = case.history
    there = set(history.log.values())
    for transaction_id in {decision.id for decision in history.decisions}:
        bodies = bodies_of(history, transaction_id)
        is_there = bool(bodies) and bodies[0] in there
        decisions = [decision for decision in history.decisions if decision.id == transaction_id]
        for made in decisions:
            is_stored = (made.verb == COMMIT) == (made.outcome == "ok")
            if made.outcome in ("ok", ENDED) and is_stored != is_there:
                where = "is in the log" if is_there else "is not in the log"
                yield f"{transaction_id} {where}, and its {made.verb} at {made.began_ms} was answered {made.outcome}"
            if made.outcome == NOT_FOUND:
                yield f"{transaction_id} was not found at {made.began_ms}"
            told = [history.log.get((queue, -1 if offset is None else offset)) for _, queue, offset in made.places]
            is_gone = not any(told) and _may_have_expired(case, decisions, made)
            if made.outcome == "ok" and made.verb == COMMIT and told != bodies and not is_gone:
                yield f"{transaction_id} was told to lie at {made.places}, where lies {told}"
        yield from _wrong_in_time(case, transaction_id, decisions)


def _may_have_expired(case: Case, decisions: Sequence[Decision], made: Decision) -> bool:
    """Whether what another call had committed may have been gone by then, and its offsets with it."""
    retention_ms = case.history.retention_ms
    over_ms = made.at_ms + case.skew_ms - retention_ms
    return bool(retention_ms) and any(each.verb == COMMIT and each.began_ms <= over_ms for each in decisions)


def _wrong_in_time(case: Case, transaction_id: str, decisions: Sequence[Decision]) -> Iterator[str]:
    commits = [decision for decision in decisions if decision.verb == COMMIT]
    for begun in case.history.begun:
        if begun.id == transaction_id and commits:
            first_ms, over_ms = min(commit.began_ms for commit in commits), begun.at_ms + begun.rollback_after_ms
            if first_ms > over_ms + case.skew_ms and any(commit.outcome == "ok" for commit in commits):
                yield f"{transaction_id} was to be rolled back at {over_ms}, and committed from {first_ms} on"


def half_messages_stay_hidden(case: Case) -> Iterator[str]:
    """No group gets them before a caller asked to commit them, and they are not in the log if none did."""
    history = case.history
    began = {
        body: min(
            (made.began_ms for made in history.decisions if made.id == begun.id and made.verb == COMMIT),
            default=NEVER_MS,
        )
        for begun in history.begun
        for body in begun.bodies
        if begun.id is not None
    }
    for delivered in history.delivered:
        if delivered.answered_ms < began.get(delivered.body, 0):
            yield f"{delivered.group} got {delivered.body} at {delivered.answered_ms}, before its commit"
    for body in history.log.values():
        if began.get(body, 0) == NEVER_MS:
            yield f"{body} is in the log, and nobody committed it"


def a_check_is_given_to_one_caller_at_a_time(case: Case) -> Iterator[str]:
    """The first check comes when the transaction has been undecided for long enough, each next one as much later."""
    history = case.history
    begun = {fact.id: fact for fact in history.begun}
    by_id: dict[str, list[Checked]] = {}
    for checked in history.checked:
        by_id.setdefault(checked.id, []).append(checked)
    for transaction_id, several in by_id.items():
        own, several = begun.get(transaction_id), sorted(several, key=lambda checked: checked.number)
        if own is None:
            continue  # its sender died before it knew the id
        since = [(0, own.began_ms), *((checked.number, checked.began_ms) for checked in several)]
        for (number, began_ms), later in zip(since, several, strict=False):
            if later.number == number or later.at_ms + case.skew_ms < began_ms + own.check_after_ms:
                yield f"{transaction_id} was given at {began_ms}, and again at {later.at_ms}"


def undecided_transactions_are_checked(case: Case) -> Iterator[str]:
    """A check returns each undecided transaction, if all was quiet and its time was not over."""
    history = case.history
    if history.open_at_last is None:
        return
    touched = {decision.id for decision in history.decisions}
    for begun in history.begun:
        is_open = begun.began_ms + begun.rollback_after_ms > history.last_check_ms + case.skew_ms
        if begun.id and is_open and begun.id not in touched | history.open_at_last:
            yield f"{begun.id} is undecided, and no check gives it to anybody"
    for transaction_id in history.open_at_last:
        if any(made.id == transaction_id and made.outcome != "unknown" for made in history.decisions):
            yield f"{transaction_id} is decided, and a check gives it to somebody"
