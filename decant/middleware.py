"""Middleware: functions around handlers. Each gets the next handler, and returns one.

def timing(call_next):
    def handle(message):
        began = time.monotonic()
        try:
            return call_next(message)
        finally:
            print(message.id, time.monotonic() - began)

    return handle

@mq.consumer("orders", group="billing", middleware=[timing, time_limit(30)])
def bill(order): ...

The handler that it returns for `async def` is `async def` too. The handler of a batch gets the list of messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import inspect
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from decant.consumer import Handle, Middleware
from decant.messages import Bury, Duration, Message, Retry, seconds


def around(make: Callable[[Any], contextlib.AbstractContextManager[Any]]) -> Middleware:
    """Middleware of a context manager that is entered for each call, for handlers of both kinds. It gets what the
    handler gets."""

    def middleware(call_next: Handle) -> Handle:
        if inspect.iscoroutinefunction(call_next):

            @functools.wraps(call_next)
            async def handle_later(message: Any) -> Any:
                with make(message):
                    return await call_next(message)

            return handle_later

        @functools.wraps(call_next)
        def handle(message: Any) -> Any:
            with make(message):
                return call_next(message)

        return handle

    return middleware


def first_of(message: Any) -> Message[Any]:
    """The message, or the first of a batch."""
    first: Message[Any] = message[0] if isinstance(message, list) else message
    return first


# -- logging -----------------------------------------------------------------------------------------------------------


def logged(logger: logging.Logger | None = None, level: int = logging.INFO) -> Middleware:
    """Logs each call of the handler: the message, its attempt, how long it took, and how it ended."""
    log = logger or logging.getLogger("decant.handled")

    @contextlib.contextmanager
    def call(message: Any) -> Iterator[None]:
        began, ended = time.monotonic(), "done"
        try:
            yield
        except BaseException as error:
            ended = {Retry: "retry", Bury: "buried"}.get(type(error), type(error).__name__)
            raise
        finally:
            first, count = first_of(message), len(message) if isinstance(message, list) else 1
            took_ms = (time.monotonic() - began) * 1_000
            log.log(
                level,
                "%s %s%s attempt=%d %s in %.1f ms",
                first.topic,
                first.id,
                f" and {count - 1} more" if count > 1 else "",
                first.attempt,
                ended,
                took_ms,
            )

    return around(call)


# -- time limits -------------------------------------------------------------------------------------------------------


class TimeLimitExceeded(TimeoutError):
    """Raised in a handler that takes too long."""


def time_limit(limit: Duration) -> Middleware:
    """Raises TimeLimitExceeded in a handler that takes longer, so that its message is nacked. In a thread it is raised
    between two lines of Python, so not in a call of C that does not return."""
    limit_s = seconds("limit", limit)

    def middleware(call_next: Handle) -> Handle:
        if inspect.iscoroutinefunction(call_next):

            @functools.wraps(call_next)
            async def handle_later(message: Any) -> Any:
                scope = asyncio.timeout(limit_s)
                try:
                    async with scope:
                        return await call_next(message)
                except TimeoutError as error:
                    if scope.expired():
                        raise TimeLimitExceeded(f"longer than {limit_s} s") from error
                    raise

            return handle_later

        limited = around(lambda _message: _Limit(limit_s))(call_next)

        @functools.wraps(call_next)
        def handle(message: Any) -> Any:
            try:
                return limited(message)
            except _Interrupt:  # it came while the limit was entered or left
                raise TimeLimitExceeded(f"longer than {limit_s} s") from None

        return handle

    return middleware


class _Limit(contextlib.AbstractContextManager["_Limit"]):
    """Raises in the thread that entered it, once the time is over; never after it was left."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._is_over = self._is_raised = False
        self._timer = threading.Timer(limit_s, self._raise)
        self._timer.daemon = True

    def __enter__(self) -> _Limit:
        self._thread = threading.get_ident()
        self._timer.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
        if not self._is_raised or isinstance(error, _Interrupt):
            self._tell(error)
            return
        try:  # it is on its way to this thread
            while True:
                time.sleep(0.001)
        except _Interrupt:
            self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        if self._is_raised and (error is None or isinstance(error, _Interrupt)):
            raise TimeLimitExceeded(f"longer than {self._limit_s} s") from None

    def _raise(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupt))


class _Interrupt(BaseException):
    """Passes `except Exception` of the handler."""


# -- idempotence -------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """Remembers ids of messages. A `set` is one; one that outlives the process is better."""

    def __contains__(self, id_: Any, /) -> bool: ...

    def add(self, id_: str, /) -> None: ...


class Recent:
    """A store of the last ids, in memory."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, id_: Any, /) -> bool:
        return id_ in self._ids

    def add(self, id_: str, /) -> None:
        with self._lock:
            self._ids[id_] = None
            while len(self._ids) > self._most:
                self._ids.popitem(last=False)


def remember(store: Store) -> Middleware:
    """Handles a message once: one whose id the store has is acked without the handler. The store gets the id when the
    handler has returned, so a handler that dies before is called again. Requests are handled each time, since their
    replies are not stored."""

    def middleware(call_next: Handle) -> Handle:
        if inspect.iscoroutinefunction(call_next):

            @functools.wraps(call_next)
            async def handle_later(message: Any) -> Any:
                left = _left(store, message)
                return _noted(store, message, left, await call_next(left)) if left else None

            return handle_later

        @functools.wraps(call_next)
        def handle(message: Any) -> Any:
            left = _left(store, message)
            return _noted(store, message, left, call_next(left)) if left else None

        return handle

    return middleware


def _left(store: Store, message: Any) -> Any:
    """The part that the handler is to get; nothing if all is done."""
    if isinstance(message, list):
        return [each for each in message if _left(store, each)]
    return message if message.correlation_id is not None or message.id not in store else None


def _noted(store: Store, message: Any, left: Any, result: Any) -> Any:
    """Remembers what is done. Returns the result, with one for each message if it is a list."""
    if not isinstance(message, list):
        return _note(store, [left], [result])[0]
    if not isinstance(result, list):
        _note(store, left, [result] * len(left))
        return result
    if len(result) != len(left):
        return result
    _note(store, left, result)
    results = {each.id: one for each, one in zip(left, result, strict=True)}
    return [results.get(each.id) for each in message]


def _note(store: Store, messages: list[Message[Any]], results: list[Any]) -> list[Any]:
    for message, result in zip(messages, results, strict=True):
        if not isinstance(result, BaseException):
            store.add(message.id)
    return results
