"""Bugs planted into claims, leases and receipts: the store makes something else of most writes on cursors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue.group import BY_MESSAGE, BY_RECEIPT
from chalicelib.core.consuming.pop import Popper
from chalicelib.core.consuming.receipt_batch import LEASE_LOST, Failure
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.cursors.lease import ACKED, CONFIRMED
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Append, Equals, SizeIs, Write
from tests.history import attempts, drains, leases, log, order, pops, purges, receipt_rules, settlements
from tests.simulation import world
from tests.simulation.bugs.lies import (
    CURSORS,
    Plant,
    about,
    calling,
    changes,
    claims,
    forgetting,
    leaving_out,
    of_cursors,
    of_kind,
    setting,
    storing,
    together,
    unguarded,
    with_leases,
    without,
)
from tests.simulation.bugs.registry import shown_by
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.plans import BROADCAST, CROWD, EMPTIED, HASTY, KEYED, MEDDLED, NAMED, RISEN, SIFTED, TORN, Plan

DEADLINE, ATTEMPT, AGE = 2, 3, 4
"""Positions in a stored lease."""


_STALE = replace(TORN, faults=replace(TORN.faults, stale=0.7, stale_ms_max=1_500))


def _resets(write: Write) -> bool:
    return of_cursors(write) and changes(write, "epoch") and not changes(write, "claims")


# -- claims -----------------------------------------------------------------------------------------------------------


@shown_by(log.cursors_stay_within_the_log)
def claims_past_the_end() -> Plant:
    """A claim may pass the end that it has seen."""
    return unguarded(claims, about("next"))


@shown_by(leases.no_more_are_in_flight_than_allowed, RISEN)
def claims_that_what_is_redriven_passes() -> Plant:
    """Messages redriven since the look do not count against the cap."""
    return unguarded(claims, about("returns"))


@shown_by(settlements.acked_messages_stay_acked, CROWD)
def takeovers_without_a_fence() -> Plant:
    """A claim takes over a lease although it was acked, or taken over, since it was seen."""
    return unguarded(claims, of_kind(SizeIs))


@shown_by(attempts.attempts_count_up)
def attempts_that_begin_anew() -> Plant:
    """A takeover sets its messages back to their first attempt."""
    return with_leases(claims, lambda _, listed: [*listed[:ATTEMPT], 1, *listed[AGE:]])


@shown_by(settlements.acked_messages_stay_acked, HASTY)
def repeats_that_confirm_nothing() -> Plant:
    """A second call of an attempt delivers the messages of the first, and does not record that."""

    def confirms(write: Write) -> bool:
        marks = [effect.elements for effect in write.effects if isinstance(effect, Append)]
        return of_cursors(write) and marks == [[CONFIRMED]] * len(write.effects)

    return forgetting(confirms)


@shown_by(attempts.the_first_delivery_stays_the_first)
def firsts_that_each_takeover_begins() -> Plant:
    """A takeover counts as the first delivery of its messages."""
    return with_leases(
        claims, lambda _, listed: listed[:AGE] + [each for each in listed[AGE:] if not isinstance(each, int)]
    )


@shown_by(order.no_more_is_set_aside_than_allowed, KEYED)
def more_set_aside_than_allowed() -> Plant:
    """Pops do not see the limit of the history."""
    return patch.object(world, "key_plan", SimpleNamespace(SET_ASIDE_MAX=0))


@shown_by(pops.a_filter_holds_back_unwanted_messages, SIFTED)
def claims_that_pass_what_others_sifted() -> Plant:
    """A claim counts the messages that its filter passes from wherever the cursor stands by then."""
    return unguarded(claims, lambda guard: isinstance(guard, Equals) and guard.path == ("next", 0))


@shown_by(order.an_ordered_queue_waits_for_unsettled_messages, MEDDLED)
def keyed_claims_over_acks_that_come_too_late() -> Plant:
    """An ack in a pop lets later messages of its key go, though the lease was extended or taken over meanwhile."""

    def careless(write: Write) -> Write:
        marked = {
            effect.path: effect.elements[0]
            for effect in write.effects
            if isinstance(effect, Append) and effect.onto is None
        }
        acked = {path for path, mark in marked.items() if mark[:1] == ACKED}
        return without(write, lambda guard: isinstance(guard, SizeIs) and guard.path in acked)

    return storing(lambda write: careless(write) if claims(write) else write)


@shown_by(order.an_ordered_queue_waits_for_unsettled_messages, replace(CROWD, ordered=True))
def ordered_claims_that_race() -> Plant:
    """Two claims of an ordered queue may both win, after looks that found it free."""
    return unguarded(claims, about("claims"))


@shown_by(drains.no_message_is_lost, BROADCAST)
def consumers_that_share_a_cursor() -> Plant:
    """Two consumers of a broadcast group share one cursor."""
    true = keys.consumer
    return patch.object(keys, "consumer", lambda name: true("ann" if name == "bob" else name))


# -- settling ---------------------------------------------------------------------------------------------------------


@shown_by(settlements.stale_receipts_are_refused, NAMED)
def moves_without_a_fence() -> Plant:
    """A message is nacked or extended although its lease has lost it since."""
    return unguarded(lambda write: of_cursors(write) and not claims(write), of_kind(SizeIs))


@shown_by(settlements.live_receipts_are_accepted)
def receipts_refused_while_they_live() -> Plant:
    """An ack of a message that is owed is refused."""
    return calling(Settler, "ack", lambda *args: [Failure(text, LEASE_LOST) for text in args[-1]])


@shown_by(leases.a_lease_lasts_as_long_as_asked)
def extensions_that_are_short() -> Plant:
    """An extended lease ends a second before it was asked to."""
    return calling(Settler, "extend", lambda true, *args: true(*args[:-1], args[-1] - 1_000))


@shown_by(settlements.a_group_accepts_only_its_own_receipts, Plan(groups=2, pops=6))
def receipts_without_a_group() -> Plant:
    """A group accepts receipts of another group."""
    given: dict[str, str] = {}

    def pop(true: Any, self: Any, topic: Any, group: str, *args: Any) -> Any:
        popped = true(self, topic, group, *args)
        given.update((each.receipt, group) for each in popped.deliveries)
        return popped

    def ack(true: Any, self: Any, topic: Any, group: str, texts: Any) -> Any:
        return [each for text in texts for each in true(self, topic, given.get(text, group), [text])]

    return together(calling(Popper, "pop", pop), calling(Settler, "ack", ack))


@shown_by(settlements.acked_messages_stay_acked, _STALE)
def verdicts_from_the_past() -> Plant:
    """Reads of cursors may be stale, even if the caller asks for strong ones."""

    def read(true: Any, self: FaultyStore, reads: Any) -> Any:
        are_weak = [isinstance(each, Keys) and any(key.sk.startswith(CURSORS) for key in each.keys) for each in reads]
        return true(
            self, [replace(each, strong=False) if weak else each for each, weak in zip(reads, are_weak, strict=True)]
        )

    return calling(FaultyStore, "read", read)


# -- what receipts name -----------------------------------------------------------------------------------------------


@shown_by(receipt_rules.every_receipt_of_a_message_settles, replace(NAMED, settle_by=BY_MESSAGE))
def messages_that_the_last_receipt_names_alone() -> Plant:
    return setting("group", "settle_by", lambda _: BY_RECEIPT)


@shown_by(receipt_rules.an_extension_keeps_the_receipt_of_its_delivery, replace(NAMED, settle_by="delivery"))
def deliveries_that_end_with_an_extension() -> Plant:
    return setting("group", "settle_by", lambda _: BY_RECEIPT)


@shown_by(receipt_rules.receipts_of_a_delivery_end_with_it, replace(NAMED, settle_by="delivery"))
def deliveries_that_any_receipt_names() -> Plant:
    return setting("group", "settle_by", lambda _: BY_MESSAGE)


# -- resets -----------------------------------------------------------------------------------------------------------


@shown_by(receipt_rules.a_reset_ends_every_receipt, Plan(resets=3, pops=6))
def resets_that_keep_leases() -> Plant:
    """A reset moves the cursor, and earlier leases live on."""
    return leaving_out(_resets, ("leases",), ("epoch",))


@shown_by(purges.nothing_sent_before_a_purge_comes_after_it, EMPTIED)
def purges_that_forget_what_waits() -> Plant:
    """A purge moves the group to the ends, and nothing else."""
    return leaving_out(_resets, ("purged",))
