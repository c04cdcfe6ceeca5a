"""Bugs planted into what becomes of messages that cannot be read, for a while or ever, and into what readers see."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming import claim
from chalicelib.core.consuming.claim import Claimed, Claimer
from chalicelib.core.consuming.delivery import Deliverer
from chalicelib.core.consuming.skip import Skipper
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.log.writer import LogWriter
from chalicelib.core.reading.trace import DEAD, SETTLED, Traces
from chalicelib.core.table.writes import SizeIs
from tests.simulation.mutants import calling, planted, without


@planted
def leases_given_back_without_a_fence() -> Any:
    """A call that cannot read its messages gives them back though another call of the attempt delivers them."""
    return calling(claim, move=lambda *args: without(cursor_writes.move(*args), SizeIs))


@planted
def repeats_that_confirm_nothing() -> Any:
    """A second call of an attempt delivers what the first has leased, and does not note that it does."""

    def held(self: Any, view: Any) -> Any:
        token = view.ask.attempt_token
        leases = view.cursor.held(token, self._runtime.now()) if token else []
        return Claimed(leases, [], is_own=False) if leases else None

    return patch.object(Claimer, "held", held)


@planted
def leases_that_nobody_gives_back() -> Any:
    """An attempt counts though its messages could not be read."""
    return patch.object(Claimer, "give_back", lambda *_: None)


@planted
def repeats_that_give_back() -> Any:
    """A repeat that cannot read what an earlier call has delivered gives it back."""
    true = Claimer.held

    def held(*args: Any) -> Any:
        found = true(*args)
        return found and dataclasses.replace(found, is_own=True)

    return patch.object(Claimer, "held", held)


@planted
def losses_that_are_settled_silently() -> Any:
    """A message whose payload is gone counts as acked."""
    return patch.object(Deliverer, "bury_lost", Deliverer.ack_expired)


@planted
def losses_that_a_filter_passes() -> Any:
    """A message whose payload is gone is taken for one that the group does not want."""
    true = Skipper.examined

    def examined(self: Any, view: Any) -> Any:
        offsets, wanted = true(self, view)
        stored = self._reader.stored(view.topic, view.queue, view.chain, wanted)
        return offsets, [each.offset for each in stored if not each.message.is_lost]

    return patch.object(Skipper, "examined", examined)


@planted
def losses_that_take_others_along() -> Any:
    """With a message whose payload is gone all die that were taken with it."""
    true, delivering = Deliverer.expired_and_lost, Deliverer.deliver

    def expired_and_lost(self: Any, view: Any, offsets: Any) -> Any:
        expired, lost = true(self, view, offsets)
        return expired, sorted({*lost, *(offset + 1 for offset in lost if offset + 1 in self.taken)})

    def deliver(self: Any, view: Any, claimed: Any) -> Any:
        self.taken = {offset for lease in claimed.leases for offset in lease.owed_offsets}
        return delivering(self, view, claimed)

    return patch.multiple(Deliverer, expired_and_lost=expired_and_lost, deliver=deliver)


@planted
def messages_that_no_key_finds() -> Any:
    """A delayed message gets no entry in the index of keys."""
    true = LogWriter.index

    def index(self: Any, topic: Any, entries: Any) -> None:
        true(self, topic, [packed for packed in entries if packed[1].first_sent_at_ms is None])

    return patch.object(LogWriter, "index", index)


@planted
def traces_that_forget_the_dead() -> Any:
    """A dead message is traced as settled."""
    true = Traces._state

    def state(*args: Any) -> str:
        return SETTLED if (told := true(*args)) == DEAD else told

    return patch.object(Traces, "_state", state)
