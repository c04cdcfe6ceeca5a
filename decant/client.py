"""The client for programs of threads. `decant.aio` has that for asyncio."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from decant import flows
from decant.api import Api
from decant.calls import Call, NoAnswer, NotSent, Pause
from decant.errors import DecantError, NotDecant
from decant.flows import Flow
from decant.messages import Duration, HalfOptions, Options, Outgoing, RequestOptions, Sent, milliseconds, seconds
from decant.payloads import PLAIN, Codec, Topic, codec_of, topic_of
from decant.settings import Settings, settings
from decant.transport import HttpTransport, Transport

if TYPE_CHECKING:
    from decant.consumer import Consumer, How, Middleware
    from decant.producer import Producer
    from decant.running import Crew

T = TypeVar("T")
R = TypeVar("R")


class Decant:
    """Decant at one address. Threads can share it.

    url: Where the service is, `lambda:STACK` to invoke its functions. By default `DECANT_URL`, else that of the
        context, else `http://127.0.0.1:8000`.
    token: By default `DECANT_TOKEN`, else that of the context.
    timeout: How many seconds a call may take, with its repeats. A long poll has its `wait_ms` on top.
    transport: Carries the requests in place of HTTP.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        transport: Transport | None = None,
        clock: Callable[[], float] | None = None,
        random: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings(url, token, timeout, clock, random)
        self.transport = transport or _transport(self.settings)
        self.sleep = sleep
        self.api = Api(self.call)
        """Every operation of the contract, as a method."""

    def call(self, call: Call[T], *, timeout: float | None = None) -> T:
        """Carries out a call of `decant.operations`, and repeats it where that is safe. Raises DecantError."""
        request, attempts = self.settings.begin(call, self.transport.address, timeout)
        clock = self.settings.clock
        while True:
            outcome: T | Pause
            try:
                response = self.transport.send(request, attempts.left_s(clock()))
            except (NotSent, NoAnswer) as error:
                outcome = attempts.failed(error, clock())
            except NotDecant as error:
                raise attempts.foreign(error) from error
            else:
                outcome = attempts.answered(response, clock())
            if not isinstance(outcome, Pause):
                return outcome
            self.sleep(outcome.seconds)

    def follow(self, flow: Flow[T]) -> T:
        """Carries out the calls of a flow."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._step(step)
                except DecantError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _step(self, step: flows.Step | Pause) -> Any:
        if isinstance(step, Pause):
            return self.sleep(step.seconds)
        return self.call(step.call, timeout=step.timeout_s)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, topic: str | Topic[T], value: T, **options: Unpack[Options]) -> Sent:
        """Sends a message. `options`: `key`, `tag`, `properties`, `delay`, `deliver_at`, `ttl`, `dedup_id`, `queue`,
        `zone`. After a lost answer it is sent again only with a `dedup_id`."""
        return self.send_all(topic, [Outgoing(value, **options)])[0]

    def send_all(self, topic: str | Topic[T], values: Iterable[T | Outgoing[T]]) -> list[Sent]:
        """Sends messages in order, up to 256 in a call. Raises PartlySent if some are stored and others are not."""
        return self.follow(flows.sending_all(topic_of(topic), values, self.settings.time))

    @overload
    def producer(
        self, topic: str, *, linger: Duration = ..., max_pending: int = ..., in_flight: int = ..., dedup: bool = ...
    ) -> Producer[Any]: ...

    @overload
    def producer(
        self,
        topic: Topic[T],
        *,
        linger: Duration = ...,
        max_pending: int = ...,
        in_flight: int = ...,
        dedup: bool = ...,
    ) -> Producer[T]: ...

    def producer(
        self,
        topic: str | Topic[Any],
        *,
        linger: Duration = 0.005,
        max_pending: int = 10_000,
        in_flight: int = 4,
        dedup: bool = True,
    ) -> Producer[Any]:
        """Sends from many places in few calls: collects messages for `linger`, up to 256 or 4 MiB.

        max_pending: `send` waits while so many messages are not stored yet.
        in_flight: How many calls run at once; messages of one key are in one of them at most.
        dedup: Gives each message a `dedup_id`, so that it is stored once however often it has to be sent.
        """
        from decant.producer import Producer

        return Producer(self, topic_of(topic), seconds("linger", linger), max_pending, in_flight, dedup)

    @overload
    def request(
        self,
        topic: str | Topic[T],
        value: T,
        *,
        timeout: Duration = 3.0,
        reply: None = None,
        **options: Unpack[RequestOptions],
    ) -> Any: ...

    @overload
    def request(
        self,
        topic: str | Topic[T],
        value: T,
        *,
        timeout: Duration = 3.0,
        reply: type[R] | Codec[R],
        **options: Unpack[RequestOptions],
    ) -> R: ...

    def request(
        self,
        topic: str | Topic[T],
        value: T,
        *,
        timeout: Duration = 3.0,
        reply: Any = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Sends a request, and returns the reply: text or bytes, or the type that `reply` names. `options`: `key`,
        `tag`, `properties`, `queue`, `zone`. Raises ReplyTimeout."""
        codec: Codec[Any] = PLAIN if reply is None else codec_of(reply)
        outgoing: Outgoing[T] = Outgoing(value, **options)
        return self.follow(
            flows.requesting(topic_of(topic), outgoing, codec, seconds("timeout", timeout), self.settings.time)
        )

    @overload
    def transaction(
        self, topic: str, *, check_after: Duration | None = ..., rollback_after: Duration | None = ...
    ) -> Transaction[Any]: ...

    @overload
    def transaction(
        self, topic: Topic[T], *, check_after: Duration | None = ..., rollback_after: Duration | None = ...
    ) -> Transaction[T]: ...

    def transaction(
        self, topic: str | Topic[Any], *, check_after: Duration | None = None, rollback_after: Duration | None = None
    ) -> Transaction[Any]:
        """Messages that become visible when the block ends, or never if it raises.

        check_after: When `mq.api.check_transactions` returns it, if this process dies. By default after a minute.
        rollback_after: When the service rolls it back, if nobody decides. By default after a day.
        """
        limits = milliseconds("check_after", check_after), milliseconds("rollback_after", rollback_after)
        return Transaction(self, topic_of(topic), *limits)

    # -- reading -------------------------------------------------------------------------------------------------------

    def each(self, page_method: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Any]:
        """The items of all pages of a list: `mq.each(mq.api.list_dead, "orders", "billing")`."""
        next_: str | None = options.pop("next", None)
        while True:
            page = page_method(*arguments, **options, next=next_)
            yield from flows.items_of(page)
            next_ = page["next"]
            if next_ is None:
                return

    # -- consuming -----------------------------------------------------------------------------------------------------

    def consumer(
        self,
        topic: str | Topic[T],
        *,
        group: str,
        reply: Any = None,
        middleware: Sequence[Middleware] = (),
        secrets: Sequence[str] = (),
        **how: Unpack[How],
    ) -> Callable[[Callable[..., Any]], Consumer[T]]:
        """Makes a consumer of a function, which gets the payload, or the payload and the message; with `batch`, a list
        of messages. `decant.consumer` says what becomes of a message when it returns or raises.

        reply: The type of replies to requests. By default text, bytes and JSON.
        middleware: Functions that each get the next handler and return one; the first is the outermost.
        secrets: Those of the group, `whsec_...`, for `wsgi` and `asgi`: calls must be signed by one of them.
        how: See `decant.consumer.How`.
        """
        from decant.consumer import Consumer, options

        made = options(group, **how)

        def decorate(function: Callable[..., Any]) -> Consumer[T]:
            consumer: Consumer[T] = Consumer(self, function, topic_of(topic), made, reply, middleware, secrets)
            self._crew.consumers.append(consumer)
            return consumer

        return decorate

    def run(self, *consumers: Consumer[Any], grace: Duration = 25.0) -> None:
        """Runs these consumers, or all of the client, until SIGTERM, SIGINT or `stop`. Then it takes no more messages,
        lets those at work end within `grace`, and gives back what has not begun. A second signal ends it at once.
        Raises the first error that no repeat would mend, such as TopicNotFound."""
        self._crew.run(consumers, seconds("grace", grace))

    def stop(self) -> None:
        """Ends `run`, from another thread or a handler."""
        self._crew.stop()

    def work(self, *consumers: Consumer[Any]) -> int:
        """Handles the messages that are ready, in this thread, until there are none. Returns how many it handled. For
        tests and for scheduled jobs."""
        return self._crew.work(consumers)

    @functools.cached_property
    def _crew(self) -> Crew:
        from decant.running import Crew

        return Crew(self)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the kept connections."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _transport(settings: Settings) -> Transport:
    if settings.stack is None:
        return HttpTransport(settings.address())
    from decant.functions import LambdaTransport

    return LambdaTransport(settings.stack)


class Transaction(flows.Begun[T]):
    """Messages that the service holds back until the block ends. `mq.transaction(topic)` makes one."""

    def __init__(self, mq: Decant, topic: Topic[T], check_after_ms: int | None, rollback_after_ms: int | None) -> None:
        super().__init__(topic, check_after_ms, rollback_after_ms)
        self._mq = mq

    def send(self, value: T, **options: Unpack[HalfOptions]) -> str:
        """Stores a half message. Returns the id of its transaction, which a check finds again: store it beside what
        the message is about. `options`: those of a send, without delays and `dedup_id`."""
        return self.send_all([Outgoing(value, **options)])

    def send_all(self, values: Iterable[T | Outgoing[T]]) -> str:
        """The same for up to 32 messages."""
        return self._mq.follow(self.begin(values))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mq.follow(self.commit() if error is None else self.roll_back())
