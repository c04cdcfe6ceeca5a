"""Judges acks, nacks and extends: which receipts they accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from chalicelib.core.base.fields import of_base64url
from chalicelib.core.cursors.cursor_writes import WITNESS_MS, WITNESSES_MAX
from tests.history import moves, receipt_rules, settle_by
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Settled


def acked_messages_stay_acked(case: Case) -> Iterator[str]:
    for (group, place), settled in case.settled.items():
        dead = case.history.dead.get(group, {})
        for ack in settled:
            if ack.verb != "ack" or ack.outcome != "ok" or _may_come_after(case, group, ack.began_ms):
                continue
            for later in case.delivered.get((group, place), ()):
                if later.began_ms > ack.at_ms:
                    yield f"{group} {place} was acked at {ack.at_ms} and delivered at {later.began_ms}"
            is_late = moves.had_moved(case.history, group, place, ack.at_ms)
            if place in dead and group not in case.resets and not is_late:
                yield f"{group} {place} was acked at {ack.at_ms} and is dead"


def _may_come_after(case: Case, group: str, ms: int) -> bool:
    """A reset makes what is acked ready; and what died before a reset, and was acked after it, can be redriven."""
    is_letter_left = group in case.resets and case.redriven_after(group, ms)
    return is_letter_left or case.reset_between(group, ms, NEVER_MS)


def stale_receipts_are_refused(case: Case) -> Iterator[str]:
    """Once a later lease of a message was seen, an earlier receipt settles nothing, be it from a pop or an extend,
    unless receipts name messages. An ack by the receipt that has acked it is confirmed, though a redrive has brought it
    back since; one of what another has acked may be, when so many leases were lost since that the receipt's is
    forgotten."""
    for (group, place), settlements in case.settled.items():
        if settle_by.names_messages(case.history, group):
            continue
        deliveries = case.delivered.get((group, place), [])
        for settled in settlements:
            if settled.outcome != "ok" or receipt_rules.confirms_what_moved(case, group, settled):
                continue
            if _repeats_an_ack(case, settled, settlements):
                continue
            given = [
                max(delivered.at_ms, delivered.answered_ms)
                for delivered in deliveries
                if delivered.receipt == settled.receipt
            ]
            given += [other.at_ms for other in settlements if other.new_receipt == settled.receipt]
            since = max(given, default=settled.began_ms)
            older = [delivered for delivered in deliveries if delivered.began_ms <= since]
            newer = [
                delivered
                for delivered in deliveries
                if delivered.began_ms > since
                and delivered.receipt != settled.receipt
                and case.made_by_ms(delivered) < settled.began_ms
                and not any(receipt_rules.is_shown_again(case, lease, delivered) for lease in older)
            ]
            if (newer or _is_spent(case, settled, settlements)) and not _is_forgotten(case, settled, since):
                yield f"{group} {place}: {settled.verb} at {settled.began_ms} by a receipt of {since} was accepted"


def _repeats_an_ack(case: Case, settled: Settled, settlements: Sequence[Settled]) -> bool:
    """One without an answer may have been applied; then only a redrive can have brought the message back."""
    acks = [other for other in settlements if (other.verb, other.receipt) == ("ack", settled.receipt)]
    is_redriven = any(redrive.group == settled.group for redrive in case.history.redrives)
    return settled.verb == "ack" and any(
        (other.outcome == "ok" and other.at_ms <= settled.began_ms)
        or (other.outcome == "unknown" and other.began_ms < settled.began_ms and is_redriven)
        for other in acks
    )


def _is_forgotten(case: Case, ack: Settled, since_ms: int) -> bool:
    """Whether its message may be settled already, and its lease ended long ago, or so many leases of the queue were
    given up since: lost to the next pop, or replaced by an extend or a nack."""
    own = case.delivered.get((ack.group, ack.place), ())
    others = [settled for settled in case.settled[ack.group, ack.place] if settled.verb == "ack" and settled is not ack]
    is_acked = any(other.outcome in ("ok", "unknown") and other.began_ms <= ack.at_ms for other in others)
    over_ms = min([case.spent_ms(ack.place), *(lease.reply_by_ms for lease in own if lease.reply_by_ms)])
    is_over = ack.at_ms + case.skew_ms >= over_ms
    if ack.verb != "ack" or not (is_acked or is_over or case.is_perhaps_purged(ack.group, ack.place)):
        return False
    ends = [lease.until_ms for lease in own if lease.receipt == ack.receipt]
    if settle_by.names_more(case.history, ack.group) or ack.began_ms > max(ends, default=NEVER_MS) + WITNESS_MS:
        return True
    return len(_given_up(case, ack, since_ms)) >= WITNESSES_MAX


def _given_up(case: Case, ack: Settled, since_ms: int) -> set[object]:
    """The leases of the queue that were given up since, or may have been. Those that nobody heard of: one of each pop
    that failed, one for each attempt that is missing between two, and one for each extend that was not answered."""
    given_up: set[object] = {
        pop.began_ms
        for pop in case.history.pops
        if pop.group == ack.group and pop.is_troubled and since_ms < pop.at_ms and pop.began_ms <= ack.at_ms
    }
    for (group, place), deliveries in case.delivered.items():
        if (group, place[0]) != (ack.group, ack.place[0]):
            continue
        for lost, by in pairwise(deliveries):
            if lost.receipt != by.receipt and since_ms < by.at_ms <= ack.at_ms:
                given_up.add(_lease_of(lost.receipt))
                given_up |= {(_lease_of(lost.receipt), attempt) for attempt in range(lost.attempt + 1, by.attempt)}
        for settled in case.settled.get((group, place), ()):
            if settled.verb in ("extend", "nack") and since_ms < settled.at_ms and settled.began_ms <= ack.at_ms:
                is_unheard = settled.verb == "extend" and settled.outcome != "ok"
                is_unheard = is_unheard and settle_by.may_have_counted(case.history, settled)
                new_receipt = f"after {settled.receipt}" if is_unheard else settled.new_receipt
                given_up |= {_lease_of(receipt) for receipt in (settled.receipt, new_receipt) if receipt}
    return given_up


def _lease_of(receipt: str) -> object:
    """The beginning that all receipts of a lease share. A made-up receipt stands for a lease of its own."""
    *lease, _ = (of_base64url(receipt) or b"").split(b":", 7)
    return tuple(lease) if lease else receipt


def live_receipts_are_accepted(case: Case) -> Iterator[str]:
    """Before its deadline a receipt settles, unless it was shown before, its message died, or there was a reset."""
    for (group, place), settlements in case.settled.items():
        if group in case.resets or case.redriven_after(group, 0) or place in case.history.dead.get(group, {}):
            continue
        ends = {delivered.receipt: delivered.until_ms for delivered in case.delivered.get((group, place), ())}
        given = (settled for settled in settlements if settled.new_receipt not in ("", settled.receipt))
        ends |= {settled.new_receipt: settled.until_ms for settled in given}
        for settled in settlements:
            is_refused = settled.outcome in ("LeaseLost", "ReceiptInvalid") and settled.verb != "bury"
            spent_ms = case.spent_ms(place) - case.skew_ms  # a repeat of its attempt settles it then
            end_ms = min(ends.get(settled.receipt, 0) - case.off_ms, spent_ms)
            is_live = settled.at_ms < end_ms and not case.is_perhaps_purged(group, place)
            is_live = is_live and not settle_by.may_have_counted(case.history, settled)
            if is_refused and is_live and not _was_shown(case, settled, settlements):
                yield f"{group} {place}: {settled.verb} at {settled.at_ms} was refused, before {ends[settled.receipt]}"


def _was_shown(case: Case, settled: Settled, settlements: list[Settled]) -> bool:
    """Whether the receipt was used before, or another one that names its message. An ack may repeat an ack."""
    return any(
        other is not settled
        and (other.receipt == settled.receipt or settle_by.names_more(case.history, settled.group))
        and other.began_ms <= settled.at_ms
        and not other.verb == settled.verb == "ack"
        for other in settlements
    )


def _is_spent(case: Case, settled: Settled, settlements: list[Settled]) -> bool:
    spending = ("nack", "bury") if settle_by.names_more(case.history, settled.group) else ("extend", "nack", "bury")
    return any(
        other.receipt == settled.receipt
        and other.verb in spending
        and other.outcome == "ok"
        and other.at_ms < settled.began_ms
        for other in settlements
    )


def a_group_accepts_only_its_own_receipts(case: Case) -> Iterator[str]:
    own = {(delivered.group, delivered.receipt) for delivered in case.history.delivered}
    own |= {(settled.group, settled.new_receipt) for settled in case.history.settled}
    for settled in case.history.settled:
        if settled.outcome == "ok" and (settled.group, settled.receipt) not in own:
            yield f"{settled.group} took a receipt for {settled.place} that it never gave"
