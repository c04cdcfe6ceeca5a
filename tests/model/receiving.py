"""Messages as clients of SQS receive them, delete them, and change how long they stay invisible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.cursor import Cursor, Hold, Ticket, line_of
from tests.model.model import Json, altered
from tests.model.queueing import ID_RULE, NOT_OF_QUEUE, edges, instances
from tests.model.sending import Sending
from tests.model.sqs import NO_QUEUE, URL, VISIBILITY, Queue, bad_value, refused
from tests.sqs.client import Refused

HELD_MS_MAX = 43_200_000
"""A message is in flight for so long after its receive at most."""
WAIT = "ReceiveMessageWaitTimeSeconds"
ATTEMPT = "ReceiveRequestAttemptId"
GONE = "Message does not exist or is not available for visibility timeout change."
EXPIRED = "The receipt handle has expired."

SETTLE = ("delete", "delete", "delete", "change", "change", "change", "limit")
seconds = st.sampled_from([0, 0, 1, 2, 30, 600, 43_200])
requests = st.fixed_dictionaries(
    {"MaxNumberOfMessages": st.sampled_from([1, 1, 2, 3, 10])},
    optional={
        "VisibilityTimeout": st.sampled_from([0, 1, 2, 30, 30, 600, 43_200]),
        "WaitTimeSeconds": st.sampled_from([0, 0, 1, 3, 20]),
        "AttributeNames": st.sampled_from([["All"], ["All"], ["SentTimestamp"], ["x"]]),
        "MessageSystemAttributeNames": st.sampled_from([["All"], ["ApproximateReceiveCount", "MessageGroupId"]]),
        "MessageAttributeNames": st.sampled_from([["All"], [".*"], ["n"], ["decant.*"], ["s.*"], ["s", "b", "x"]]),
    },
)
wrong_requests: list[tuple[str, Any, str]] = [
    ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
    ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
    ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
    ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
    ("VisibilityTimeout", 43_201, "Must be between 0 and 43200, if provided."),
    (ATTEMPT, " ", f"{ATTEMPT} {ID_RULE}"),
]


@dataclass(frozen=True)
class Asked:
    """A receive, asked at `at_ms`. `name`: its attempt, if it gave one."""

    most: int
    invisible_ms: int
    wait_ms: int
    name: tuple[str | None, str] | None
    at_ms: int


Place = tuple[int, int]
"""Of a message: its Decant queue, and its offset there."""


class Receiving(Sending):
    def __init__(self) -> None:
        super().__init__()
        self.topic_ids: dict[str, int] = {}
        """The topic of the message of each handle, by its incarnation."""
        self.taken_at_ms: dict[str, int] = {}
        """When each handle was given out, unless the receive gave an attempt."""

    # -- receiving ----------------------------------------------------------------------------------------------------

    @rule(instance=instances, request=requests, is_late=st.integers(0, 2), data=st.data())
    def receive_some(self, instance: int, request: Json, is_late: int, data: st.DataObject) -> None:
        self._receive_some(instance, request, is_late, data)

    @rule(instance=instances, request=requests, data=st.data())
    def receive_more(self, instance: int, request: Json, data: st.DataObject) -> None:
        """And settle it."""
        name = self._receive_some(instance, request, 1, data)
        if data.draw(st.booleans()):
            self._delete(1 - instance, name, data.draw(st.sampled_from([1, 1, 2])), data)

    def _receive_some(self, instance: int, request: Json, is_late: int, data: st.DataObject) -> str:
        if not is_late:
            self.approach(data)
        busy = [queue.name for queue in self.world.queues.values() if any(queue.counts(self.now))]
        name = self.name(data, *busy)
        attempts = [None, None, "t1", "t2"] if name.endswith(".fifo") else [*19 * [None], "t1"]
        attempt = data.draw(st.sampled_from(attempts))
        if data.draw(st.integers(0, 15)):
            self.receive(instance, name, request if attempt is None else {**request, ATTEMPT: attempt})
        else:
            self._receive_in_vain(instance, name, *data.draw(st.sampled_from(wrong_requests)))
        return name

    def _receive_in_vain(self, instance: int, name: str, member: str, value: Any, reason: str) -> None:
        answer = self.ask(self.about(instance, name), "ReceiveMessage", QueueUrl=URL + name, **{member: value})
        queue = self.world.queues.get(name)
        if member == ATTEMPT and not name.endswith(".fifo"):
            reason = NOT_OF_QUEUE
        assert answer == (bad_value(value, member, reason) if queue else NO_QUEUE)

    def receive(self, instance: int, name: str, request: Json) -> None:
        instance, began_ms = self.about(instance, name), self.now
        queue = self.world.queues.get(name)
        if queue:
            self.settle_doubt(queue)
        began_ms = self.now
        chance = queue and self._chance(queue, request)
        answer = self.ask(instance, "ReceiveMessage", QueueUrl=URL + name, **request)
        if queue is None or (ATTEMPT in request and not queue.is_fifo):
            assert answer == (bad_value(request[ATTEMPT], ATTEMPT, NOT_OF_QUEUE) if queue else NO_QUEUE)
            return
        assert isinstance(answer, dict), answer
        messages: list[Json] = answer.get("Messages", [])
        assert answer == ({"Messages": messages} if messages else {})
        asked = self._asked(queue, request, began_ms)
        held = self._held(queue, asked) if asked.name else []
        if held:
            self._judge_repeat(queue, request, held, messages)
            return
        told = (chance, began_ms, self.now, messages, queue)
        assert self.now == (began_ms + asked.wait_ms if chance is None else chance), told
        doomed = self.world.doomed(queue, self.now)
        self._learn(queue)
        places = self._places(queue, asked, messages)
        self._judge(queue, asked, places, doomed)
        for place, message in zip(places, messages, strict=True):
            self._take(queue, asked, request, place, message)
        self.settle_doubt(queue)

    def _asked(self, queue: Queue, request: Json, at_ms: int) -> Asked:
        attempt = request.get(ATTEMPT)
        return Asked(
            request["MaxNumberOfMessages"],
            request.get("VisibilityTimeout", queue.number(VISIBILITY)) * 1_000,
            request.get("WaitTimeSeconds", queue.number(WAIT)) * 1_000,
            (None, attempt) if attempt else None,
            at_ms,
        )

    def _chance(self, queue: Queue, request: Json) -> int | None:
        """When it is answered with messages. None: with none, at the end of its time."""
        asked = self._asked(queue, request, self.now)
        return self.world.next_chance(queue, self.now, self.now + asked.wait_ms)

    def _judge(
        self, queue: Queue, asked: Asked, places: list[tuple[int, int]], doomed: set[tuple[str, int, int]]
    ) -> None:
        """Which messages come, and in which order: of each Decant queue the first that are ready; and as many as were
        wanted, if there are so many."""
        by_queue: dict[int, list[int]] = {}
        for number, offset in places:
            by_queue.setdefault(number, []).append(offset)
        left, most = asked.most, self.world.max_attempts(queue)
        for number, offsets in by_queue.items():
            ready = queue.in_turn(number, self.now, left, most)[:left]
            known = self._in_order(queue, asked, number, ready)
            assert offsets == known, (queue.name, number, offsets, known, queue.group, self.now)
            left -= len(offsets)
        others = [number for number in range(len(queue.group.cursors)) if number not in by_queue]
        if left:
            assert not any(queue.in_turn(number, self.now, left, most) for number in others)
            assert places or not queue.topic.due(self.now), (queue.topic.due(self.now), self.now)
            self.demand_moved(set() if queue.is_fifo else doomed)

    def _places(self, queue: Queue, asked: Asked, messages: list[Json]) -> list[tuple[int, int]]:
        """Where these messages are, which only their ids and bodies tell. Of one that has moved here twice, it is the
        copy that is first in turn."""
        most, found = self.world.max_attempts(queue), list[tuple[int, int]]()
        ready = [
            [(number, offset) for offset in queue.in_turn(number, self.now, asked.most, most)]
            for number in range(len(queue.group.cursors))
        ]
        in_turn = [place for own in ready for place in own]
        for message in messages:
            known = [place for place in self._copies(queue, message) if place not in found]
            assert known, f"{queue.name} has no such message: {message}"
            found.append(min(known, key=lambda place: in_turn.index(place) if place in in_turn else len(in_turn)))
        return found

    def _copies(self, queue: Queue, message: Json) -> list[tuple[int, int]]:
        stored = [each for log in queue.topic.logs for each in log]
        shown = [(each, queue.received(each, 0, 0, {})) for each in stored if each["body"] == message["Body"]]
        own = [each for each, seen in shown if seen["MessageId"] == message["MessageId"]]
        return [(each["queue"], each["offset"]) for each in own]

    def _next_attempt(self, queue: Queue, number: int, offset: int) -> int:
        return queue.group.cursors[number].attempts_of(offset) + 1

    def _in_order(self, queue: Queue, asked: Asked, number: int, offsets: list[int]) -> list[int]:
        """As in an answer: by offset; in a FIFO queue in turn or, with an attempt, group by group in the order of their
        first messages."""
        if not queue.is_fifo:
            return sorted(offsets)
        if asked.name is None:
            return offsets
        log, firsts = queue.topic.logs[number], dict[str | int, int]()
        for offset in sorted(offsets):
            firsts.setdefault(line_of(log, offset), offset)
        return sorted(offsets, key=lambda offset: (firsts[line_of(log, offset)], offset))

    def _take(self, queue: Queue, asked: Asked, request: Json, place: tuple[int, int], message: Json) -> None:
        number, offset = place
        cursor, handle = queue.group.cursors[number], message["ReceiptHandle"]
        assert handle not in self.tickets
        attempt = self._next_attempt(queue, number, offset)
        first_at_ms = queue.first_at_ms.setdefault((number, cursor.epoch, offset), self.now)
        assert message == {
            **queue.received(queue.topic.logs[number][offset], attempt, first_at_ms, request),
            "ReceiptHandle": handle,
        }
        hold = Hold(self.now + asked.invisible_ms, attempt, handle, asked.name, handle)
        cursor.take(offset, hold, queue.passed(number, self.now))
        self.note(queue, number, cursor, offset, hold)
        if asked.name is None:
            self.taken_at_ms[handle] = self.now

    def note(self, queue: Queue, number: int, cursor: Cursor, offset: int, hold: Hold) -> None:
        place = (queue.group.id, number, cursor.epoch, offset)
        assert hold.receipt
        self.topic_ids[hold.receipt] = queue.topic.id
        self.tickets.setdefault(hold.receipt, Ticket(*place, hold.until_ms, hold.delivery))

    def _held(self, queue: Queue, asked: Asked) -> list[tuple[int, int]]:
        """What the same attempt still holds."""
        assert asked.name
        held = [(number, cursor.held_by(asked.name, asked.at_ms)) for number, cursor in enumerate(queue.group.cursors)]
        return [(number, at) for number, own in held for at in self._in_order(queue, asked, number, own)]

    def _judge_repeat(self, queue: Queue, request: Json, held: list[tuple[int, int]], messages: list[Json]) -> None:
        """A repeat gets what it holds."""
        assert len(messages) == len(held)
        for (number, offset), message in zip(held, messages, strict=True):
            cursor = queue.group.cursors[number]
            hold = cursor.holds[offset]
            first_at_ms = queue.first_at_ms[number, cursor.epoch, offset]
            shown = queue.received(queue.topic.logs[number][offset], hold.attempt, first_at_ms, request)
            assert message == {**shown, "ReceiptHandle": message["ReceiptHandle"]}
            self.note(queue, number, cursor, offset, replace(hold, receipt=message["ReceiptHandle"]))

    # -- settling -----------------------------------------------------------------------------------------------------

    @rule(instance=instances, kind=st.sampled_from(SETTLE), count=st.sampled_from([1, 1, 2, 4]), data=st.data())
    def settle_some(self, instance: int, kind: str, count: int, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 2)) == 0:
            self.approach(data)
        held = [queue.name for queue in self.world.queues.values() if self._newest(queue)]
        if kind == "delete":
            self._delete(instance, self.name(data, *held), count, data)
        elif kind == "change":
            self._change(instance, self.name(data, *held), count, data)
        else:
            self._change_near_the_limit(data)

    def _delete(self, instance: int, name: str, count: int, data: st.DataObject) -> None:
        instance = self.about(instance, name)
        handles = [data.draw(self.handles(name)) for _ in range(count)]
        results = self._settle(instance, "DeleteMessage", name, [{"ReceiptHandle": handle} for handle in handles])
        queue = self.world.queues.get(name)
        if queue is None:
            assert results == [NO_QUEUE] * count
            return
        for handle in handles:
            if place := self._standing(queue, handle):
                ticket, cursor = place
                cursor.ack(ticket, handle, self.now)
        assert results == [self._not_deleted(queue, handle) for handle in handles]

    def _settle(self, instance: int, action: str, name: str, entries: list[Json]) -> list[Refused | None]:
        """The refusal of each entry."""
        if len(entries) == 1:
            answer = self.ask(instance, action, QueueUrl=URL + name, **entries[0])
            assert isinstance(answer, Refused) or answer == {}
            return [answer or None]  # type: ignore[list-item]
        sent = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        answer = self.ask(instance, f"{action}Batch", QueueUrl=URL + name, Entries=sent)
        if isinstance(answer, Refused):
            return [answer] * len(entries)
        failed = {each["Id"]: each for each in answer.get("Failed", [])}
        done = [each["Id"] for each in answer.get("Successful", [])]
        assert sorted([*done, *failed]) == [entry["Id"] for entry in sent]
        assert answer.get("Successful", []) == [{"Id": id_} for id_ in done]
        assert all(each["SenderFault"] is True for each in failed.values())
        told = [failed.get(entry["Id"]) for entry in sent]
        return [each and refused(each["Code"], each["Message"]) for each in told]

    def _standing(self, queue: Queue, handle: str) -> tuple[Ticket, Cursor] | None:
        """The message that a handle names. None: none of this queue."""
        ticket = self.tickets.get(handle)
        if ticket is None or ticket.group_id != queue.group.id:
            return None
        return ticket, queue.group.cursors[ticket.queue]

    def _not_deleted(self, queue: Queue, handle: str) -> Refused | None:
        place = self._standing(queue, handle)
        if place is None:
            text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            return refused("ReceiptHandleIsInvalid", text)
        return bad_value(handle, "ReceiptHandle", EXPIRED) if self._is_owed(queue, *place) else None

    def _is_owed(self, queue: Queue, ticket: Ticket, cursor: Cursor) -> bool:
        return queue.is_fifo and ticket.epoch == cursor.epoch and ticket.offset in cursor.holds

    def _change(self, instance: int, name: str, count: int, data: st.DataObject) -> None:
        instance = self.about(instance, name)
        changes = [(data.draw(self.handles(name)), data.draw(seconds)) for _ in range(count)]
        entries = [{"ReceiptHandle": handle, "VisibilityTimeout": number} for handle, number in changes]
        results = self._settle(instance, "ChangeMessageVisibility", name, entries)
        queue = self.world.queues.get(name)
        if queue is None:
            assert results == [NO_QUEUE] * count
            return
        expected = self._changed(queue, changes)
        assert results == expected, (queue, changes, results, expected)

    def _changed(self, queue: Queue, changes: Sequence[tuple[str, int]]) -> list[Refused | None]:
        """Those that get the same number of seconds are changed at once."""
        too_long = {change for change in changes if self._is_too_long(queue, *change)}
        held: dict[tuple[str, int], bool] = {}
        for number in dict.fromkeys(number for _, number in changes):
            own = [change for change in changes if change[1] == number and change not in too_long]
            places = {change: self._standing(queue, change[0]) for change in own}
            good = {
                change: place
                for change, place in places.items()
                if place and place[1].is_held(place[0], change[0], self.now)
            }
            for ticket, cursor in good.values():
                hold = cursor.holds[ticket.offset]
                receipt = hold.receipt or "changed"
                cursor.holds[ticket.offset] = replace(hold, until_ms=self.now + number * 1_000, receipt=receipt)
            held |= {change: change in good for change in own}
        return [self._not_changed(queue, change, change in too_long, held.get(change, False)) for change in changes]

    def _is_too_long(self, queue: Queue, handle: str, number: int) -> bool:
        at_ms = self.taken_at_ms.get(handle)
        if at_ms is None or self.topic_ids[handle] != queue.topic.id:
            return False
        return self.now + number * 1_000 > at_ms + HELD_MS_MAX

    def _not_changed(self, queue: Queue, change: tuple[str, int], is_too_long: bool, is_held: bool) -> Refused | None:
        handle, number = change
        if is_too_long:
            limit = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
            return bad_value(number, "VisibilityTimeout", limit)
        if is_held:
            return None
        place = self._standing(queue, handle)
        if place is None:
            return refused("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
        return bad_value(handle, "ReceiptHandle", EXPIRED if self._is_owed(queue, *place) else GONE)

    def _change_near_the_limit(self, data: st.DataObject) -> None:
        """For as long as a message can be in flight, or a little longer."""
        known = [each for each, at_ms in self.taken_at_ms.items() if self.now - at_ms <= 1_000]
        queues = {queue.group.id: queue for queue in self.world.queues.values()}
        known = [each for each in known if self.tickets[each].group_id in queues]
        if not known:
            return
        chosen, number = data.draw(st.sampled_from(known)), data.draw(st.sampled_from([43_199, 43_200]))
        name = queues[self.tickets[chosen].group_id].name
        end_ms = self.taken_at_ms[chosen] + HELD_MS_MAX - number * 1_000
        self.clock.sleep(max(0, end_ms + data.draw(edges) - self.now))
        instance = self.about(0, name)
        entry = {"ReceiptHandle": chosen, "VisibilityTimeout": number}
        results = self._settle(instance, "ChangeMessageVisibility", name, [entry])
        assert results == self._changed(self.world.queues[name], [(chosen, number)])

    def handles(self, name: str) -> st.SearchStrategy[str]:
        """Mostly such as are held, or were and are ready again."""
        queue = self.world.queues.get(name)
        newest = self._newest(queue) if queue else []
        own = [each for each, ticket in self.tickets.items() if queue and ticket.group_id == queue.group.id]
        kinds = 8 * [newest] + 3 * [own[-8:]] + [own, [*self.tickets], ["x", "MTox"]]
        some = st.sampled_from([kind for kind in kinds if kind]).flatmap(st.sampled_from)
        spoilt = st.builds(altered, some, st.integers(0, 150))
        return st.integers(0, 15).flatmap(lambda number: some if number else spoilt)

    def _newest(self, queue: Queue) -> list[str]:
        """The handles of all messages that are held, or were and have not been received since."""
        receipts = [hold.receipt for cursor in queue.group.cursors for hold in cursor.holds.values()]
        return [receipt for receipt in receipts if receipt in self.tickets]
