"""Judges groups where a receipt names a delivery or a message, and not one lease."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.catalogue.group import BY_DELIVERY
from tests.history import moves, settle_by
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Delivered, Settled


def confirms_what_moved(case: Case, group: str, settled: Settled) -> bool:
    """Whether it is a late ack of a dead message that has moved: where receipts name more than leases, the cursor
    cannot tell it from an ack of a settled message."""
    may_be = settled.verb == "ack" and settle_by.names_more(case.history, group)
    return may_be and moves.had_moved(case.history, group, settled.place, settled.at_ms)


def may_have_acked(case: Case, ack: Settled) -> bool:
    """Whether it counted, or may have: also one that was refused since its lease was over by the clock of its instance,
    if its write came again when an extension had made the same lease last longer."""
    others = case.settled[ack.group, ack.place]
    is_extended = any(
        other.verb == "extend" and other.outcome in settle_by.DONE and other.at_ms >= ack.began_ms for other in others
    )
    comes_again = (
        ack.is_troubled and ack.outcome == "LeaseLost" and settle_by.rule(case.history, ack.group) == BY_DELIVERY
    )
    return ack.outcome in settle_by.DONE or (comes_again and is_extended)


def away_until(case: Case, lease: Delivered, next_lease: Delivered) -> int:
    """The earliest time the message may return by its holder's clock, though any receipt may have moved it since the
    lease began.

    A move that had ended before another began that was carried out cannot take effect after it. If it was not
    answered, a late repeat of it is refused."""
    facts = [
        fact
        for fact in case.settled.get((lease.group, lease.place), ())
        if fact.verb in settle_by.MOVES
        and fact.at_ms >= lease.began_ms
        and settle_by.may_have_counted(case.history, fact)
    ]
    if any(fact.verb != "extend" and case.redriven_after(lease.group, fact.began_ms) for fact in facts):
        return 0  # a nack may have been its last
    moves = [(fact.began_ms, fact.at_ms, _until(case, fact), fact.outcome == "ok") for fact in facts]
    ends = [(lease.began_ms, lease.answered_ms or lease.at_ms, lease.until_ms, True), *moves]
    if len(facts) == 1 and _keeps_away(case, facts[0], lease) and facts[0].at_ms < next_lease.first_ms:
        ends = moves  # the lease was made before the extension, or it would not have been made
    sure = [began_ms for began_ms, at_ms, _, is_ok in ends if is_ok and at_ms < next_lease.first_ms]
    last_ms = max(sure, default=0)
    return min(until_ms for _, at_ms, until_ms, _ in ends if at_ms >= last_ms)


def _keeps_away(case: Case, fact: Settled, lease: Delivered) -> bool:
    """Whether no pop can have taken the message between this move and the answer that brought the lease."""
    is_extended = fact.verb == "extend" and fact.outcome == "ok"
    return is_extended and fact.until_ms > max(lease.at_ms, lease.answered_ms) + case.off_ms


def _until(case: Case, fact: Settled) -> int:
    """The earliest time at which the message may return, by the clock of the caller that moved it."""
    return fact.until_ms or fact.asked_ms - case.off_ms if fact.verb == "extend" else fact.until_ms - case.off_ms


def away_at_most_until(case: Case, lease: Delivered, by_ms: int) -> int:
    """The latest time until which the message may stay away, by the requests until then."""
    end_ms = lease.until_ms
    for fact in case.settled.get((lease.group, lease.place), ()):
        if fact.verb in ("extend", "nack") and fact.outcome in settle_by.DONE and fact.began_ms <= by_ms:
            if fact.outcome == "unknown":
                return NEVER_MS
            end_ms = max(end_ms, fact.at_ms, fact.until_ms + (fact.at_ms - fact.began_ms))
    return end_ms


def is_extended(case: Case, lease: Delivered) -> bool:
    """Whether it may have another end, or token, than its pop asked for, though its receipt was not used."""
    return settle_by.names_more(case.history, lease.group) and may_be_extended(case, lease)


def may_be_extended(case: Case, lease: Delivered) -> bool:
    """Whether an extend of its message may have been carried out between its pop and its answer."""
    facts, shown_ms = case.settled.get((lease.group, lease.place), ()), max(lease.at_ms, lease.answered_ms)
    extends = (fact for fact in facts if fact.verb == "extend" and fact.began_ms <= shown_ms)
    return any(settle_by.may_have_touched(case.history, extend, lease) for extend in extends)


def is_shown_again(case: Case, lease: Delivered, next_lease: Delivered) -> bool:
    """Whether both are one delivery: a repeat of its pop shows it with the end, or the token, of an extension."""
    return lease.taken == next_lease.taken and is_extended(case, next_lease)


def every_receipt_of_a_message_settles(case: Case) -> Iterator[str]:
    """In groups that settle by message: until somebody settles it, or it dies or expires. Where there were resets or
    redrives, nobody knows."""
    for (group, place), settlements in case.settled.items():
        if not settle_by.names_messages(case.history, group) or group in case.resets or case.redriven_after(group, 0):
            continue
        if case.may_be_dead(group, place):
            continue
        own = {delivered.receipt for delivered in case.delivered.get((group, place), ())}
        own |= {settled.new_receipt for settled in settlements}
        over_ms = min(case.expires_ms(place), case.spent_ms(place))
        for settled in settlements:
            is_refused = settled.outcome in ("LeaseLost", "ReceiptInvalid") and settled.at_ms + case.skew_ms < over_ms
            if is_refused and settled.receipt in own and not _is_settled_by(settlements, settled):
                yield f"{group} {place}: {settled.verb} at {settled.at_ms} was refused, and nobody had settled it"


def _is_settled_by(settlements: list[Settled], settled: Settled) -> bool:
    """Whether the message may have been settled before, so that anything but another ack is refused."""
    verbs = ("bury",) if settled.verb == "ack" else ("ack", "bury")
    others = (other for other in settlements if other is not settled and other.verb in verbs)
    return any(other.outcome in settle_by.DONE and other.began_ms <= settled.at_ms for other in others)


def receipts_of_a_delivery_end_with_it(case: Case) -> Iterator[str]:
    """In groups that settle by delivery, the service accepts, after the end of the lease and of its extensions, nothing
    but an ack of a message that is acked, has expired, has moved as a dead message, or was dead and purged."""
    for (group, place), settlements in case.settled.items():
        if settle_by.rule(case.history, group) != BY_DELIVERY or group in case.resets:
            continue
        ends = {delivered.receipt: delivered.until_ms for delivered in case.delivered.get((group, place), ())}
        over_ms = min(case.expires_ms(place), case.spent_ms(place))
        for settled in settlements:
            is_gone = settled.at_ms + case.skew_ms >= over_ms or case.is_perhaps_purged(group, place)
            if settled.verb == "ack" and is_gone:
                continue
            if confirms_what_moved(case, group, settled):
                continue
            if settled.outcome == "ok" and settled.receipt in ends and not _may_repeat_an_ack(settlements, settled):
                end_ms = _end_of_delivery(settlements, ends[settled.receipt], settled)
                if settled.began_ms > end_ms + case.skew_ms:
                    yield f"{group} {place}: {settled.verb} at {settled.began_ms} was accepted after {end_ms}"


def an_extension_keeps_the_receipt_of_its_delivery(case: Case) -> Iterator[str]:
    """In groups that settle by delivery: until the end of the extension, unless another call may have come after it."""
    for (group, place), settlements in case.settled.items():
        is_sure = settle_by.rule(case.history, group) == BY_DELIVERY and group not in case.resets
        if not is_sure or case.redriven_after(group, 0) or case.may_be_dead(group, place):
            continue
        for extend in settlements:
            if extend.verb != "extend" or extend.outcome != "ok":
                continue
            others = [
                other
                for other in settlements
                if other is not extend and settle_by.may_have_counted(case.history, other)
            ]
            end_ms = min(extend.until_ms, case.expires_ms(place), case.spent_ms(place)) - case.skew_ms
            for later in settlements:
                is_within = extend.at_ms < later.began_ms and later.at_ms < end_ms and later.receipt == extend.receipt
                if (
                    is_within
                    and later.outcome == "LeaseLost"
                    and not any(_may_come_between(other, extend, later) for other in others)
                ):
                    yield f"{group} {place}: {later.verb} at {later.began_ms} was refused, before {extend.until_ms}"


def a_reset_ends_every_receipt(case: Case) -> Iterator[str]:
    """By every rule: whatever was delivered before, not even an ack of it is accepted once the reset was answered. But
    an ack is confirmed in a queue that has left, which no reset reaches."""
    for (group, place), settlements in case.settled.items():
        given = {delivered.receipt: delivered.answered_ms for delivered in case.delivered.get((group, place), ())}
        for reset in case.resets.get(group, ()):
            is_elsewhere = isinstance(reset.to, tuple) and reset.to[0] != place[0]
            for settled in settlements if not is_elsewhere else ():
                is_old = given.get(settled.receipt, NEVER_MS) < reset.began_ms
                resizes = (resized for resized in case.history.resized if resized.began_ms <= settled.at_ms)
                has_left = any(place[0] >= resized.queues for resized in resizes)
                is_confirmed = has_left and _may_repeat_an_ack(settlements, settled)
                if is_old and settled.outcome == "ok" and settled.began_ms > reset.at_ms and not is_confirmed:
                    yield f"{group} {place}: {settled.verb} at {settled.began_ms} was accepted, reset at {reset.at_ms}"


def _may_come_between(other: Settled, extend: Settled, later: Settled) -> bool:
    may_follow = other.at_ms >= extend.began_ms or (other.verb == "ack" and other.outcome == "unknown")
    return may_follow and other.began_ms <= later.at_ms


def _may_repeat_an_ack(settlements: list[Settled], settled: Settled) -> bool:
    others = (
        other
        for other in settlements
        if other is not settled and other.verb == "ack" and other.outcome in settle_by.DONE
    )
    return settled.verb == "ack" and any(other.began_ms <= settled.at_ms for other in others)


def _end_of_delivery(settlements: list[Settled], end_ms: int, settled: Settled) -> int:
    """The latest end of its lease by all extensions asked for before."""
    for other in settlements:
        if other is not settled and other.verb == "extend" and other.began_ms <= settled.at_ms:
            end_ms = NEVER_MS if other.outcome == "unknown" else max(end_ms, other.until_ms)
    return end_ms
