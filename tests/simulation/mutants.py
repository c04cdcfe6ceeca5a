"""Bugs planted into the protocol, one at a time, to see that the checker finds each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from chalicelib import cursor, lease, log, picking, receipt, settlement
from chalicelib.cursor import Change
from chalicelib.service import claimer, log_writer
from chalicelib.writes import Lacks, SizeIs, Write, never_landed

Mutant = Callable[[], Any]


def _without(guarded: Any, *kinds: type) -> Any:
    """The write or change without its guards of these kinds."""
    return dataclasses.replace(guarded, guards=tuple(each for each in guarded.guards if not isinstance(each, kinds)))


def _appends_without_dedup() -> Any:
    """A repeated append lands twice."""

    def append(*args: Any) -> Write:
        return dataclasses.replace(_without(log.append(*args), Lacks), landed=never_landed)

    return patch.object(log_writer, "append", append)


def _appends_that_trust_the_tail() -> Any:
    """After a full segment the writer goes on at an offset of its own making."""
    true = log_writer.LogWriter._learn

    def learn(self: Any, pending: Any, outcome: Any) -> None:
        true(self, pending, outcome)
        tail = self._tails.get(pending.log)
        if tail is not None and tail.may_create:
            self._tails[pending.log] = dataclasses.replace(tail, base=tail.base + 1)

    return patch.object(log_writer.LogWriter, "_learn", learn)


def _claims_past_the_end() -> Any:
    """A claim may pass the end that the claimer has seen."""

    def claim(token: str, count: int, _next_at_most: int, segment: int | None, deadline: int) -> Change:
        return cursor.claim(token, count, 10**12, segment, deadline)

    return patch.object(picking, "claim", claim)


def _takeovers_without_a_fence() -> Any:
    """A lease is taken over although it was acked, or taken over, since it was seen."""
    return patch.object(picking, "move", lambda *args: _without(cursor.move(*args), SizeIs))


def _moves_without_a_fence() -> Any:
    """A message is nacked or extended although its lease has lost it since."""
    return patch.object(settlement, "move", lambda *args: _without(cursor.move(*args), SizeIs))


def _acks_without_a_fence() -> Any:
    return patch.object(settlement, "ack", lambda *args: Change((), cursor.ack(*args).effects))


def _acks_of_a_whole_lease_without_its_size() -> Any:
    """The last ack removes the lease although others have marked it since."""
    return patch.object(settlement, "ack", lambda *args: _without(cursor.ack(*args), SizeIs))


def _early_takeovers() -> Any:
    """A lease counts as run out a while before it has."""
    return patch.object(lease.Lease, "is_due", lambda self, now: self.deadline - 900 <= now and bool(self.owed))


def _beliefs_taken_for_truth() -> Any:
    """What an instance remembers of a cursor decides what a receipt is worth."""
    return patch.object(settlement.Settlement, "is_confirmed", property(lambda _: True, lambda _self, _value: None))


def _acks_that_are_forgotten() -> Any:
    """A takeover delivers what was acked of the lease."""
    return patch.object(lease.Lease, "acked", property(lambda _: frozenset()))


def _nacks_that_settle() -> Any:
    """A nacked message leaves its lease and goes nowhere."""

    def move(old: Any, indexes: Any, new: Any) -> Change:
        return cursor.move(old, indexes, [] if any(each.parked for each in new) else new)

    return patch.object(settlement, "move", move)


def _the_attempt_forgotten() -> Any:
    """A message that is taken over begins again at the first attempt."""
    true = picking.take

    def take(*args: Any) -> Change:
        made = true(*args)
        for effect in made.effects:
            if isinstance(effect, cursor.Set) and isinstance(effect.value, list) and len(effect.value) == 4:
                effect.value[3] = 1
        return made

    return patch.object(claimer, "take", take)


def _receipts_for_any_message_of_a_lease() -> Any:
    """The index in a receipt is off by one."""
    true = receipt.read

    def read(text: str, key: bytes) -> Any:
        found = true(text, key)
        return found and dataclasses.replace(found, index=max(0, found.index - 1))

    return patch.object(receipt, "read", read)


MUTANTS: dict[str, Mutant] = {
    name.lstrip("_"): planted
    for name, planted in list(globals().items())
    if name.startswith("_")
    and callable(planted)
    and getattr(planted, "__module__", "") == __name__
    and name != "_without"
}
