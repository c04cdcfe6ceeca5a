"""Requests, replies and transactions: each step asks one of two instances of the service and the model, and compares
the answers. While a call waits, something else may happen at an instant that was drawn before."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from chalicelib.core.base.limits import ATTEMPTS_MAX, RETENTION_MS_MAX
from tests.model.administration import one_of
from tests.model.call import (
    COMMITTED,
    FETCHED_MS,
    POLL_MS_MAX,
    ROLLED_BACK,
    UNDECIDED,
    WAIT_MS_MAX,
    Call,
    Half,
    as_shown,
)
from tests.model.consumers import Consumers
from tests.model.cursor import COUNTS, EITHER, INVALID, LOST
from tests.model.model import altered
from tests.model.pair import edges, instances, path_of
from tests.model.pop import Asked, Pop
from tests.model.topic import DAY_MS, Topic
from tests.model.values import Json
from tests.support.client import Answer

TOPICS = ("orders", "audit")
GROUPS = ("billing", "shipping")
TIMEOUT_MS = 3_000
CHECK_AFTER_MS, ROLLBACK_AFTER_MS = 60_000, DAY_MS
HALVES_MAX = 32
ID_DIGITS = 28
"""The length of a transaction's id."""
STEPS = {
    "wait": 3,
    "maintain": 3,
    "replace_group": 2,
    "replace_topic": 1,
    "approach": 8,
    "produce": 6,
    "settle": 5,
    "read_a_queue": 1,
    "read_all_queues": 1,
    "read_by_key": 1,
    "find": 1,
}
"""The steps of other callers, and how often each comes."""
WAITS_MS = (1, 499, 2_000, 5_001, 60_000, 3_600_000)
SWEEPS = ("forward", "expire", "revive", "ttl")
LARGE = "large"
"""Stands for the body of a reply that is too large for its item."""
LARGE_CHARS = 300_000

topics = st.sampled_from([*3 * TOPICS[:1], *TOPICS])
groups = st.sampled_from(GROUPS)
timeouts = st.sampled_from([None, 1, 2, 700, 3_000, 3_000, 60_000, 60_000, 3_600_000])
waits = st.sampled_from([None, 1, 699, 700, 701, 2_999, 3_000, 3_001, 25_000])
lifetimes = st.sampled_from([1, 1_000, 3_000])
new_message = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["k1", "k2"]),
        "queue": st.sampled_from([0, 0, 0, 0, 1, 2]),
        "tag": st.just("x"),
        "properties": st.sampled_from([{}, {"p": "1"}]),
    },
)
mortal_message = st.builds(
    lambda message, life: {**message, **life}, new_message, st.fixed_dictionaries({}, optional={"ttl_ms": lifetimes})
)
half_times = st.fixed_dictionaries(
    {},
    optional={
        "check_after_ms": st.sampled_from([1, 500, 1_000, 2_000]),
        "rollback_after_ms": st.sampled_from([1, 1_000, 2_000, 3_600_000]),
    },
)
contents: st.SearchStrategy[Json] = st.sampled_from(
    [
        {"body": "4"},
        {"body": "4"},
        {"body": "4", "properties": {"unit": "one", "p": ""}},
        {"body": "5"},
        {"body_base64": base64.b64encode(b"4").decode()},
        {"body": LARGE},
    ]
)


@dataclass(frozen=True)
class Meanwhile:
    """An event while a call waits. `at`: after which part of the call's times, and `edge` ms more."""

    kind: str
    instance: int
    group: str
    content: Json
    at: int
    edge: int

    def after_ms(self, times: list[int]) -> int:
        return max(0, times[self.at % len(times)] + self.edge)


def meanwhile(*kinds: str) -> st.SearchStrategy[Meanwhile]:
    return st.builds(Meanwhile, st.sampled_from(kinds), instances, groups, contents, st.integers(0, 3), edges)


@dataclass
class Asking:
    """A request that was sent. `call`: once it was seen in its log."""

    topic: Topic
    sent: Json
    began_ms: int
    timeout_ms: int
    call: Call | None = None


class Calls(Consumers):
    """No group buries messages after many deliveries. The second group keeps the order of its queues."""

    TOPICS = TOPICS
    MESSAGES = st.lists(mortal_message, min_size=1, max_size=3)
    SETTINGS = st.fixed_dictionaries({"invisible_ms": st.sampled_from([1, 1_000, 3_000])})

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, Call] = {}
        self.halves: dict[str, Half] = {}

    # -- administering ------------------------------------------------------------------------------------------------

    @initialize(queues=st.sampled_from([1, 2, 2, 3]), invisible_ms=st.sampled_from([1_000, 20_000]))
    def begin(self, queues: int, invisible_ms: int) -> None:
        for name, count in zip(TOPICS, (queues, 1), strict=True):
            self._make_topic(0, name, count)
            self.put_group(0, name, "billing", {"invisible_ms": invisible_ms})
        self.put_group(1, "orders", "shipping", {"invisible_ms": invisible_ms})

    @rule(kind=one_of(STEPS), instance=instances, data=st.data())
    def step(self, kind: str, instance: int, data: st.DataObject) -> None:
        getattr(self, kind)(instance, data)

    def place(self, data: st.DataObject) -> tuple[str, str]:
        return self.touch((data.draw(topics), data.draw(groups)))

    def put_group(self, instance: int, topic: str, name: str, given: Json) -> None:
        settings = {"ordered": name == GROUPS[1], "max_attempts": ATTEMPTS_MAX}
        super().put_group(instance, topic, name, {**given, **settings})

    def _make_topic(self, instance: int, name: str, queues: int) -> None:
        """A topic that keeps its messages for as long as any history here lasts."""
        self.put_topic(instance, name, queues=queues, index_keys=True, retention_ms=RETENTION_MS_MAX)

    def replace_topic(self, instance: int, data: st.DataObject) -> None:
        """Deletes it, and mostly makes it again, or the rest of the steps would be about a missing one."""
        topic, queues = data.draw(topics), data.draw(st.sampled_from([1, 2, 3]))
        if topic in self.model.topics:
            self.delete_topic(instance, topic)
        if data.draw(st.integers(0, 8)):
            self._make_topic(1 - instance, topic, queues)
            for name in data.draw(st.sampled_from([GROUPS, GROUPS[:1]])):
                self.put_group(instance, topic, name, data.draw(self.SETTINGS))

    # -- time ---------------------------------------------------------------------------------------------------------

    def wait(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from(WAITS_MS)))

    def maintain(self, instance: int, data: st.DataObject) -> None:
        self.sweep(instance, data.draw(st.sampled_from(SWEEPS)))

    def approach(self, _: int, data: st.DataObject) -> None:
        if near := sorted({at_ms for at_ms in self._limits() if at_ms > self.now}):
            self.sleep_until(data.draw(st.sampled_from(near[:8])), data)

    def _limits(self) -> Iterator[int]:
        for call in self.calls.values():
            yield from (call.reply_by_ms, call.reply_by_ms + FETCHED_MS)
        for half in self.halves.values():
            if half.state == UNDECIDED:
                yield from (half.check_at_ms, half.rollback_at_ms)
        yield from self.limits().get("leases", ())
        for topic in self.model.topics.values():
            yield from topic.ends.values()

    @contextmanager
    def _happening(self, at_ms: int, act: Callable[[], None]) -> Iterator[None]:
        """Runs the act at this instant, if the call lasts so long."""
        is_over, failures = False, []

        def run() -> None:
            try:
                if not is_over:
                    act()
            except BaseException as failure:
                failures.append(failure)
                raise

        self.clock.at(at_ms, run)
        try:
            yield
        finally:
            is_over = True
        if failures:
            raise failures[0]

    # -- requests -----------------------------------------------------------------------------------------------------

    @rule(instance=instances, topic=topics, fields=new_message, timeout_ms=timeouts)
    def ask(self, instance: int, topic: str, fields: Json, timeout_ms: int | None) -> None:
        self._ask(instance, topic, fields, timeout_ms, 0, None)

    @rule(
        instance=instances,
        topic=topics,
        fields=new_message,
        timeout_ms=timeouts,
        wait_ms=waits,
        event=meanwhile("reply", "reply", "reply", "work", "work", "delete"),
    )
    def ask_and_wait(
        self, instance: int, topic: str, fields: Json, timeout_ms: int | None, wait_ms: int | None, event: Meanwhile
    ) -> None:
        self._ask(instance, topic, fields, timeout_ms, wait_ms, event)

    def _ask(
        self,
        instance: int,
        topic: str,
        fields: Json,
        timeout_ms: int | None,
        wait_ms: int | None,
        event: Meanwhile | None,
    ) -> None:
        sent, missing, began_ms = {**fields, **self.body()}, self.model.missing(topic), self.now
        timeout = TIMEOUT_MS if timeout_ms is None else timeout_ms
        waits_ms = min(timeout, WAIT_MS_MAX) if wait_ms is None else wait_ms
        is_wrong = missing is None and sent.get("queue", 0) >= len(self.model.topics[topic].logs)
        asking = None if missing or is_wrong else Asking(self.model.topics[topic], sent, began_ms, timeout)

        def act() -> None:
            if asking and event:
                self._act(event, self._learned(asking))

        after_ms = event.after_ms([0, waits_ms, timeout, waits_ms // 2]) if event else 0
        with self._happening(began_ms + after_ms, act):
            answer = self.clients[instance].post(
                f"/topics/{topic}/requests", **sent, timeout_ms=timeout_ms, wait_ms=wait_ms
            )
        if asking is None:
            assert answer.problem == (missing or (400, "InvalidField"))
            assert self.now == began_ms
            return
        self._judge_answer(self._learned(asking), answer, instance, began_ms, waits_ms, was_there=False)

    def _learned(self, asking: Asking) -> Call:
        """The request, once its message is found in its log."""
        if asking.call:
            return asking.call
        topic, found = asking.topic, []
        for queue, log in enumerate(topic.logs):
            page = self.observer.get(f"/topics/{topic.name}/messages", queue=queue, offset=len(log), limit=2)
            found += page.json["messages"]
        [message] = found
        correlation_id: str = message["correlation_id"]
        assert correlation_id not in self.calls
        call = Call(correlation_id, topic.name, topic.id, asking.began_ms, asking.timeout_ms)
        about = {"correlation_id": correlation_id, "reply_by_ms": call.reply_by_ms, "stored_at_ms": asking.began_ms}
        self._store(topic, {**asking.sent, **about}, message, call.timeout_ms)
        assert message == topic.logs[message["queue"]][message["offset"]]
        asking.call = self.calls[correlation_id] = call
        return call

    def _act(self, event: Meanwhile, call: Call) -> None:
        """Replies to a request, works on it, or deletes its topic, while its caller waits for the reply."""
        if event.kind == "reply":
            self._reply(event.instance, call.id, event.content, None, 0)
        elif event.kind == "work":
            self._work(event.instance, call.topic, event.group, event.content)
        else:
            queues = len(self.model.topics[call.topic].logs)
            self.delete_topic(event.instance, call.topic)
            self._make_topic(event.instance, call.topic, queues)
            self.put_group(event.instance, call.topic, "billing", {"invisible_ms": 1_000})

    @rule(instance=instances, wait_ms=st.sampled_from([None, 0]), data=st.data())
    def fetch(self, instance: int, wait_ms: int | None, data: st.DataObject) -> None:
        self._fetch(instance, self._correlation_id(data), wait_ms, None)

    @rule(
        instance=instances,
        wait_ms=st.sampled_from([1, 3_000, 25_000]),
        event=meanwhile("reply", "reply", "work"),
        data=st.data(),
    )
    def fetch_and_wait(self, instance: int, wait_ms: int, event: Meanwhile, data: st.DataObject) -> None:
        self._fetch(instance, self._correlation_id(data), wait_ms, event)

    def _fetch(self, instance: int, correlation_id: str, wait_ms: int | None, event: Meanwhile | None) -> None:
        call, began_ms, waits_ms = self.calls.get(correlation_id), self.now, wait_ms or 0
        was_there = call is not None and call.reply is not None

        def act() -> None:
            if call and event:
                self._act(event, call)

        times = [0, waits_ms, waits_ms // 2, *([call.reply_by_ms - began_ms] if call else [])]
        query = {} if wait_ms is None else {"wait_ms": wait_ms}
        with self._happening(began_ms + (event.after_ms(times) if event else 0), act):
            answer = self.clients[instance].get(f"/requests/{correlation_id}", **query)
        if call is None or began_ms >= call.reply_by_ms + FETCHED_MS:
            assert (answer.problem, self.now) == ((404, "RequestNotFound"), began_ms)
            return
        self._judge_answer(call, answer, instance, began_ms, waits_ms, was_there)

    def _judge_answer(
        self, call: Call, answer: Answer, instance: int, began_ms: int, wait_ms: int, was_there: bool
    ) -> None:
        """`was_there`: whether the reply was, when the call began."""
        end_ms = min(began_ms + wait_ms, max(began_ms, call.reply_by_ms))
        if call.reply is not None:
            at_ms = began_ms if was_there else call.stored_at_ms
            late_ms = 0 if was_there or call.stored_by == instance else call.late_ms(at_ms)
            assert at_ms <= self.now <= min(at_ms + late_ms, end_ms)
            assert (answer.status, answer.json) == (200, {"correlation_id": call.id, "reply": call.reply})
            return
        assert self.now == end_ms
        if end_ms < call.reply_by_ms:
            assert (answer.status, answer.json) == (202, {"correlation_id": call.id})
            return
        call.has_timed_out = True
        assert answer.problem == (504, "ReplyTimeout")
        told = {name: value for name, value in answer.json.items() if name not in ("type", "title", "status", "code")}
        assert told == {"detail": f"no reply came within {call.timeout_ms} ms", "correlation_id": call.id}

    # -- replies ------------------------------------------------------------------------------------------------------

    @rule(instance=instances, first=contents, behind_ms=st.sampled_from([None, 0, 0, 1, 2_000]), data=st.data())
    def reply(self, instance: int, first: Json, behind_ms: int | None, data: st.DataObject) -> None:
        """Replies with a receipt, or perhaps by a clock that is behind. Then perhaps replies again; another caller may
        fetch the reply before or afterwards."""
        correlation_id = self._correlation_id(data)
        if data.draw(st.booleans()):
            self._fetch(data.draw(instances), correlation_id, 0, None)
        self._reply(instance, correlation_id, first, self._receipt_if(behind_ms is None, data), behind_ms or 0)
        call = self.calls.get(correlation_id)
        if call and data.draw(st.sampled_from([False, False, True])):
            end = data.draw(st.sampled_from([call.reply_by_ms, call.reply_by_ms + FETCHED_MS]))
            self.clock.sleep(max(0, end + data.draw(edges) - self.now))
        if data.draw(st.booleans()):
            again = data.draw(contents) if data.draw(st.booleans()) else first
            receipt = self._receipt_if(data.draw(st.booleans()), data)
            self._reply(data.draw(instances), correlation_id, again, receipt, 0)
        if data.draw(st.booleans()):
            self._fetch(data.draw(instances), correlation_id, 0, None)

    def _receipt_if(self, is_given: bool, data: st.DataObject) -> str | None:
        return data.draw(self._receipts(*self.place(data)))[0] if is_given else None

    @rule(instance=instances, topic=topics, group=groups, content=contents)
    def work(self, instance: int, topic: str, group: str, content: Json) -> None:
        self._work(instance, topic, group, content)

    @rule(instance=instances, topic=topics, group=groups, edge=edges, content=contents, is_late=st.booleans())
    def work_slowly(self, instance: int, topic: str, group: str, edge: int, content: Json, is_late: bool) -> None:
        """Takes a request for as long as its lease lasts, or nearly; another worker takes it again. Then either worker
        replies."""
        self._ask(instance, topic, {}, 60_000, 0, None)
        first = self._pop(instance, (topic, group), {"max_messages": 5, "invisible_ms": 1_000})
        self.clock.sleep(1_000 + edge)
        second = self._pop(1 - instance, (topic, group), {"max_messages": 5})
        for message in (first if is_late else second)[-2:]:
            if "correlation_id" in message:
                self._reply(instance, message["correlation_id"], content, message["receipt"], 0)

    def _work(self, instance: int, topic: str, group: str, content: Json) -> None:
        """Takes a message, and replies if it is a request; else it leaves it."""
        answer = self._pop(instance, (topic, group), {"max_messages": 1})
        for message in answer:
            if "correlation_id" in message:
                self._reply(instance, message["correlation_id"], content, message["receipt"], 0)

    def _reply(self, instance: int, correlation_id: str, content: Json, receipt: str | None, behind_ms: int) -> None:
        call, given = self.calls.get(correlation_id), {} if receipt is None else {"receipt": receipt}
        content = {"body": LARGE_CHARS * "x"} if content.get("body") == LARGE else content
        self.clock.set_back_ms = behind_ms
        answer = self.clients[instance].post(f"/requests/{correlation_id}/reply", **content, **given)
        self.clock.set_back_ms = 0
        if call is None:
            assert answer.problem == (404, "RequestNotFound")
            return
        refused = call.refuses(content, self.now - behind_ms)
        is_forgotten = self.now >= call.reply_by_ms + FETCHED_MS + DAY_MS
        if refused or (is_forgotten and answer.status == 410):
            assert answer.problem == (refused or (410, "RequestExpired"))
            return
        assert answer.status == 201
        call.answer(content, self.now, behind_ms, instance)
        expected = [{}] if receipt is None else [_acked(receipt, worth) for worth in self._settled(call, receipt)]
        assert answer.json in expected

    def _settled(self, call: Call, receipt: str) -> tuple[str, ...]:
        """Acks a receipt for the request's topic, and returns its possible worth."""
        topic = self.model.topics.get(call.topic)
        for group in topic.groups.values() if topic and topic.id == call.topic_id else ():
            if self.model.place(group, receipt):
                [worth] = self.model.ack(group, [receipt], self.now)
                return (COUNTS, LOST) if worth == EITHER else (worth,)
        return (INVALID,)

    # -- transactions -------------------------------------------------------------------------------------------------

    @rule(
        instance=instances,
        topic=topics,
        batch=st.one_of(
            st.lists(mortal_message, min_size=1, max_size=4),
            st.sampled_from([0, HALVES_MAX, HALVES_MAX + 1]).map(lambda count: count * [{"key": "k1"}]),
        ),
        times=half_times,
    )
    def begin_transaction(self, instance: int, topic: str, batch: list[Json], times: Json) -> None:
        self._begin(instance, topic, batch, times)

    def _begin(self, instance: int, topic: str, batch: list[Json], times: Json) -> None:
        sent = [{**message, **self.body()} for message in batch]
        answer = self.clients[instance].post(f"/topics/{topic}/transactions", messages=sent, **times)
        if not 1 <= len(sent) <= HALVES_MAX:
            assert answer.problem in ((400, "InvalidField"), self.model.missing(topic))
            return
        if self.is_refused(answer, topic):
            return
        modelled = self.model.topics[topic]
        if any(message.get("queue", 0) >= len(modelled.logs) for message in sent):
            assert answer.problem == (400, "InvalidField")
            return
        rollback_at_ms = self.now + times.get("rollback_after_ms", ROLLBACK_AFTER_MS)
        transaction_id = answer.json["transaction_id"]
        assert transaction_id not in self.halves
        assert answer.json == {"transaction_id": transaction_id, "rollback_at_ms": rollback_at_ms}
        assert answer.status == 201
        check_after_ms = times.get("check_after_ms", CHECK_AFTER_MS)
        shown, check_at_ms = [as_shown(message) for message in sent], self.now + check_after_ms
        about = (self.now, check_after_ms, rollback_at_ms, check_at_ms)
        self.halves[transaction_id] = Half(transaction_id, modelled.id, shown, *about)

    @rule(
        instance=instances,
        verb=st.sampled_from(["commit", "commit", "rollback"]),
        repeat=st.sampled_from([None, None, "commit", "rollback"]),
        data=st.data(),
    )
    def decide(self, instance: int, verb: str, repeat: str | None, data: st.DataObject) -> None:
        """Perhaps twice. Mostly about one that is undecided, in its topic."""
        if not self.halves or data.draw(st.booleans()):
            self._begin_near_an_end(data)
        waiting, known = [half.id for half in self.halves.values() if half.state == UNDECIDED], [*self.halves]
        if not known:
            return
        altered_ids = st.builds(_other_digit, st.sampled_from(known), st.integers(0, ID_DIGITS - 1))
        kinds = [*4 * [st.sampled_from(waiting)], st.sampled_from(known)] if waiting else [st.sampled_from(known)]
        transaction_id = data.draw(st.one_of([*kinds, *kinds, altered_ids]))
        half = self.halves.get(transaction_id)
        own = [name for name in self.model.topics if half and self.model.topics[name].id == half.topic_id]
        topic = data.draw(st.sampled_from([*8 * own, *TOPICS]))
        self._decide(instance, topic, transaction_id, verb)
        if repeat:
            self._decide(1 - instance, topic, transaction_id, repeat)

    def _begin_near_an_end(self, data: st.DataObject) -> None:
        """Begins transactions, and perhaps waits until they are due for a check, or rolled back, or nearly."""
        times, topic = data.draw(half_times), data.draw(topics)
        for batch in data.draw(st.lists(st.lists(mortal_message, min_size=1, max_size=3), min_size=1, max_size=4)):
            self._begin(data.draw(instances), topic, batch, times)
            self.clock.sleep(data.draw(st.sampled_from([0, 1])))
        ends = data.draw(st.sampled_from([None, None, *times.values()]))
        if ends is not None:
            self.clock.sleep(max(0, ends + data.draw(edges)))

    def _decide(self, instance: int, topic: str, transaction_id: str, verb: str) -> None:
        path = f"/topics/{topic}/transactions/{transaction_id}/{verb}"
        answer = self.clients[instance].ask("POST", path)
        if self.is_refused(answer, topic):
            return
        half, modelled = self.halves.get(transaction_id), self.model.topics[topic]
        if half is None or half.topic_id != modelled.id:
            assert answer.problem == (404, "TransactionNotFound")
            return
        wanted = COMMITTED if verb == "commit" else ROLLED_BACK
        if half.state == UNDECIDED:
            half.decide(wanted, self.now)
            if half.state == COMMITTED:
                self._deliver(half, modelled, answer.json["messages"])
        if half.state == wanted:
            assert (answer.status, answer.json) == (200, {"messages": half.places} if verb == "commit" else {})
            return
        assert answer.problem == (409, "TransactionEnded")
        told = re.fullmatch(r"(.*) at (\d+)", answer.json["detail"])
        assert told
        assert told[1] == f"transaction \"{half.id}\" of topic '{topic}' was {half.state}"
        assert half.may_be_decided_at(int(told[2]), self.now)

    def _deliver(self, half: Half, topic: Topic, places: list[Json]) -> None:
        """A commit stores the messages behind all others, in their order."""
        for message, place in zip(half.messages, places, strict=True):
            about = {"stored_at_ms": self.now, "sent_at_ms": half.created_at_ms}
            self._store(topic, {**message, **about}, place, message.get("ttl_ms"))
            assert place.keys() == {"message_id", "queue", "offset"}
        half.places = places

    @rule(
        instance=instances,
        topic=topics,
        fields=st.fixed_dictionaries(
            {},
            optional={"max": st.sampled_from([1, 2, 100]), "wait_ms": st.sampled_from([0, 0, 1, 999, 1_000, 20_000])},
        ),
        event=meanwhile("begin", "commit", "rollback"),
        data=st.data(),
    )
    def check(self, instance: int, topic: str, fields: Json, event: Meanwhile, data: st.DataObject) -> None:
        if not self.halves or data.draw(st.booleans()):
            self._begin_near_an_end(data)
        began_ms, end_ms, missing = self.now, self.now + fields.get("wait_ms", 0), self.model.missing(topic)
        known = {half.id for half in self._halves_of(topic)}
        limits = [half.check_at_ms - began_ms for half in self._halves_of(topic) if half.is_open(began_ms)]
        after_ms = event.after_ms([0, end_ms - began_ms, *limits])
        with self._happening(began_ms + after_ms, lambda: self._decide_meanwhile(event, topic)):
            answer = self.clients[instance].post(f"/topics/{topic}/transactions/check", **fields)
        if missing:
            assert (answer.problem, self.now) == (missing, began_ms)
            return
        chances = [(half.due_between(began_ms, end_ms), half.id in known) for half in self._halves_of(topic)]
        first = min((at_ms for at_ms, is_known in chances if at_ms is not None and is_known), default=end_ms)
        begun = min((at_ms for at_ms, is_known in chances if at_ms is not None and not is_known), default=end_ms)
        assert min(first, begun, end_ms) <= self.now <= min(first, begun + POLL_MS_MAX, end_ms)
        due = [half for half in self._halves_of(topic) if half.is_due(self.now)][: fields.get("max", 16)]
        for half in due:
            half.checks, half.check_at_ms = half.checks + 1, self.now + half.check_after_ms
        assert (answer.status, answer.json) == (200, {"transactions": [half.as_json(topic) for half in due]})

    def _decide_meanwhile(self, event: Meanwhile, topic: str) -> None:
        """Begins or decides a transaction while a check or a pop waits."""
        waiting = [half for half in self._halves_of(topic) if half.state == UNDECIDED]
        if event.kind == "begin":
            self._begin(event.instance, topic, [{}], {"check_after_ms": 1 + event.at})
        elif waiting:
            self._decide(event.instance, topic, waiting[event.at % len(waiting)].id, event.kind)

    @rule(instance=instances, topic=topics, limit=st.sampled_from([1, 2, 3, 100]))
    def list_undecided(self, instance: int, topic: str, limit: int) -> None:
        path = f"/topics/{topic}/transactions"
        answer = self.clients[instance].get(path, limit=limit)
        if not self.is_refused(answer, topic):
            listed = self.rest_of(instance, path, answer, "transactions", limit, least=0)
            assert listed == [half.as_json(topic) for half in self._halves_of(topic) if half.is_open(self.now)]

    def _halves_of(self, topic: str) -> list[Half]:
        """The oldest first."""
        if topic not in self.model.topics:
            return []
        own = [half for half in self.halves.values() if half.topic_id == self.model.topics[topic].id]
        return sorted(own, key=lambda half: (half.created_at_ms, half.id))

    def _store(self, topic: Topic, message: Json, place: Json, ttl_ms: int | None) -> None:
        """Notes a message as a look-up answers it. `place`: where the service says that it is."""
        topic.place(message, place["queue"], self.now)
        offset = place.get("offset")
        about = {"message_id": place["message_id"], "queue": place["queue"], "offset": offset, "topic": topic.name}
        kept = {name: value for name, value in message.items() if name != "ttl_ms"}
        topic.store({"key": None, "tag": None, "properties": {}, **kept, **about}, ttl_ms)

    # -- consuming ----------------------------------------------------------------------------------------------------

    @rule(
        instance=instances,
        topic=topics,
        group=groups,
        fields=st.fixed_dictionaries(
            {"max_messages": st.integers(1, 5)},
            optional={
                "invisible_ms": st.sampled_from([0, 1, 1_000, 20_000]),
                "wait_ms": st.sampled_from([1, 1_000, 20_000]),
                "consumer_id": st.just("c1"),
            },
        ),
        event=meanwhile("commit", "commit", "produce", "ask"),
        data=st.data(),
    )
    def pop(self, instance: int, topic: str, group: str, fields: Json, event: Meanwhile, data: st.DataObject) -> None:
        acks = data.draw(st.one_of(st.just([]), self._receipts(topic, group)))
        self._pop_meanwhile(instance, (topic, group), fields, acks, event)

    def _pop(self, instance: int, at: tuple[str, str], fields: Json, receipts: Sequence[str] = ()) -> list[Json]:
        return self._pop_meanwhile(instance, at, fields, [*receipts], None)

    def _pop_meanwhile(
        self, instance: int, at: tuple[str, str], fields: Json, acks: list[str], event: Meanwhile | None
    ) -> list[Json]:
        """The messages taken."""
        (topic, _), began_ms, wait_ms, missing = at, self.now, fields.get("wait_ms", 0), self.model.missing(*at)
        after_ms = event.after_ms([0, wait_ms, wait_ms // 2]) if event else 0
        known = [len(log) for log in self.model.topics[topic].logs] if topic in self.model.topics else []
        with self._happening(began_ms + after_ms, lambda: self._store_meanwhile(event, topic)):
            answer = self.clients[instance].post(f"{path_of(*at)}/pop", **fields, ack=acks)
        self.model.begin(instance)
        if missing:
            assert (answer.problem, self.now) == (missing, began_ms)
            return []
        group = self.group(*at)
        is_told = event is not None and event.instance == instance
        asked = Asked.by(fields, group, began_ms)
        self._judge_pop(Pop(self.model, self.model.topics[topic], group, asked, known, is_told), answer.json, acks)
        return list(answer.json["messages"])

    def _store_meanwhile(self, event: Meanwhile | None, topic: str) -> None:
        if event is None or topic not in self.model.topics:
            return
        if event.kind == "produce":
            self._produce(event.instance, topic, [{}])
        elif event.kind == "ask":
            self._ask(event.instance, topic, {}, 60_000, 0, None)
        elif not any("ttl_ms" in message for half in self._halves_of(topic) for message in half.messages):
            self._decide_meanwhile(event, topic)

    # -- ids and receipts ---------------------------------------------------------------------------------------------

    def _correlation_id(self, data: st.DataObject) -> str:
        """Mostly of a new request, perhaps where it ends, or where its reply is gone, or nearly."""
        if not self.calls or data.draw(st.booleans()):
            timeout_ms = data.draw(st.sampled_from([1, 700, 3_000, 60_000]))
            self._ask(data.draw(instances), data.draw(topics), data.draw(new_message), timeout_ms, 0, None)
            if data.draw(st.booleans()):
                end = timeout_ms + data.draw(st.sampled_from([0, 0, FETCHED_MS]))
                self.clock.sleep(max(0, end + data.draw(edges)))
        known = [*self.calls] or ["y"]
        altered_ids = st.builds(altered, st.sampled_from(known), st.integers(0, 120))
        others = st.sampled_from(["x", *list(self.halves)[-1:]])
        kinds = [*8 * [st.sampled_from(known[-2:])], *2 * [st.sampled_from(known)], altered_ids, others]
        return data.draw(st.one_of(kinds))


def _acked(receipt: str, worth: str) -> Json:
    """The answer to a reply with a receipt."""
    counts = worth == COUNTS
    return {"acked": int(counts), "failed": [] if counts else [{"receipt": receipt, "code": worth}]}


def _other_digit(text: str, place: int) -> str:
    """Another hexadecimal digit at this place."""
    place = place % len(text)
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
