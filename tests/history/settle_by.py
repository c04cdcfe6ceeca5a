"""Says whether receipts name a lease, a delivery or a message, and what follows for calls and pops."""

from __future__ import annotations

from collections import defaultdict

from chalicelib.core.catalogue.group import BY_DELIVERY, BY_MESSAGE
from tests.history.facts import LATE_MS, NEVER_MS, Delivered, Place, Settled, Taken
from tests.history.history import History

MOVES = ("extend", "nack", "bury")
DONE = ("ok", "unknown")


def names_more(history: History, group: str) -> bool:
    return rule(history, group) in (BY_DELIVERY, BY_MESSAGE)


def names_messages(history: History, group: str) -> bool:
    return rule(history, group) == BY_MESSAGE


def rule(history: History, group: str) -> str:
    rules = history.rules.get(group)
    return rules.settle_by if rules else ""


def may_have_counted(history: History, fact: Settled) -> bool:
    """Whether it was carried out, or may have been. One whose first reply was lost is refused if another pop took its
    message by then, since nothing is left to know it by."""
    if fact.outcome in DONE:
        return True
    is_in_doubt = fact.is_troubled and fact.verb in MOVES and fact.outcome == "LeaseLost"
    return is_in_doubt and _is_taken_meanwhile(history, fact)


def _is_taken_meanwhile(history: History, fact: Settled) -> bool:
    """By a pop that overlaps, even one without an answer."""
    pops = (pop for pop in history.pops if pop.group == fact.group and pop.is_troubled)
    message = (fact.group, fact.place)
    leases = (lease for lease in history.delivered if (lease.group, lease.place) == message)
    spans = [(pop.began_ms, pop.at_ms) for pop in pops]
    spans += [(lease.began_ms, lease.answered_ms or lease.at_ms) for lease in leases if lease.receipt != fact.receipt]
    return any(began_ms <= fact.at_ms and at_ms >= fact.began_ms for began_ms, at_ms in spans)


def may_have_touched(history: History, fact: Settled, lease: Delivered) -> bool:
    """Whether it may have settled or moved the message since the pop of this lease was first called."""
    late_ms = 0 if fact.outcome == "ok" else LATE_MS
    return fact.at_ms + late_ms >= lease.first_ms and may_have_counted(history, fact)


def touched_ms(history: History) -> dict[str, int]:
    """By receipt, the earliest that its message may have been settled or moved since its pop was first called, be it by
    another receipt. In other groups none may, and it says never."""
    facts: dict[tuple[str, Place], list[Settled]] = defaultdict(list)
    for fact in history.settled:
        if names_more(history, fact.group):
            facts[fact.group, fact.place].append(fact)
    touched: dict[str, int] = {}
    for lease in history.delivered:
        own = (fact for fact in facts[lease.group, lease.place] if may_have_touched(history, fact, lease))
        touched[lease.receipt] = min((fact.began_ms for fact in own), default=NEVER_MS)
    return touched


def extended_unheard(history: History) -> dict[str, int]:
    """Receipts made by an extend whose reply was lost, which only a repeat of the pop has shown; and the earliest end
    such an extend asked for. An extend gives one. Groups where receipts name more than a lease are left out."""
    shown_ms: dict[Taken, dict[str, int]] = defaultdict(dict)
    taken: dict[str, Taken] = {}
    for lease in sorted(history.delivered, key=lambda lease: lease.answered_ms):
        taken[lease.receipt] = lease.taken
        shown_ms[lease.taken].setdefault(lease.receipt, lease.answered_ms)
    unheard: dict[Taken, list[Settled]] = defaultdict(list)
    for fact in sorted(history.settled, key=lambda fact: fact.began_ms):
        delivery = taken.get(fact.receipt)
        if delivery is None or fact.verb != "extend" or names_more(history, fact.group):
            continue
        if fact.new_receipt:
            taken.setdefault(fact.new_receipt, delivery)
        elif may_have_counted(history, fact):
            unheard[delivery].append(fact)
    heard = {fact.new_receipt for fact in history.settled}
    asked: dict[str, int] = {}
    for delivery, extends in unheard.items():
        _, *later = shown_ms[delivery].items()
        new = [receipt for receipt, ms in later if receipt not in heard and ms >= extends[0].began_ms]
        asked |= dict.fromkeys(new[: len(extends)], min(extend.asked_ms for extend in extends))
    return asked
