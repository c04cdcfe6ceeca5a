"""Hands run handlers, in threads or processes."""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from decant.consumer import Consumer
from decant.errors import SettingError
from decant.lanes import Task
from decant.messages import Message
from decant.settling import RELEASE, Verdict, nack

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from decant.engine import Engine, Hands

_log = logging.getLogger("decant.consumer")


def hands_of(consumer: Consumer[Any]) -> Callable[[Engine], Hands]:
    """Makes the hands that the consumer's options name."""
    kind = Processes if consumer.options.executor == "process" else Threads
    return functools.partial(kind, consumer)


class Threads:
    """Runs the handler in threads. No thread can be ended, so they are daemons."""

    def __init__(self, consumer: Consumer[Any], engine: Engine) -> None:
        self.consumer, self._engine = consumer, engine
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._busy = 0

    def begin(self, task: Task) -> None:
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads):
                name = f"decant-{self.consumer.options.group}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        self._tasks.put(task)

    def cancel(self, task: Task) -> None:
        pass  # `message.lost` tells the handler

    def abandon(self) -> bool:
        return False

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while task := self._tasks.get():
            messages = task.messages
            try:
                verdicts = self.consumer.replied(messages, self.attend(task, messages))
            except BaseException as error:  # noqa: BLE001 - a defect must not take the thread along
                verdicts = self.consumer.failed(error, messages)
            with self._lock:
                self._busy -= 1
            self._engine.finished(task, verdicts)

    def attend(self, _task: Task, messages: Sequence[Message[Any]]) -> list[Verdict]:
        return self.consumer.attend(messages)


# -- processes ---------------------------------------------------------------------------------------------------------


class Processes(Threads):
    """Runs the handler in processes, one for each thread here: its lease is kept by this process, however busy the
    other one is."""

    def __init__(self, consumer: Consumer[Any], engine: Engine) -> None:
        demand_importable(consumer)
        super().__init__(consumer, engine)
        self._here = threading.local()
        self._all: list[Child] = []
        self._children: dict[Task, Child] = {}
        self._is_abandoned = False

    def attend(self, task: Task, messages: Sequence[Message[Any]]) -> list[Verdict]:
        try:
            child = self._children[task] = self._child()
        except SettingError as error:
            self._engine.failed(error)
            return [RELEASE] * len(messages)
        verdicts = child.attend(messages)
        del self._children[task]
        if verdicts is not None:
            return verdicts
        how_it_ended = self._end(child)
        if self._is_abandoned or any(message.lost for message in messages):
            return [RELEASE] * len(messages)
        _log.warning("%s: %s", self.consumer, how_it_ended)
        return [nack(how_it_ended)] * len(messages)

    def _work(self) -> None:
        super()._work()
        if child := getattr(self._here, "child", None):
            child.kill()
            self._end(child)

    def _child(self) -> Child:
        """The process of this thread. Raises SettingError."""
        child: Child | None = getattr(self._here, "child", None)
        if child and not child.is_alive:
            self._end(child)
            child = None
        if child is None:
            child = self._here.child = Child(self.consumer)
            self._all.append(child)
        return child

    def _end(self, child: Child) -> str:
        self._here.child = None
        self._all.remove(child)
        return child.end()

    def cancel(self, task: Task) -> None:
        if child := self._children.get(task):
            child.kill()

    def abandon(self) -> bool:
        self._is_abandoned = True
        for child in list(self._children.values()):
            child.kill()
        return True

    def close(self) -> None:
        """Ends the processes, also those at work: nobody waits for their results any more."""
        super().close()
        for child in list(self._all):
            child.kill()


def demand_importable(consumer: Consumer[Any]) -> None:
    """Raises SettingError for a handler that another process could not find."""
    import pickle

    try:
        pickle.dumps(consumer)
    except (pickle.PicklingError, AttributeError, ImportError) as error:
        raise SettingError(
            f"executor='process' needs a handler that is decorated at the top of its module, where another process"
            f" finds it: {error}"
        ) from None


class Child:
    """A process that handles one task at a time. It ends when this process does."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        import multiprocessing
        from multiprocessing.util import Finalize

        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there, consumer), daemon=True)
        self._process.start()
        # or this process would wait for it at its exit
        self._at_exit = Finalize(self._process, self._process.kill, exitpriority=10)
        there.close()
        if self._received() is None:
            raise SettingError(
                f"{consumer}: {self.end()} before it began; a script must call mq.run() under"
                " `if __name__ == '__main__':`"
            )

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def attend(self, messages: Sequence[Message[Any]]) -> list[Verdict] | None:
        """None: the process has ended."""
        try:
            self._here.send([dict(message.fields) for message in messages])
        except OSError:
            return None
        verdicts: list[Verdict] | None = self._received()
        return verdicts

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> str:
        """Lets go of the process, which has closed its end of the pipe. Returns how it ended."""
        self._process.join(5)
        code = self._process.exitcode
        self.kill()
        self._process.join()
        self._at_exit.cancel()  # which holds the process, and so its descriptors
        self._here.close()
        return f"the process was ended by signal {-code}" if code and code < 0 else f"the process exited with {code}"

    def _received(self) -> Any:
        try:
            return self._here.recv()
        except (EOFError, OSError):
            return None


def serve(connection: Connection, consumer: Consumer[Any]) -> None:
    """The other process: handles what it gets, until the pipe is closed."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):  # these go to the whole group of processes; the parent decides
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        connection.send(True)
        while True:
            messages = consumer.messages(connection.recv())
            connection.send(consumer.attend(messages))
