"""Both faces of the client under the same tests: that for asyncio runs in a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from decant import AsyncDecant, Decant


class InLoop:
    """An object of asyncio whose methods, here, wait for their results."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner, self._inner = runner, inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "api":
            return InLoop(self._runner, value)
        return self._waiting(value) if callable(value) else value

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            inner = [getattr(argument, "inner", argument) for argument in arguments]

            async def run() -> Any:
                result = method(*inner, **options)
                if inspect.isasyncgen(result):
                    return [item async for item in result]
                return await result if inspect.isawaitable(result) else result

            return self._seen(self._runner.run(run()))

        call.inner = method  # type: ignore[attr-defined]
        return call

    def _seen(self, value: Any) -> Any:
        return InLoop(self._runner, value) if type(value).__module__.startswith("decant.aio") else value

    def __enter__(self) -> Any:
        return self._seen(self._waiting(self._inner.__aenter__)())

    def __exit__(self, *error: Any) -> None:
        self._waiting(self._inner.__aexit__)(*error)


Face = Callable[..., Any]
"""Makes a client."""


def threaded() -> Iterator[Face]:
    made: list[Decant] = []

    def face(*arguments: Any, **options: Any) -> Decant:
        made.append(Decant(*arguments, **options))
        return made[-1]

    yield face
    for mq in made:
        mq.close()


def in_loop() -> Iterator[Face]:
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def face(*arguments: Any, **options: Any) -> Any:
            made.append(InLoop(runner, AsyncDecant(*arguments, **options)))
            return made[-1]

        yield face
        for mq in made:
            mq.close()
