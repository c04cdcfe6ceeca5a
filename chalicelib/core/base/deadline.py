"""One call of a client: its deadline for the store, and whether it has already changed anything.

All code that works for the call can read both without passing them through every layer. The deadline is that of the
call, not of each request in it, and an error after a change must have an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MAX, HOP_MS_MIN, SECOND_MS, STORE_DEADLINE_MS
from chalicelib.core.base.records import mutable

T = TypeVar("T")

CALL_MS_MAX = 25 * SECOND_MS
"""The longest call, including the wait of a long poll: API Gateway gives up after 29 s."""
LAST_LOOK_MS = SECOND_MS // 2
"""A wait ends this long before the call does, so that the call can still claim and read the messages it finds."""


@mutable
class OneCall:
    began_at_ms: int
    waited_ms: int = 0
    has_written: bool = False


_current: ContextVar[OneCall | None] = ContextVar("call", default=None)
_within_ms: ContextVar[int | None] = ContextVar("within", default=None)
_ends_at_ms: ContextVar[int | None] = ContextVar("ends", default=None)
_part_until_ms: ContextVar[int | None] = ContextVar("part", default=None)
_is_hasty: ContextVar[bool] = ContextVar("hasty", default=False)
_has_hung_up: ContextVar[Callable[[], bool]] = ContextVar("has_hung_up", default=lambda: False)


@contextmanager
def set_during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Gives the variable this value in the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def one_call(uptime_ms: int) -> Iterator[OneCall]:
    """Runs a call that begins now; instants here are of `Runtime.uptime`. If the store fails after the call has changed
    something, its outcome is unknown."""
    call = OneCall(uptime_ms)
    token = _current.set(call)
    try:
        yield call
    except StoreUnavailable as trouble:
        if call.has_written and not trouble.outcome_unknown:
            raise StoreUnavailable(trouble.detail, outcome="unknown") from trouble
        raise
    finally:
        _current.reset(token)


def within(until_ms: int) -> AbstractContextManager[None]:
    """Ends the call's time for the store at this instant if it would end later. Requests in doubt end there too: then
    the outcome is unknown. A try that is under way is not interrupted."""
    outer_ms = _within_ms.get()
    return set_during(_within_ms, until_ms if outer_ms is None else min(outer_ms, until_ms))


@contextmanager
def ending(at_ms: int) -> Iterator[None]:
    """Ends the call for good at this instant: no request to the store begins later, and waits end `LAST_LOOK_MS`
    before."""
    with set_during(_ends_at_ms, at_ms), within(at_ms):
        yield


def has_ended(uptime_ms: int) -> bool:
    ends_at_ms = _ends_at_ms.get()
    return ends_at_ms is not None and uptime_ms >= ends_at_ms


def wait_until_ms(ms: int) -> int:
    """When a wait ends that should last until this instant."""
    ends_at_ms = _ends_at_ms.get()
    return ms if ends_at_ms is None else min(ms, ends_at_ms - LAST_LOOK_MS)


def part_until(ms: int) -> AbstractContextManager[None]:
    """Gives requests to the store less time than the call has: until this instant. Afterwards the call can try
    another way. Requests in doubt that must be resolved still get the whole time."""
    return set_during(_part_until_ms, ms)


def hasty() -> AbstractContextManager[None]:
    """Does not retry requests that the store throttles: the caller has a better alternative."""
    return set_during(_is_hasty, True)


@contextmanager
def aside(until_ms: int) -> Iterator[None]:
    """For work beside the call's task. It ends at this instant at the latest, does not retry throttled requests, and
    its writes do not make later errors of the call unknown."""
    call = _current.get()
    own = call and OneCall(call.began_at_ms, call.waited_ms)
    with set_during(_current, own), within(until_ms), hasty():
        yield


def is_hasty() -> bool:
    return _is_hasty.get()


def hop_until_ms(uptime_ms: int) -> int:
    """How long one attempt may take before the call tries an alternative: half the time left, within bounds."""
    left_ms = give_up_at_ms(uptime_ms) - uptime_ms
    return uptime_ms + max(min(HOP_MS_MAX, left_ms // 2), HOP_MS_MIN)


def give_up_at_ms(uptime_ms: int, in_doubt: bool = False) -> int:
    """When to give up on the store. `in_doubt`: a write may have landed."""
    call = _current.get()
    until_ms = uptime_ms + STORE_DEADLINE_MS
    if call is not None:
        until_ms = call.began_at_ms + min(call.waited_ms + STORE_DEADLINE_MS, CALL_MS_MAX)
    for earlier_ms in (_within_ms.get(), None if in_doubt else _part_until_ms.get()):
        if earlier_ms is not None:
            until_ms = min(until_ms, earlier_ms)
    return until_ms


@contextmanager
def caller(has_hung_up: Callable[[], bool]) -> Iterator[None]:
    """Runs a call for a client that may disconnect, on a server that may be stopped. `has_hung_up` returns at once
    whether either has happened."""
    token = _has_hung_up.set(has_hung_up)
    try:
        yield
    finally:
        _has_hung_up.reset(token)


def is_abandoned() -> bool:
    """Whether the client has disconnected or the server is stopping. The call should then take no more messages and
    return those it has."""
    return _has_hung_up.get()()


def has_waited(ms: int) -> None:
    """Records deliberate sleep, which does not count against the store's time."""
    if call := _current.get():
        call.waited_ms += ms


def has_written() -> None:
    if call := _current.get():
        call.has_written = True
