"""A consumer is a handler and how its messages are fetched. `mq.consumer(topic, group=...)` makes one, `mq.run()` runs
all of a client.

| the handler | becomes of the message |
| --- | --- |
| returns | acked; a request: what it returns is the reply, unless that is None |
| raises or returns `Retry` | nacked: it comes again after the delay, or the group's backoff |
| raises or returns `Bury` | it becomes a dead letter at once |
| raises anything else | nacked, with the exception as the reason |
| ends its process, with `executor="process"` | nacked, with the exit code as the reason |
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

from decant.calls import Json
from decant.errors import DecantError, SettingError
from decant.lanes import Ordered
from decant.messages import Bury, Duration, Message, Retry, seconds
from decant.payloads import PLAIN, Codec, Topic, codec_of
from decant.pushes import Asgi, Guard, Wsgi, async_pushed, pushed
from decant.settling import Answered, Verdict, answering, failed, returned, returned_for_all

if TYPE_CHECKING:
    from decant.aio import AsyncDecant
    from decant.client import Decant

T = TypeVar("T")
Handle = Callable[[Any], Any]
"""A handler as middleware sees it: it gets the message, or, of a batch, the list of messages."""
Middleware = Callable[[Handle], Handle]
Function = Callable[..., Any]
OnRefused = Callable[[Message[Any], DecantError], None]

BATCH_MAX = 256
LEASE_S_MAX, WAIT_S_MAX = 43_200.0, 20.0
DEFAULT_LEASE_S = 30.0
"""If the group's cannot be read, or it has none."""

_log = logging.getLogger("decant.consumer")


class Options(NamedTuple):
    """How messages are fetched and handled."""

    group: str
    concurrency: int = 1
    batch: int = 1
    prefetch: float = 1.0
    lease_s: float | None = None
    max_lease_s: float = 3_600.0
    wait_s: float = WAIT_S_MAX
    ordered: Ordered | None = None
    executor: Literal["thread", "process"] = "thread"
    consumer_id: str | None = None
    zone: str | None = None

    def demand_valid(self) -> None:
        """Raises SettingError."""
        if not isinstance(self.group, str) or not self.group:
            raise SettingError(f"group must be the name of a group; it is {self.group!r}")
        _demand_integer("concurrency", self.concurrency, 10_000)
        _demand_integer("batch", self.batch, BATCH_MAX)
        if isinstance(self.prefetch, bool) or not isinstance(self.prefetch, int | float) or not self._is_room():
            raise SettingError(f"prefetch must be a number from 0.1 to 100; it is {self.prefetch!r}")
        if self.lease_s is not None and not 0.05 <= self.lease_s <= LEASE_S_MAX:
            raise SettingError(f"lease must be from 0.05 s to 12 h; it is {self.lease_s} s")
        if self.wait_s > WAIT_S_MAX:
            raise SettingError(f"wait must be at most 20 s; it is {self.wait_s} s")
        if self.ordered not in (None, True, False, "key"):
            raise SettingError(f"ordered must be True, False or 'key'; it is {self.ordered!r}")
        if self.executor not in ("thread", "process"):
            raise SettingError(f"executor must be 'thread' or 'process'; it is {self.executor!r}")

    def _is_room(self) -> bool:
        return 0.1 <= self.prefetch <= 100

    @property
    def slots(self) -> int:
        """How many tasks are held at once."""
        return max(1, math.ceil(self.concurrency * self.prefetch))


def _demand_integer(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise SettingError(f"{name} must be an integer from 1 to {most}; it is {value!r}")


class How(TypedDict, total=False):
    """How a consumer fetches and handles messages."""

    concurrency: int
    """How many handlers run at once. By default 1."""
    batch: int
    """How many messages a handler gets at most. By default 1; with more it gets a list of messages."""
    prefetch: float
    """How many messages are held for each handler. By default 1.0; more saves calls where handlers are fast."""
    lease: Duration
    """How long a lease lasts before it is extended. By default that of the group."""
    max_lease: Duration
    """How long leases are extended. By default an hour: a handler that takes longer hangs."""
    wait: Duration
    """How long a pop waits for messages, and so at most how long an idle consumer takes to stop. By default 20 s."""
    ordered: Ordered
    """Whether each queue, or `"key"`, is handled in order. By default as the group says; a push does not say. A group
    that is less strict delivers the next messages while a failed one waits for its retry."""
    executor: Literal["thread", "process"]
    """Where handlers run. Processes are for those that keep a core busy or may crash."""
    consumer_id: str
    """The consumer's name, which a broadcast group demands."""
    zone: str
    """Queues of this zone come first."""


_DURATIONS = {"lease": "lease_s", "max_lease": "max_lease_s", "wait": "wait_s"}


def options(group: str, **how: Any) -> Options:
    """Raises SettingError."""
    if foreign := how.keys() - How.__annotations__.keys():
        raise SettingError(f"a consumer has no option {', '.join(sorted(foreign))}")
    given: dict[str, Any] = {
        _DURATIONS.get(name, name): seconds(name, value) if name in _DURATIONS else value
        for name, value in how.items()
        if value is not None
    }
    made = Options(group, **given)
    made.demand_valid()
    return made


class Declared(Generic[T]):
    """The part of a consumer that both faces share: a handler, its topic, and how to fetch."""

    def __init__(
        self,
        mq: Any,
        function: Callable[..., Any],
        topic: Topic[T],
        options: Options,
        reply: Any = None,
        middleware: Sequence[Middleware] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        self.mq, self.function, self.topic, self.options = mq, function, topic, options
        self._guard = Guard(secrets)
        self.reply: Codec[Any] = PLAIN if reply is None else codec_of(reply)
        self.on_refused: OnRefused = warn_of_refusal
        """Told of a reply that the service refuses, since it came too late or is not the first."""
        takes_message = _takes_message(function, options.batch)
        functools.update_wrapper(self, function, updated=())
        handle: Handle = self._batch if options.batch > 1 else self._both if takes_message else self._value
        if inspect.iscoroutinefunction(function):
            handle = _as_coroutine(handle)
        for layer in reversed(middleware):
            handle = layer(handle)
        self._handle = handle

    def __call__(self, *arguments: Any) -> Any:
        """The handler itself."""
        return self.function(*arguments)

    def __reduce__(self) -> str:
        """By its name: a process that handles its messages imports the module."""
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<consumer of {self.topic}/{self.options.group}>"

    def messages(self, fields: Sequence[Json]) -> list[Message[T]]:
        return [Message(each, self.topic) for each in fields]

    def judged(self, value: Any, messages: Sequence[Message[Any]]) -> list[Verdict]:
        """The verdicts of what the handler returned."""
        try:
            if self.options.batch > 1:
                return returned_for_all(value, messages, self.reply)
            return [returned(value, messages[0], self.reply)]
        except Exception as error:  # noqa: BLE001 - a result that is none
            return self.failed(error, messages)

    def failed(self, error: BaseException, messages: Sequence[Message[Any]]) -> list[Verdict]:
        is_meant = isinstance(error, Retry | Bury)
        level = logging.INFO if is_meant else logging.WARNING
        ids = ", ".join(message.id for message in messages)
        _log.log(level, "%s: message %s failed: %s", self, ids, error, exc_info=None if is_meant else error)
        return [failed(error)] * len(messages)

    def answered(self, pair: tuple[Message[Any], Verdict], answered: Answered) -> Verdict:
        """The verdict once its reply is sent."""
        if answered.refused:
            self.on_refused(pair[0], answered.refused)
        return answered.verdict

    def _value(self, message: Message[T]) -> Any:
        return self.function(message.value)

    def _both(self, message: Message[T]) -> Any:
        return self.function(message.value, message)

    def _batch(self, messages: list[Message[T]]) -> Any:
        return self.function(messages)


def warn_of_refusal(message: Message[Any], error: DecantError) -> None:
    _log.warning("the reply to message %s was refused: %s", message.id, error)


def _takes_message(function: Callable[..., Any], batch: int) -> bool:
    """Whether the handler takes the payload and the message. Raises SettingError for any other object."""
    if not callable(function):
        raise SettingError(f"a handler must be a function; it is {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise SettingError(f"a handler must not be a generator, which does nothing when it is called: {function!r}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of a builtin
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in kinds and each.default is each.empty]
    others = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    most = 1 if batch > 1 else 2
    if others or len(needed) > most or not (needed or is_open or any(each.kind in kinds for each in parameters)):
        takes = "the list of messages" if batch > 1 else "the payload, or the payload and the message"
        raise SettingError(f"a handler takes {takes}; this one is {getattr(function, '__name__', function)}")
    return len(needed) == 2


def _as_coroutine(handle: Handle) -> Handle:
    async def call(message: Any) -> Any:
        return await handle(message)

    return call


class Consumer(Declared[T]):
    """A handler of threads or processes. `mq.consumer(topic, group=...)` makes one."""

    def __init__(self, mq: Decant, function: Callable[..., Any], *arguments: Any) -> None:
        if inspect.iscoroutinefunction(function):
            raise SettingError("a handler that is `async def` needs AsyncDecant")
        super().__init__(mq, function, *arguments)

    def attend(self, messages: Sequence[Message[Any]]) -> list[Verdict]:
        """Has the handler handle messages. Raises KeyboardInterrupt in the main thread alone."""
        try:
            value = self._handle(list(messages) if self.options.batch > 1 else messages[0])
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            return self.failed(error, messages)
        return self.judged(value, messages)

    def attend_and_reply(self, messages: Sequence[Message[Any]]) -> list[Verdict]:
        """The same, and sends the replies. Returns what then becomes of the messages."""
        return self.replied(messages, self.attend(messages))

    def replied(self, messages: Sequence[Message[Any]], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Sends the replies."""
        return [self.answered(each, self.mq.follow(answering(*each))) for each in zip(messages, verdicts, strict=True)]

    def on_push(self, event: Any, _context: object = None) -> Json:
        """The handler of a Lambda function that the group pushes to. Returns which messages failed."""
        return pushed(self, event)

    @property
    def wsgi(self) -> Wsgi:
        """The webhook that the group pushes to, for servers of WSGI. It accepts what is signed by a secret."""
        return Wsgi(self, self._guard)

    @property
    def asgi(self) -> Asgi:
        """The same for servers of ASGI; handlers run in threads."""

        async def handle(event: Any) -> Json:
            from asyncio import to_thread

            return await to_thread(self.on_push, event)

        return Asgi(handle, self._guard)


class AsyncConsumer(Declared[T]):
    """A handler of tasks. `mq.consumer(topic, group=...)` makes one."""

    def __init__(self, mq: AsyncDecant, function: Callable[..., Any], *arguments: Any) -> None:
        if not inspect.iscoroutinefunction(function):
            raise SettingError("a handler that is not `async def` needs Decant: it would hold up the event loop")
        super().__init__(mq, function, *arguments)

    async def attend(self, messages: Sequence[Message[Any]]) -> list[Verdict]:
        """Has the handler handle messages. Raises CancelledError."""
        from asyncio import CancelledError

        try:
            value = await self._handle(list(messages) if self.options.batch > 1 else messages[0])
        except CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is about its message
            return self.failed(error, messages)
        return self.judged(value, messages)

    async def attend_and_reply(self, messages: Sequence[Message[Any]]) -> list[Verdict]:
        """The same, and sends the replies. Returns what then becomes of the messages."""
        pairs = zip(messages, await self.attend(messages), strict=True)
        return [self.answered(each, await self.mq.follow(answering(*each))) for each in pairs]

    def on_push(self, event: Any, _context: object = None) -> Json:
        """The handler of a Lambda function that the group pushes to. Returns which messages failed."""
        from asyncio import run

        return run(self._pushed(event))

    async def _pushed(self, event: Any) -> Json:
        """The connections for replies belong to this loop, and end with it."""
        from decant.aio_transport import AsyncHttpTransport

        try:
            return await async_pushed(self, event)
        finally:
            if isinstance(self.mq.transport, AsyncHttpTransport):
                await self.mq.transport.close()

    @property
    def asgi(self) -> Asgi:
        """The webhook that the group pushes to, for servers of ASGI. It accepts what is signed by a secret."""
        return Asgi(functools.partial(async_pushed, self), self._guard)
