"""Produce: assigns messages to queues, packs one entry per queue, and appends the entries in parallel.

Without a key an instance stays with one queue and avoids those that fail or are slow. The queue of a key is its Jump
Consistent Hash (J. Lamping, E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014,
https://arxiv.org/abs/1406.2294).

When a topic grows from m to n queues, the share (n - m) / n of the keys moves, which is the least that balances them,
and all of these move to new queues. When it shrinks, only the keys of the queues that leave move."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import InvalidField, QueueFull, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS, TRANSACTION_ITEMS_MAX
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message, Produced
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.delayed_messages import DelayWriter
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.producing.dedup import Deduplication
from chalicelib.core.producing.group_commit import GroupCommit, Written
from chalicelib.core.producing.hooks import SendHooks
from chalicelib.core.producing.new_message import Sending, parse_batch, parse_for_transaction
from chalicelib.core.table.writes import Item
from chalicelib.core.telemetry.record import NO_TRACE, Trace, count

if TYPE_CHECKING:
    from chalicelib.core.producing.depths import Depths

_HASH_BYTES = 8
_STATES = 2 ** (8 * _HASH_BYTES)
_MULTIPLIER = 2_862_933_555_777_941_757
"""The multiplier of the paper's linear congruential generator."""
_DRAWN_BITS = 31
_UNDRAWN_BITS = 8 * _HASH_BYTES - _DRAWN_BITS


def queue_of_key(key: str, queues: int) -> int:
    """The same in every process and version, unlike Python's own hash."""
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=_HASH_BYTES).digest(), "big")
    queue, jump = 0, 0
    while jump < queues:
        queue = jump
        state = (state * _MULTIPLIER + 1) % _STATES
        drawn = (state >> _UNDRAWN_BITS) + 1
        jump = ((queue + 1) << _DRAWN_BITS) // drawn
    return queue


ISOLATED_MS_MIN = SECOND_MS
ISOLATED_MS_MAX = MINUTE_MS
"""How long an instance keeps unkeyed messages away from a queue that failed: the first value at first, twice as long
after each further failure, up to the second. DynamoDB needs minutes to split a hot partition."""

_GRADES = ((550, 2), (1_800, 5), (3_000, 6), (5_000, 10), (15_000, 30))
"""An append that takes at least so many ms isolates its queue for so many seconds, as clients of RocketMQ isolate a
slow broker. A failed one isolates it for at least as long."""


@record
class _Isolation:
    failures: int
    until_ms: int


_NEVER = _Isolation(0, 0)


def isolated_ms(took_ms: int) -> int:
    """How long a queue is isolated after an append that took this long."""
    return max([0, *(seconds * SECOND_MS for least_ms, seconds in _GRADES if took_ms >= least_ms)])


class QueueChoice:
    """The choice among the queues of one topic. `is_crowded`: whether other writers were seen at a log lately."""

    def __init__(self, runtime: Runtime, is_crowded: Callable[[str], bool], queues: int) -> None:
        self._runtime = runtime
        self._is_crowded = is_crowded
        self.count = queues
        self._queues = range(queues)
        self._current: dict[tuple[int, ...], int] = {}
        """By the queues that were to be preferred."""
        self._isolated: dict[int, _Isolation] = {}

    def unkeyed(self, logs: Sequence[str], full: Collection[int] = (), near: tuple[int, ...] = ()) -> int:
        """The queue for messages without a key. `logs`: those of all queues. An instance stays with one queue, so that
        writers do not contend, and changes it if others write there too, if it fails, or if it is `full`. If all have
        failed, it uses the one whose isolation ends first, and a full one only if all are. While any of the queues that
        are `near` is open, it is one of them."""
        queue, others = self._current.get(near), self.others(full)
        open_queues = _nearest(others, near) if near else others
        stays = [queue] if queue is not None and queue in open_queues else []
        if stays and not self._is_crowded(logs[stays[0]]):
            return stays[0]
        calm = [each for each in open_queues if not self._is_crowded(logs[each])]
        if stays and not calm:
            return stays[0]
        roomy = [each for each in self._queues if each not in full] or self._queues
        soonest = min(map(self._isolated_until_ms, roomy))
        last_resort = [each for each in roomy if self._isolated_until_ms(each) == soonest]
        return self.hop(calm or open_queues or last_resort, near)

    def others(self, besides: Collection[int] = ()) -> list[int]:
        """Queues that have not failed lately, except these."""
        if not self._isolated:
            return [queue for queue in self._queues if queue not in besides]
        now = self._runtime.uptime()
        return [queue for queue in self._queues if queue not in besides and self._isolated_until_ms(queue) <= now]

    def hop(self, queues: Sequence[int], near: tuple[int, ...] = ()) -> int:
        """Continues with one of these, a near one if there is one."""
        self._current[near] = self._runtime.choice(_nearest(queues, near) if near else queues)
        return self._current[near]

    def note(self, queue: int, has_failed: bool, took_ms: int = 0) -> None:
        """Keeps messages away from a queue for a while: one that has failed, twice as long after each further failure,
        and one that took this long for an append (0: unknown). Then it is open again, and the next message probes it.
        A queue that was neither is open at once."""
        if not has_failed and took_ms < _GRADES[0][0]:
            self._isolated.pop(queue, None)
            return
        ms = isolated_ms(took_ms)
        failures = 0
        if has_failed:
            failures = self._isolation(queue).failures + 1
            ms = max(ms, min(ISOLATED_MS_MIN << min(failures - 1, 30), ISOLATED_MS_MAX))
        self._isolated[queue] = _Isolation(failures, self._runtime.uptime() + ms)

    def _isolation(self, queue: int) -> _Isolation:
        return self._isolated.get(queue, _NEVER)

    def _isolated_until_ms(self, queue: int) -> int:
        return self._isolation(queue).until_ms


def _nearest(queues: Sequence[int], near: Collection[int]) -> Sequence[int]:
    """Those of the queues that are near, or all if none is."""
    return [queue for queue in queues if queue in near] or queues


HOPS_MAX = 3
"""Other queues on which an unkeyed message is tried. If four queues fail, the store does."""

Notice = Callable[[Topic], None]
"""Is told that messages were stored in the topic. Never raises."""


class Producer:
    def __init__(self, env: Env, log: Log, delays: DelayWriter, hooks: SendHooks, notice: Notice) -> None:
        self._runtime, self._catalogue = env.runtime, env.catalogue
        self._writer, self._delays, self._hooks, self._notice = log.writer, delays, hooks, notice
        self._deduplication = Deduplication(env, log, delays)
        self._group_commit = GroupCommit(env.runtime)
        self._env, self._log = env, log
        self._choices: BoundedCache[QueueChoice] = env.caches.bounded(lambda key, _: key[:1])
        """By topic id and number of queues."""

    @cached_property
    def _depths(self) -> Depths:
        """Imported for the first topic with a breaker, so that no other cold start waits for it."""
        from chalicelib.core.producing.depths import Depths

        return Depths(self._env, self._log)

    def produce(self, topic: Topic, messages: object, trace: Trace = NO_TRACE) -> list[Produced]:
        """Checks the `messages` of a request and sends them, between the hooks. Raises what the check, a hook or `send`
        raises."""

        def parse(current: Topic) -> list[Sending]:
            return parse_batch(messages, current, self._runtime.now(), trace)

        return self.send_parsed(topic, parse)

    def send_parsed(self, topic: Topic, parse: Callable[[Topic], list[Sending]]) -> list[Produced]:
        """Sends the messages that a request has for this topic, between the hooks. `parse` is called again, with the
        topic as it is now, if it was made again or has got more queues a moment ago."""
        try:
            sendings = parse(topic)
        except InvalidField:  # perhaps it names a queue or a zone that was added
            with suppress(StoreUnavailable):
                topic = self._catalogue.current_topic(topic.name)
            sendings = parse(topic)

        def send() -> list[Produced]:
            try:
                return self.send(topic, sendings)
            except TopicNotFound:
                current = self._catalogue.current_topic(topic.name)
                return self.send(current, parse(current))

        if not (self._hooks.before or self._hooks.after):
            return send()
        return self._hooks.around(topic.name, [sending.message for sending in sendings], send)

    def send(self, topic: Topic, sendings: Sequence[Sending]) -> list[Produced]:
        """Stores checked messages, those of one queue at consecutive offsets, and returns results in the given order.

        Raises StoreUnavailable and QueueFull only if no message is known to be stored; with `outcome="unknown"` some
        may be."""
        stored = own = sendings
        has_ids = any(sending.message.dedup_id is not None for sending in sendings)
        if has_ids:
            stored = _without_repeats(sendings)
            own = [*dict.fromkeys(stored)]
        choice = self._choice(topic)
        full = self._depths.full(topic, topic.max_depth) if topic.max_depth else {}
        self._assign(topic, choice, own, full)
        admitted = [sending for sending in own if sending.message.deliver_at_ms is None]
        delayed = [sending for sending in own if sending.message.deliver_at_ms is not None]
        if full:
            admitted = self._admitted(topic, admitted, full)
        by_queue = _by_queue(admitted)
        if delayed:
            self._delay(topic, delayed)
        plain: dict[int, list[Sending]] = {}
        for queue, together in by_queue.items():
            if has_ids and any(sending.is_deduplicated for sending in together):
                self._append_deduplicated(topic, choice, queue, together)
            else:
                plain[queue] = together
        if plain:
            self._append(topic, choice, plain, {*by_queue, *full})
        results = [sending.result for sending in stored if sending.result]
        if topic.max_depth:
            self._depths.note(topic, results)
        errors = [result.error for result in results if result.error]
        count("produced", len(results) - len(errors), topic.name)
        if len(errors) == len(results):
            raise max(errors, key=lambda error: (error.outcome_unknown, isinstance(error, StoreUnavailable)))
        self._notice(topic)
        return results

    def outbox_item(self, topic: Topic, message: object) -> Item:
        """A delayed message, due now at the earliest, as the item for the caller's own transaction. Stores its payload,
        if it has one. Raises TopicNotFound, StoreUnavailable."""
        sending = parse_for_transaction(message, topic, self._runtime.now())
        self.choose_queues(topic, [sending])
        [waiting] = self._delays.waiting([(sending.queue, sending.message)])
        return self._delays.item(topic, waiting)

    def choose_queues(self, topic: Topic, sendings: Sequence[Sending]) -> None:
        """Gives each message the queue that it would be stored in now."""
        self._assign(topic, self._choice(topic), sendings)

    def _assign(
        self, topic: Topic, choice: QueueChoice, sendings: Sequence[Sending], full: Collection[int] = ()
    ) -> None:
        """`full`: the queues that refuse messages."""
        unkeyed: dict[str | None, int] = {}
        for sending in sendings:
            zone, key = sending.zone, sending.message.key
            if sending.asked is not None:
                sending.queue = sending.asked
            elif key is not None:
                sending.queue = queue_of_key(key, choice.count)
            else:
                if zone not in unkeyed:
                    unkeyed[zone] = choice.unkeyed(topic.logs, full, topic.known_zones.queues(zone) if zone else ())
                sending.queue = unkeyed[zone]

    def _admitted(self, topic: Topic, plain: Sequence[Sending], full: Mapping[int, QueueFull]) -> list[Sending]:
        """The messages to append now. Those whose queue is full get their result: of an earlier call with their
        `dedup_id`, or that they are refused."""
        refused = [sending for sending in plain if sending.queue in full]
        self._deduplication.repeat(topic, refused)
        for sending in refused:
            sending.result = sending.result or Produced(sending.queue, error=full[sending.queue])
        return [sending for sending in plain if sending.queue not in full]

    def _choice(self, topic: Topic) -> QueueChoice:
        writers = topic.writers(self._runtime.now())
        choice = self._choices.get((topic.id, writers))
        if choice is None:
            choice = QueueChoice(self._runtime, self._writer.tails.is_crowded, writers)
            self._choices.keep((topic.id, writers), choice)
        return choice

    def _delay(self, topic: Topic, delayed: Sequence[Sending]) -> None:
        """Stores delayed messages: those with dedup ids one by one, the others together."""
        messages = [(sending.queue, sending.message) for sending in delayed]
        waiting = dict(zip(delayed, self._delays.waiting(messages), strict=True))
        plain = [sending for sending in delayed if not sending.is_deduplicated]
        results = self._delays.store(topic, [waiting[sending] for sending in plain]) if plain else []
        for sending, result in zip(plain, results, strict=True):
            sending.result = result
        for sending in delayed:
            if sending.is_deduplicated:
                sending.result = self._deduplication.delay(topic, waiting[sending])

    def _append_deduplicated(self, topic: Topic, choice: QueueChoice, queue: int, together: Sequence[Sending]) -> None:
        """Stores messages with dedup ids, and those that share their entries. They stay in their queue if it fails,
        since other callers may be completing the entry there; none is stored before an earlier one is known to be."""
        for part in _parts(together):
            if not self._deduplication.append(topic, queue, part):
                break
        held_back = StoreUnavailable(f"an earlier message of this request is not stored in queue {queue}")
        for sending in together:
            if sending.result:
                choice.note(sending.result.queue, has_failed=sending.result.error is not None)
            else:
                sending.result = Produced(queue, error=held_back)

    def _append(
        self,
        topic: Topic,
        choice: QueueChoice,
        by_queue: Mapping[int, list[Sending]],
        used: set[int],
        hops_left: int = HOPS_MAX,
    ) -> None:
        """Stores one entry per queue, in parallel. Retries entries that were certainly not stored: messages that can go
        anywhere in a queue this call has not used yet, the others in their own if it did not have the whole time."""
        is_open = hops_left and len(used) < choice.count
        may_hop = is_open and any(sending.may_hop for together in by_queue.values() for sending in together)
        others = choice.others(used) if may_hop else []
        if not others:
            self._append_each(topic, choice, by_queue)
            return
        with deadline.part_until(deadline.hop_until_ms(self._runtime.uptime())):
            failed = self._append_each(topic, choice, by_queue, may_leave=True)
        if failed and self._has_time():
            hopping = [sending for sending in failed if sending.may_hop]
            zones = dict.fromkeys(sending.zone for sending in hopping)
            chosen = {zone: choice.hop(others, topic.known_zones.queues(zone) if zone else ()) for zone in zones}
            for sending in hopping:
                sending.queue = chosen[sending.zone]
            self._append(topic, choice, _by_queue(failed), used | {*chosen.values()}, hops_left - 1)

    def _append_each(
        self, topic: Topic, choice: QueueChoice, by_queue: Mapping[int, list[Sending]], may_leave: bool = False
    ) -> list[Sending]:
        """Tries each entry once, in parallel. Returns the messages that were certainly not stored."""
        if len(by_queue) == 1:
            [(queue, together)] = by_queue.items()
            return self._append_together(topic, choice, queue, together, may_leave)
        failed: list[Sending] = []
        messages = [(queue, [sending.message for sending in together]) for queue, together in by_queue.items()]
        for (queue, _), written in zip(messages, self._write(topic, choice, messages, may_leave), strict=True):
            failed += _settled(by_queue[queue], queue, written)
        return failed

    def _append_together(
        self, topic: Topic, choice: QueueChoice, queue: int, together: Sequence[Sending], may_leave: bool
    ) -> list[Sending]:
        """The same for one queue, together with other calls that append to it now."""

        def write(messages: Sequence[Message]) -> Written:
            return self._write(topic, choice, [(queue, messages)], may_leave)[0]

        messages = [sending.message for sending in together]
        written, begins_at = self._group_commit.append(topic, queue, messages, write, may_leave)
        return _settled(together, queue, written, begins_at)

    def _write(
        self, topic: Topic, choice: QueueChoice, messages: Sequence[tuple[int, Sequence[Message]]], may_leave: bool
    ) -> list[Written]:
        """Appends an entry to each of these queues, and notes which queues failed."""
        now = self._runtime.now()
        packed = [
            (queue, Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), together, now), together)
            for queue, together in messages
        ]
        appended = self._writer.append(topic, packed, may_leave)
        for (queue, _, _), (first, took_ms) in zip(packed, appended, strict=True):
            choice.note(queue, isinstance(first, StoreUnavailable), took_ms)
        return [Written(entry.id, first) for (_, entry, _), (first, _) in zip(packed, appended, strict=True)]

    def _has_time(self) -> bool:
        now = self._runtime.uptime()
        return now < deadline.give_up_at_ms(now)


def _settled(together: Sequence[Sending], queue: int, written: Written, begins_at: int = 0) -> list[Sending]:
    """Gives messages that begin at this index of an entry their results. Returns those that were certainly not
    stored."""
    entry_id, first = written
    for index, sending in enumerate(together, begins_at):
        sending.result = Produced.stored(queue, entry_id, index, first)
    return [*together] if isinstance(first, StoreUnavailable) and not first.outcome_unknown else []


def _without_repeats(sendings: Iterable[Sending]) -> list[Sending]:
    """For each message the one that is stored for it: the first with its dedup id."""
    firsts: dict[str | Sending, Sending] = {}
    return [firsts.setdefault(sending.message.dedup_id or sending, sending) for sending in sendings]


def _by_queue(sendings: Iterable[Sending]) -> dict[int, list[Sending]]:
    by_queue: dict[int, list[Sending]] = {}
    for sending in sendings:
        by_queue.setdefault(sending.queue, []).append(sending)
    return by_queue


def _parts(sendings: Sequence[Sending]) -> Iterator[list[Sending]]:
    """The messages in order, split where a part would have more dedup ids than one transaction can claim."""
    part: list[Sending] = []
    ids = 0
    for sending in sendings:
        if ids + sending.is_deduplicated > TRANSACTION_ITEMS_MAX:
            yield part
            part, ids = [], 0
        part.append(sending)
        ids += sending.is_deduplicated
    yield part
