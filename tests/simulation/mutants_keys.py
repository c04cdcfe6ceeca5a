"""Bugs planted into groups that are ordered by key, and into the delay of groups."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.consuming import claim, key_plan, view
from chalicelib.core.consuming.key_plan import Owed
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor_writes import Change
from chalicelib.core.cursors.lease import TOKEN_CHARS
from tests.simulation.mutants import calling, planted


@planted
def keyed_claims_that_forget_the_cap() -> Any:
    """A claim does not mind what others have claimed since it looked."""
    return patch.object(cursor_writes, "no_claim_since", lambda _: Change())


@planted
def keyed_claims_from_where_the_cursor_stands() -> Any:
    """A claim takes the messages that come next by then, and not those that it saw."""
    demands: dict[str, Any] = dict.fromkeys(("no_claim_since", "stays_at", "not_beyond"), lambda _: Change())
    return patch.multiple(cursor_writes, **demands)


@planted
def keyed_claims_over_acks_that_come_too_late() -> Any:
    """An ack in a pop lets later messages of its key go, though the lease was extended or taken over meanwhile."""
    return calling(claim, unchanged=lambda _: Change())


@planted
def messages_set_aside_for_good() -> Any:
    """What a claim passes because of its key is settled."""
    true = key_plan.arrange
    return patch.object(key_plan, "arrange", lambda *args: dataclasses.replace(true(*args), aside=[]))


@planted
def messages_set_aside_that_nobody_takes() -> Any:
    """What is set aside waits for good."""
    true = Owed.by.__func__  # type: ignore[attr-defined]
    return patch.object(Owed, "by", classmethod(lambda cls, *args: true(cls, *args[:-1], lambda _: False)))


@planted
def extended_leases_that_hold_no_key() -> Any:
    """A message whose lease was extended, or taken over, no longer holds up those behind it."""
    return _forgetting(lambda lease: len(lease.token) > TOKEN_CHARS and not lease.parked)


@planted
def retries_that_hold_no_key() -> Any:
    """A message that waits for its retry holds up nothing."""
    return _forgetting(lambda lease: lease.parked and not lease.is_aside)


@planted
def keys_held_up_by_their_last_message() -> Any:
    """Of a key, what lies before the last held message comes, though it lies behind the first."""
    true = Owed.in_turn

    def in_turn(self: Any, known: Any, fresh: Any) -> Any:
        last = {key_plan.line(known, offset): offset for offset in sorted(self.held)}
        return true(dataclasses.replace(self, held={*last.values()}), known, fresh)

    return patch.object(Owed, "in_turn", in_turn)


@planted
def takeovers_by_offset_only() -> Any:
    """Messages that come back are delivered whatever is out of their key."""
    true = Owed.in_turn

    def in_turn(self: Any, known: Any, fresh: Any) -> Any:
        ready = true(self, known, fresh)
        back = [each for each in self.ready if each.lease and not each.lease.is_aside and each not in ready]
        return sorted([*ready, *back], key=lambda each: each.offset)

    return patch.object(Owed, "in_turn", in_turn)


@planted
@contextmanager
def more_set_aside_than_allowed() -> Iterator[None]:
    """A pop looks as far as there is something to look at."""
    true = key_plan.look
    looking = patch.object(
        key_plan, "look", lambda known, blocked, _aside, *args: true(known, blocked, -(10**9), *args)
    )
    with looking, patch.object(key_plan, "_within_bounds", lambda _cursor, _window, chosen: chosen):
        yield


def keys_kept_in(kept: type[BoundedCache[Any]]) -> Any:
    """Instances keep the keys of messages in a cache of this type."""
    true = key_plan.KeyOrder.__init__

    def begin(order: Any, *arguments: Any) -> None:
        true(order, *arguments)
        order._kept = kept()

    return patch.object(key_plan.KeyOrder, "__init__", begin)


@planted
def keys_of_another_queue() -> Any:
    """An instance keeps the keys of messages by their offset alone."""

    class Kept(BoundedCache[Any]):
        def get(self, key: Any) -> Any:
            return super().get(key[1])

        def keep(self, key: Any, value: Any) -> None:
            super().keep(key[1], value)

    return keys_kept_in(Kept)


@planted
def keys_that_a_weak_read_lacks() -> Any:
    """A message that a weak read does not show yet is taken for one without a key."""
    true = key_plan.KeyOrder._known

    def known(self: Any, *args: Any) -> Any:
        weak = copy.copy(self)
        weak._reader = _Weak(self._reader)
        return true(weak, *args)

    return patch.object(key_plan.KeyOrder, "_known", known)


@planted
def messages_of_a_key_in_any_order() -> Any:
    """Of a key, what was set aside comes after what is new."""
    true = Owed.in_turn

    def in_turn(self: Any, known: Any, fresh: Any) -> Any:
        return sorted(true(self, known, fresh), key=lambda each: each.lease is not None)

    return patch.object(Owed, "in_turn", in_turn)


@planted
def delays_of_a_group_that_nobody_keeps() -> Any:
    """A group takes messages as soon as they are stored."""
    return patch.object(view.QueueView, "is_ripe", lambda *_: True)


class _Weak:
    def __init__(self, reader: Any) -> None:
        self.stored = reader.stored
        self._reader = reader

    def chains(self, wants: Any, strong: bool) -> Any:
        return [[] for _ in wants] if strong else self._reader.chains(wants)


def _forgetting(is_forgotten: Any) -> Any:
    """Plants that what these leases hold is not held."""
    true = Owed.by.__func__  # type: ignore[attr-defined]

    def by(cls: Any, cursor: Any, known: Any, now: int, *args: Any) -> Any:
        owed = true(cls, cursor, known, now, *args)
        for lease in cursor.owing:
            if is_forgotten(lease) and not lease.is_due(now):
                owed.held -= set(lease.owed_offsets)
        return owed

    return patch.object(Owed, "by", classmethod(by))
