"""Consumers over a network that drops requests and answers, recorded call by call, and judged by the checker.

`python -m tests.client.histories --runs 300` plays that many runs, and prints what is wrong."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from chalicelib.core.base.limits import IN_FLIGHT_DEFAULT
from chalicelib.core.consuming.request import Pop
from decant import Bury, Decant, OutcomeUnknown, Retry
from decant.address import parsed
from decant.calls import HttpRequest, HttpResponse, NoAnswer
from decant.errors import DecantError
from decant.testing import Server
from decant.testing.clock import Seconds
from decant.transport import HttpTransport
from tests.history import checker
from tests.history.caller import Caller
from tests.history.facts import NEVER_MS, Asked, Delivered, Place, Sent, Settled
from tests.history.final_state import read_dead, read_log
from tests.history.history import History, Rules
from tests.load.proxy import Faults, Proxy

FAULTS = Faults(lose_request=0.06, lose_reply=0.06)
GROUPS: dict[str, dict[str, Any]] = {"patient": {}, "ordered": {"ordered": True}, "keyed": {"ordered": "key"}}
LEASE_MS, BACKOFF_MS, ATTEMPTS_MAX = 1_000, 300, 1_000
MESSAGES = 40
STEP_S, PATIENCE_S = 0.05, 60.0


class Recorder:
    """A transport that notes each request and its answer as facts."""

    def __init__(self, url: str, history: History, server: Server) -> None:
        self._inner = HttpTransport(parsed(url))
        self.address = url
        self._history, self._now = history, server.clock.now_ms
        self._first: dict[str, int] = {}
        self._messages: dict[str, Delivered] = {}
        """By receipt."""
        self.is_dead = False

    def close(self) -> None:
        self._inner.close()

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        if self.is_dead:
            raise NoAnswer("the process is dead")
        if request.operation not in ("pop", "ack", "nack", "bury", "extend"):
            return self._inner.send(request, timeout_s)
        answers = self._pop(request) if request.operation == "pop" else self._settle(request)
        next(answers)
        response = self._inner.send(request, timeout_s)
        if response.status == 200:
            answers.send(json.loads(response.body))
        return response

    def _pop(self, request: HttpRequest) -> Generator[None, Any, None]:
        fields, group, began = request.fields, request.names["group"], self._now()
        attempt = fields["attempt_id"]
        first = self._first.setdefault(attempt, began)
        acks = self._asked("ack", group, fields.get("ack") or [])
        asked = Asked(group, began, fields["invisible_ms"], wait_ms=fields.get("wait_ms", 0), attempt_id=attempt)
        self._history.begin([asked])
        answer = yield
        now = self._now()
        self._answered(acks, answer, now)
        got = [self._delivered(group, each, (began, first, now), fields) for each in answer["messages"]]
        queues = [each.place[0] for each in got]
        for number, each in enumerate(got):
            each.number = queues[:number].count(queues[number])
            self._messages[each.receipt] = each
        asked.at_ms, asked.is_troubled = now, False
        asked.is_empty = not got and not answer.get("limited")
        asked.receipts = [each.receipt for each in got]
        self._history.begin(got)
        yield

    def _delivered(self, group: str, fields: dict[str, Any], times: tuple[int, int, int], asked: Any) -> Delivered:
        began, first, now = times
        until = fields["invisible_until_ms"]
        return Delivered(
            group,
            (fields["queue"], fields["offset"]),
            fields["body"],
            fields["message_id"],
            fields["attempt"],
            began,
            max(began, min(now, until - 1)),
            until,
            fields["receipt"],
            now,
            asked_ms=first + asked["invisible_ms"],
            first_ms=first,
        )

    def _settle(self, request: HttpRequest) -> Generator[None, Any, None]:
        fields, now = request.fields, self._now()
        verb = request.operation
        until = {"nack": now + fields.get("delay_ms", BACKOFF_MS), "bury": NEVER_MS}.get(verb, 0)
        facts = self._asked(verb, request.names["group"], fields["receipts"], until)
        for fact in facts:
            fact.asked_ms = now + fields["invisible_ms"] if verb == "extend" else 0
        answer = yield
        renewed = {each["receipt"]: each for each in answer.get("extended", ())}
        for fact in facts:
            if new := renewed.get(fact.receipt):
                fact.new_receipt, fact.until_ms = new["new_receipt"], new["invisible_until_ms"]
                self._messages[fact.new_receipt] = self._messages[fact.receipt]
        self._answered(facts, answer, self._now())
        yield

    def _asked(self, verb: str, group: str, receipts: Sequence[str], until_ms: int = 0) -> list[Settled]:
        facts = [
            Settled(verb, group, self._messages[each].place, each, self._now(), NEVER_MS, "unknown", until_ms)
            for each in receipts
        ]
        self._history.begin(facts)
        return facts

    def _answered(self, facts: Sequence[Settled], answer: dict[str, Any], now: int) -> None:
        codes = {each["receipt"]: each["code"] for each in answer["failed"]}
        for fact in facts:
            fact.outcome, fact.at_ms, fact.is_troubled = codes.get(fact.receipt, "ok"), now, True


class Play:
    """One run: a producer, two programs that consume, of which one dies, and a third that takes over."""

    def __init__(self, server: Server, topic: str, seed: int) -> None:
        self._server, self._topic, self._random = server, topic, Random(seed)
        self.history = History()
        self.did: Counter[str] = Counter()
        self._steps: list[tuple[str, str, str]] = []
        """The begin of each handler, and its end if no retry follows: what, group, body."""
        self._done: set[tuple[str, str]] = set()
        """Groups, and the messages whose handlers have returned."""
        self.seed = seed

    def run(self) -> list[str]:
        api = self._server.client.api
        api.put_topic(self._topic, queues=2)
        for group, settings in GROUPS.items():
            about: dict[str, Any] = {"invisible_ms": LEASE_MS, "max_attempts": ATTEMPTS_MAX, "backoff_ms": [BACKOFF_MS]}
            api.put_group(self._topic, group, **about, **settings)
        proxy = Proxy(self._server.url, FAULTS, self.seed)
        with proxy.running() as url, self._moving():
            self._consume(url)
        self.did = proxy.did
        unhandled = self._unhandled()
        self._judge()
        return [*checker.violations(self.history), *unhandled, *self._overtaken()]

    def _overtaken(self) -> list[str]:
        """Messages whose handler began before that of an earlier one of their queue, or key, had ended for good."""
        found, ended = [], set[tuple[str, str]]()
        places = {self.history.log[place]: place for place in sorted(self.history.log)}
        keys = {each.body: each.key for each in self.history.sent}
        for what, group, body in self._steps:
            if what == "end":
                ended.add((group, body))
                continue
            for earlier in places:
                is_before = places[earlier][0] == places[body][0] and places[earlier] < places[body]
                is_same = group == "ordered" or (group == "keyed" and keys[body] is not None)
                is_same = is_same and (group == "ordered" or keys[body] == keys[earlier])
                if is_before and is_same and (group, earlier) not in ended:
                    found.append(f"{body} overtook {earlier} in {group}")
        return found

    def _unhandled(self) -> list[str]:
        """Messages that were acked though no handler has returned."""
        bodies = {(each.group, each.place): each.body for each in self.history.delivered}
        acked = {(each.group, bodies[each.group, each.place]) for each in self.history.settled if each.verb == "ack"}
        return [f"{body} was acked by {group}, and not handled" for group, body in sorted(acked - self._done)]

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """The clock runs ahead."""
        over = threading.Event()

        def move() -> None:
            while not over.wait(0.002):
                self._server.clock.advance(seconds=STEP_S)

        thread = threading.Thread(target=move, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _consume(self, url: str) -> None:
        with ExitStack() as stack:
            first, second = (stack.enter_context(self._program(url, number)) for number in range(2))
            self._send(url)
            first.is_dead = True
            stack.enter_context(self._program(url, 2))
            del second
            ends = time.monotonic() + PATIENCE_S
            while any(self._left(group) for group in GROUPS) and time.monotonic() < ends:
                time.sleep(0.01)

    def _left(self, group: str) -> int:
        progress = self._server.client.api.get_group(self._topic, group)
        return progress["lag"] + progress["retrying"]

    def _client(self, transport: Any) -> Decant:
        seconds = Seconds(self._server.clock)
        return Decant("http://proxied", transport=transport, clock=seconds, sleep=seconds.sleep)

    @contextmanager
    def _program(self, url: str, number: int) -> Iterator[Recorder]:
        recorder = Recorder(url, self.history, self._server)
        mq = self._client(recorder)
        for group in GROUPS:
            handle = self._handler(group, Random(f"{self.seed} {number} {group}"))
            mq.consumer(self._topic, group=group, concurrency=3, prefetch=2, wait=1)(handle)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                mq.run(grace=2)
            except BaseException as error:  # noqa: BLE001 - the verdict names it
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield recorder
        finally:
            mq.stop()
            thread.join(PATIENCE_S)
            recorder.close()
            self.history.defects += [f"program {number}: {error!r}" for error in errors]
            if thread.is_alive():
                self.history.defects.append(f"program {number} does not end")

    def _handler(self, group: str, random: Random) -> Any:
        lock, sleep = threading.Lock(), Seconds(self._server.clock).sleep

        def handle(value: str) -> None:
            self._steps.append(("begin", group, value))
            with lock:
                luck, nap_s = random.random(), random.choice((0, 0, 0, 0.1, 0.5, 1.5))
            sleep(nap_s)
            if luck < 0.1:
                raise Retry(0.2, "busy")
            if luck < 0.15:
                raise ValueError("no")
            self._steps.append(("end", group, value))
            if luck < 0.17:
                raise Bury("malformed")
            self._done.add((group, value))

        return handle

    def _send(self, url: str) -> None:
        mq = self._client(HttpTransport(parsed(url)))
        now = self._server.clock.now_ms
        for number in range(MESSAGES):
            fact = Sent(f"m{number}", self._random.choice([None, "a", "b"]), now(), is_unknown=True)
            fact.dedup_id = f"{self._topic}-{number}"
            self.history.begin([fact])
            try:
                sent = mq.send(self._topic, fact.body, key=fact.key, dedup_id=fact.dedup_id)
            except OutcomeUnknown:
                continue
            except DecantError:
                fact.is_unknown = False
            else:
                fact.is_unknown, fact.message_id, fact.place = False, sent.id, (sent.queue, int(sent.offset or 0))
            fact.at_ms = now()
        mq.close()

    def _judge(self) -> None:
        """Drains the groups without faults, and reads what is left."""
        service, history = self._server._api.service, self.history
        topic = service.env.catalogue.topic(self._topic)
        caller = Caller(service, topic, history, self._server.clock.now_ms, asks_for_topic=True)
        for group, settings in GROUPS.items():
            came: set[Place] = set()
            for _ in range(100):
                if got := caller.pop(group, Pop(256, 60_000)):
                    came |= {each.place for each in got}
                    caller.ack(got)
                elif not self._left(group):
                    break
                else:
                    self._server.clock.advance(seconds=1)
            history.drained[group], history.drained_ms[group] = came, self._server.clock.now_ms()
            history.rules[group] = Rules(ATTEMPTS_MAX, IN_FLIGHT_DEFAULT, ordered=settings.get("ordered", False))
            read_dead(service, topic, group, history)
        history.ends = dict(enumerate(service.log.offsets.ends(topic, topic.most)))
        read_log(service, replace(topic, retention_ms=NEVER_MS), history)
        history.skew_ms = history.off_ms = 0


def play(runs: int, seed: int) -> Iterator[tuple[Play, list[str]]]:
    """The runs, each with its violations."""
    with Server() as server:
        for number in itertools.islice(itertools.count(seed), runs):
            run = Play(server, f"run-{number}", number)
            yield run, run.run()
            server.client.api.delete_topic(f"run-{number}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.histories", description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.disable()
    total: Counter[str] = Counter()
    for run, violations in play(asked.runs, asked.seed):
        history = run.history
        total += Counter(messages=len(history.log), deliveries=len(history.delivered), runs=1) + run.did
        total += Counter(settled=len(history.settled), violations=len(violations))
        for violation in violations[:20]:
            sys.stdout.write(f"seed {run.seed}: {violation}\n")
        sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {what}" for what, count in total.items()) + "\n")
    return 1 if total["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
