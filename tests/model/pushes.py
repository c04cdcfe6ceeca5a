"""Pushed groups: the steps run the dispatcher of one of two instances, and the consumer judges each call against the
model before it answers. While a call is under way, something else may happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from chalicelib.push.dispatcher import GUARD_MS, LOOK_EVERY_MS, RUN_MS
from chalicelib.push.outside import ConsumerResponse
from chalicelib.push.slots import LEASE_SPARE_MS, PAUSE_MS_MAX
from tests.model.consumers import letters_of
from tests.model.cursor import Cursor, Hold
from tests.model.group import DEFAULTS, Group
from tests.model.model import details
from tests.model.pair import Pair, instances, path_of
from tests.model.topic import Topic
from tests.model.values import Json
from tests.support.consumer import OK, Call, Consumer, failing

GROUPS = ("billing", "shipping")
PLAIN: Json = {"key": None, "tag": None, "properties": {}, "topic": "orders"}
BACKOFFS_MS = ([1_000], [500, 2_000, 100_000])
CALLS_MAX = 12
"""The most calls in a step. After these all goes well; a consumer that always fails would be called forever."""

names = st.sampled_from([GROUPS[0], *GROUPS])
targets: st.SearchStrategy[Json] = st.sampled_from([{"url": "https://shop.example/hooks"}, {"function": "bill"}])
pushes = st.builds(
    lambda target, more: {**target, **more},
    targets,
    st.fixed_dictionaries(
        {},
        optional={
            "batch": st.sampled_from([1, 2, 3]),
            "concurrency": st.sampled_from([2, 3]),
            "timeout_ms": st.sampled_from([1_000, 60_000]),
        },
    ),
)
settings_given = st.fixed_dictionaries(
    {
        "ordered": st.sampled_from([False, False, True, "key"]),
        "max_attempts": st.sampled_from([1, 2, 3, None]),
        "backoff_ms": st.sampled_from(BACKOFFS_MS),
    }
)
new_messages = st.lists(
    st.fixed_dictionaries({}, optional={"key": st.sampled_from(["k1", "k2"]), "queue": st.sampled_from([0, 0, 1])}),
    min_size=1,
    max_size=5,
)
CONTENT = ["content", "content", "content", "reports", "reports"]
DISCONTENT = ["fails", "fails", "is slow", "misunderstands"]
MEANWHILE = [*8 * ["nothing"], "time", "time", "produce", "run", "run", "pause", "push", "push", "reset", "delete"]


@dataclass
class Breaker:
    """Calls have failed `failures` times one after another; none begins before `until_ms`."""

    failures: int = 0
    until_ms: int = 0


@dataclass
class Pushed(Group):
    """`under_way`: until when the slots of the calls that are not answered yet are held at least."""

    breaker: Breaker = field(default_factory=Breaker)
    under_way: list[int] = field(default_factory=list)

    @property
    def push(self) -> Json | None:
        """None: the service calls no consumer."""
        push: Json | None = None if self.settings["paused"] else self.settings["push"]
        return push


class Pushes(Pair):
    def __init__(self) -> None:
        self.consumer = Consumer(react=self.called)
        super().__init__(self.consumer.outside())
        self.topic = Topic(0, "orders", [])
        self.data: st.DataObject | None = None
        self.running: list[int] = []
        """The instances whose dispatcher runs, the one that was started last at the end."""
        self.stays_for: set[str] = set()
        """The groups of which this run has met a failed call."""
        self.idle_since_ms = 0
        """When the run began, or its last call ended."""
        self.has_come = False
        """Whether, in this run, messages came or another run had a part of them."""
        self.is_happy = True
        """Whether the consumer mostly succeeds."""
        self.failure: BaseException | None = None
        self.calls = self.sent = 0
        self.goes_on: str | None = None
        """The group whose last call went well, so that its caller may go on whatever others have met meanwhile."""
        self.webhook_ids: dict[str, tuple[Any, ...]] = {}

    # -- administering ------------------------------------------------------------------------------------------------

    @initialize(queues=st.sampled_from([1, 1, 2]), given=settings_given, push=pushes)
    def begin(self, queues: int, given: Json, push: Json) -> None:
        assert self.clients[0].put("/topics/orders", queues=queues).status == 201
        self.topic = Topic(0, "orders", [[] for _ in range(queues)])
        self.put_group(0, "billing", {**given, "push": push})
        self._produce(1, [{}, {"key": "k1"}, {"key": "k1"}])

    @rule(instance=instances, name=names, given=settings_given, push=pushes, is_new=st.integers(0, 3))
    def make(self, instance: int, name: str, given: Json, push: Json, is_new: int) -> None:
        """A group, rarely in the place of another; or, of one that is there, a new push or none."""
        if name in self.topic.groups and is_new == 3:
            self._delete(instance, name)
        if name in self.topic.groups:
            self.put_group(instance, name, {"push": push if is_new else {}, "paused": False})
        else:
            self.put_group(instance, name, {**given, "push": push})

    def put_group(self, instance: int, name: str, given: Json) -> None:
        answer = self.clients[instance].put(path_of("orders", name), **given)
        assert answer.status == (200 if name in self.topic.groups else 201)
        if name not in self.topic.groups:
            cursors = [Cursor(0, ordered=given["ordered"]) for _ in self.topic.logs]
            self.topic.groups[name] = Pushed(next(self.model.ids), name, {**DEFAULTS}, cursors)
        self._group(name).settings |= {**given, "push": given["push"] or None}
        self._compare(name, answer.json)

    def _delete(self, instance: int, name: str) -> None:
        assert self.clients[instance].delete(path_of("orders", name)).status == 204
        del self.topic.groups[name]

    @rule(instance=instances, name=names)
    def reset(self, instance: int, name: str) -> None:
        answer = self.clients[instance].post(f"{path_of('orders', name)}/reset", to="earliest")
        if name not in self.topic.groups:
            assert answer.problem == (404, "GroupNotFound")
            return
        for cursor in self._group(name).cursors:
            cursor.reset(0)
        self._compare(name, answer.json)

    @rule(instance=instances, batch=new_messages)
    def produce(self, instance: int, batch: list[Json]) -> None:
        self._produce(instance, batch)

    def _produce(self, instance: int, batch: Sequence[Json]) -> None:
        fitting = [message for message in batch if message.get("queue", 0) < len(self.topic.logs)]
        self.sent += len(fitting)
        sent = [{**message, "body": f"body {self.sent - place}"} for place, message in enumerate(fitting)]
        if not sent:
            return
        answer = self.clients[instance].post("/topics/orders/messages", messages=sent)
        for message, place in zip(sent, answer.json["messages"], strict=True):
            self.topic.store({**PLAIN, **message, **place, "stored_at_ms": self.now})

    @rule(ms=st.sampled_from([1, 499, 500, 1_000, 2_000, 20_000, 60_000, 100_000]))
    def wait(self, ms: int) -> None:
        self.clock.sleep(ms)

    @rule(name=names, edge=st.sampled_from([-1, 0, 0]), instance=instances, data=st.data())
    def run_when_it_is_time(self, name: str, edge: int, instance: int, data: st.DataObject) -> None:
        """A run that begins when the next message may be in a call, or just before."""
        due_ms = self._next_due_ms(self._group(name)) if name in self.topic.groups else None
        if due_ms is not None:
            self.clock.sleep(max(0, due_ms + edge - self.now))
            self._run_all(instance, False, data)

    @rule(instance=instances, name=names)
    def pop(self, instance: int, name: str) -> None:
        """A group that is pushed cannot be popped."""
        if name in self.topic.groups and self._group(name).settings["push"]:
            answer = self.clients[instance].post(f"{path_of('orders', name)}/pop")
            assert answer.problem == (409, "GroupIsPushed")

    # -- calling ------------------------------------------------------------------------------------------------------

    @rule(instance=instances, is_staying=st.booleans(), data=st.data())
    def run(self, instance: int, is_staying: bool, data: st.DataObject) -> None:
        self._run_all(instance, is_staying, data)

    def _run_all(self, instance: int, is_staying: bool, data: st.DataObject) -> None:
        """Until all that is ready has been in a call, unless calls pause; if it stays, also what was due meanwhile. It
        stays for a group of which a call has failed. Several groups are served one after another: what is due while
        another is served may be left."""
        self.data, self.calls, began_ms = data, 0, self.now
        self.is_happy, self.stays_for = data.draw(st.sampled_from([True, True, False])), set()
        self.has_come = False
        self._run(instance, is_staying)
        for name, group in self.topic.groups.items():
            assert isinstance(group, Pushed)
            due_ms = self._next_due_ms(group)
            is_alone = len(self.topic.groups) == 1
            is_judged = is_alone or not self.has_come
            if is_judged and group.push and due_ms is not None and self.now - began_ms < RUN_MS:
                stays = (is_staying or name in self.stays_for) and self.now < due_ms
                served_ms = self.now if is_alone else began_ms + 1
                assert due_ms >= (began_ms + RUN_MS if stays else served_ms), f"{name} was not called"

    def _run(self, instance: int, is_staying: bool) -> None:
        self.running.append(instance)
        self.idle_since_ms = self.now
        self.clients[instance].api.service.pushing.run("orders", is_staying)
        self.running.pop()
        if self.failure:
            raise self.failure
        self.goes_on = None
        self.every_group_is_where_the_model_has_it()

    def _next_due_ms(self, group: Pushed) -> int | None:
        """When the next message may be in a call, or might have been. None: there is none left."""
        since: list[int] = []
        for queue, cursor in enumerate(group.cursors):
            held = {offset: hold.until_ms for offset, hold in cursor.holds.items()}
            least_ms = max(held.values(), default=0) if cursor.ordered else 0
            stored = {offset: self.topic.logs[queue][offset]["stored_at_ms"] for offset in self._ready(group, queue)}
            since += [max(at_ms, least_ms) for at_ms in {**stored, **held}.values()]
        return max(min(since), group.breaker.until_ms) if since else None

    def _ready(self, group: Pushed, queue: int) -> list[int]:
        cursor, log = group.cursors[queue], self.topic.logs[queue]
        doomed = cursor.doomed(self.now, group.settings["max_attempts"])
        return cursor.in_turn(self.now, log, doomed, (group.settings["push"] or {}).get("batch", 10))

    def called(self, call: Call) -> ConsumerResponse:
        """The consumer. A run outlives what goes wrong in it, so that is kept for the end of it."""
        try:
            return self._called(call)
        except BaseException as failure:
            self.failure = self.failure or failure
            raise

    def _called(self, call: Call) -> ConsumerResponse:
        self.calls += 1
        name, messages = call.json["group"], call.messages
        group, known_failures = self._group(name), self._judged(call, name)
        queue, id_before = messages[0]["queue"], group.id
        push, epoch = group.push, group.cursors[queue].epoch
        held = {message["offset"]: self._lease(group, message) for message in messages}
        group.under_way.append(self.now + call.timeout_ms + GUARD_MS)
        kind = self._meanwhile(call, name)
        group.under_way.pop()
        answer, failed = self._answer(messages, kind)
        if failed is None and len(self.running) == 1:
            self.stays_for.add(name)
        is_there = name in self.topic.groups and self._group(name).id == id_before
        if is_there:
            self._break_or_go_on(group, known_failures, answer, failed is None)
            if answer.status == 410 and group.settings["push"] == push:
                group.settings["paused"] = True
        if is_there and group.cursors[queue].epoch == epoch:
            self._settle(group, queue, held, answer, failed)
        self.goes_on = name if failed is not None else None
        self.idle_since_ms = self.now
        return answer

    def _judged(self, call: Call, name: str) -> int:
        """Demands that the call is right, and returns how many have failed before it, as far as its caller knows."""
        group, messages = self._group(name), call.messages
        push = group.push
        assert push is not None, "nobody is to be called"
        assert (call.url, call.timeout_ms) == (push.get("url", push.get("function")), push.get("timeout_ms", 10_000))
        [queue] = {message["queue"] for message in messages}
        offsets = [message["offset"] for message in messages]
        assert offsets == self._in_order(group, queue)[: push.get("batch", 10)]
        self._judge_headers(call, group, [message["message_id"] for message in messages])
        due_ms = self._next_due_ms(group)
        if len(self.topic.groups) == 1 and due_ms is not None:  # others are served one after another
            assert self.now - max(due_ms, self.idle_since_ms) <= LOOK_EVERY_MS, "it was called late"
        under_way = sum(until_ms > self.now for until_ms in group.under_way)
        if self.goes_on == name:
            assert under_way < push.get("concurrency", 1)
            return 0
        assert self.now >= group.breaker.until_ms
        assert under_way < (1 if group.breaker.failures else push.get("concurrency", 1))
        return group.breaker.failures

    def _in_order(self, group: Pushed, queue: int) -> list[int]:
        ready = self._ready(group, queue)
        return ready if group.settings["ordered"] == "key" else sorted(ready)

    def _judge_headers(self, call: Call, group: Pushed, message_ids: list[str]) -> None:
        """The same id means the same messages, and none but them."""
        if call.headers:
            batch = (group.id, *message_ids)
            assert self.webhook_ids.setdefault(call.headers["webhook-id"], batch) == batch
            assert list(self.webhook_ids.values()).count(batch) == 1
            assert int(call.headers["webhook-timestamp"]) == self.now // 1_000

    def _lease(self, group: Pushed, message: Json) -> Hold:
        queue, offset = message["queue"], message["offset"]
        cursor, push = group.cursors[queue], group.push or {}
        until_ms = self.now + push.get("timeout_ms", 10_000) + LEASE_SPARE_MS
        hold = Hold(until_ms, cursor.attempts_of(offset) + 1, f"call {self.calls}")
        lease = {"attempt": hold.attempt, "invisible_until_ms": until_ms}
        assert message == {**self.topic.logs[queue][offset], **lease}
        for doomed in cursor.doomed(self.now, group.settings["max_attempts"]):
            cursor.bury(doomed, self.now, self.now)
        cursor.take(offset, hold)
        cursor.last_pop_at_ms, cursor.last_consumer_id = self.now, "push"
        return hold

    def _meanwhile(self, call: Call, name: str) -> str:
        """Lets something else happen while the call is under way."""
        kind = self._draw(st.sampled_from(MEANWHILE)) if self.calls < CALLS_MAX else "nothing"
        other = 1 - self.running[-1]
        self.has_come = self.has_come or kind in ("produce", "run")
        if kind == "time":
            self.clock.sleep(self._draw(st.sampled_from([1, call.timeout_ms, call.timeout_ms + LEASE_SPARE_MS])))
        elif kind == "produce":
            self._produce(other, [{}, {"key": "k1"}])
        elif kind == "run" and len(self.running) == 1:
            self.clock.sleep(self._draw(st.sampled_from([0, 0, call.timeout_ms + 60_000])))
            self._run(other, is_staying=False)
        elif kind == "pause":
            self.put_group(other, name, {"paused": True, "push": self._group(name).settings["push"]})
        elif kind == "push":
            self.put_group(other, name, {"push": self._draw(pushes)})
        elif kind == "reset":
            self.reset(other, name)
        elif kind == "delete":
            self._delete(other, name)
        return str(kind)

    def _answer(self, messages: list[Json], meanwhile: str) -> tuple[ConsumerResponse, dict[str, Json] | None]:
        """The answer; and which messages it reports as failed. None: the call has failed, and all of them."""
        kinds = [*CONTENT * self.is_happy, *DISCONTENT, *(1 + 5 * (meanwhile == "push")) * ["is gone"]]
        kind = self._draw(st.sampled_from(kinds)) if self.calls < CALLS_MAX else "content"
        if kind == "content":
            return self._draw(
                st.sampled_from([OK, ConsumerResponse(204), ConsumerResponse(200, b'{"batchItemFailures": []}')])
            ), {}
        if kind == "is gone":
            return ConsumerResponse(410), {}
        if kind == "reports":
            ids = [message["message_id"] for message in messages]
            about = {"reason": self._draw(st.sampled_from([None, "no stock"]))}
            about["delay_ms"] = self._draw(st.sampled_from([None, 0, 3_000]))
            failed = self._draw(st.lists(st.sampled_from(ids), unique=True, min_size=self._draw(st.integers(0, 1))))
            return failing(*({"itemIdentifier": each, **about} for each in failed)), dict.fromkeys(failed, about)
        if kind == "misunderstands":
            return failing({"itemIdentifier": "x"}), None
        if kind == "is slow":
            self.clock.sleep(1_000)
            return ConsumerResponse.missing("no answer in time"), None
        retry_after = self._draw(st.sampled_from([None, None, "0", "3", "100"]))
        return ConsumerResponse(self._draw(st.sampled_from([500, 302])), retry_after=retry_after), None

    def _break_or_go_on(self, group: Pushed, known_failures: int, answer: ConsumerResponse, has_failed: bool) -> None:
        """Counts a failure, or resets the breaker, unless another call has changed it meanwhile."""
        breaker = group.breaker
        if breaker.failures != known_failures:
            return
        if not has_failed:
            group.breaker = Breaker()
            return
        wait_ms = group.wait_ms(known_failures + 1)
        if answer.retry_after:
            wait_ms = max(1_000, 1_000 * int(answer.retry_after))
        group.breaker = Breaker(known_failures + 1, self.now + min(wait_ms, PAUSE_MS_MAX))

    def _settle(
        self, group: Pushed, queue: int, held: dict[int, Hold], answer: ConsumerResponse, failed: dict[str, Json] | None
    ) -> None:
        """Leaves out messages that another call has taken over."""
        cursor, log = group.cursors[queue], self.topic.logs[queue]
        delay_ms = 1_000 * int(answer.retry_after) if answer.retry_after else None
        for offset in (offset for offset, hold in held.items() if cursor.holds.get(offset) is hold):
            message_id = log[offset]["message_id"]
            if answer.status == 410:
                cursor.take(offset, Hold(self.now, held[offset].attempt - 1))
            elif failed is None:
                self._give_up(group, queue, offset, {"delay_ms": delay_ms, "reason": _reason(answer)})
            elif message_id in failed:
                self._give_up(group, queue, offset, failed[message_id])
            else:
                del cursor.holds[offset]

    def _give_up(self, group: Pushed, queue: int, offset: int, about: Json) -> None:
        reason = about["reason"] or ""
        self.model.give_up(self.topic, group, (queue, offset), self.now, about["delay_ms"], reason, is_last=False)

    def _draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        assert self.data
        return self.data.draw(strategy)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def _group(self, name: str) -> Pushed:
        group = self.topic.groups[name]
        assert isinstance(group, Pushed)
        return group

    @invariant()
    def every_group_is_where_the_model_has_it(self) -> None:
        for name in self.topic.groups:
            self._compare(name, self.observer.get(path_of("orders", name)).json)
            self._compare_dead(name)

    def _compare(self, name: str, seen: Json) -> None:
        self._settle_doubt(self._group(name), seen)
        known = details(self.topic, self._group(name), self.now)
        wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
        assert not wrong, f"answered and expected: {wrong}"

    def _settle_doubt(self, group: Pushed, seen: Json) -> None:
        """A look for messages moves those at their last attempt to the dead letters, unless they are acked."""
        for queue, cursor in enumerate(group.cursors):
            doomed = cursor.doomed(self.now, group.settings["max_attempts"])
            buried = len(cursor.ready(self.now, len(self.topic.logs[queue]))) - seen["queues"][queue]["ready"]
            assert buried in range(len(doomed) + 1), (buried, doomed, cursor, seen["queues"][queue], self.now)
            for offset in doomed[:buried]:
                cursor.bury(offset, 0, self.now)

    def _compare_dead(self, name: str) -> None:
        letters = letters_of(self._group(name)).items()
        known = [(*place, letter.attempts, letter.reason) for place, letter in letters]
        dead = self.observer.get(f"{path_of('orders', name)}/dead").json["messages"]
        seen = [(each["queue"], each["offset"], each["attempts"], each["reason"]) for each in dead]
        assert seen == known, (seen, known)


def _reason(answer: ConsumerResponse) -> str:
    if answer.status == 200:
        return 'status 200, but batchItemFailures names no message of the call: {"itemIdentifier": "x"}'
    return answer.trouble or f"status {answer.status}"
