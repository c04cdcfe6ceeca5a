"""The steps of consumers: they take, settle and bury messages, and redrive and purge dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from hypothesis import strategies as st

from tests.model.cursor import COUNTS, EITHER, LOST, Letter
from tests.model.group import Group, Place
from tests.model.messages import Messages, page_limits
from tests.model.model import altered
from tests.model.pair import path_of
from tests.model.pop import Asked, Pop
from tests.model.topic import Topic
from tests.model.values import Json

DONE = {"ack": "acked", "nack": "nacked", "extend": "extended", "bury": "buried"}
VERBS = ("ack", "ack", "nack", "nack", "nack", "extend", "bury")
REASONS = ("", "broken", "gone")


class Consumers(Messages):
    POPS: ClassVar[st.SearchStrategy[Json]]
    """The fields of a pop."""
    RETRIES: ClassVar[tuple[int | None, ...]] = (None, None, 0, 0, 2_000)
    """The delays of nacks."""
    LEASES: ClassVar[tuple[int, ...]] = (0, 1, 500, 2_000, 10_000)
    """The times of extensions."""

    # -- pops ---------------------------------------------------------------------------------------------------------

    def pop(self, instance: int, data: st.DataObject) -> None:
        place = self.place(data)
        receipts = data.draw(st.one_of(st.just([]), st.just([]), self._receipts(*place)))
        self._pop(instance, place, data.draw(self.POPS), receipts)

    def work(self, instance: int, data: st.DataObject) -> None:
        """Pops, and does something with the messages."""
        place = self.place(data)
        self._pop(instance, place, data.draw(self.POPS))
        if self.model.missing(*place) is None:
            self._settle(data.draw(st.sampled_from([0, 1])), place, data)

    def drain(self, instance: int, data: st.DataObject) -> None:
        """Some groups take and ack all that they can, perhaps after all leases are over."""
        topic, name = self.place(data)
        if data.draw(st.booleans()):
            self.clock.sleep(max([0, *(limit - self.now for limit in self.limits().get("leases", ()))]))
        if self.model.missing(topic) is None:
            groups = self.model.topics[topic].groups
            self._drain(instance, topic, [name] if data.draw(st.booleans()) else [*groups])

    def _drain(self, instance: int, topic: str, names: Sequence[str]) -> None:
        for name in names:
            if self.model.missing(topic, name) is None:
                acks = self.model.newest(self.group(topic, name))
                while taken := self._pop(instance, (topic, name), {"max_messages": 10}, acks[:250]):
                    acks = [message["receipt"] for message in taken]

    def _pop(self, instance: int, at: tuple[str, str], fields: Json, receipts: Sequence[str] = ()) -> list[Json]:
        """The messages taken."""
        began_ms, acks = self.now, list(receipts)
        self.model.begin(instance)
        answer = self.clients[instance].post(f"{path_of(*at)}/pop", **fields, ack=acks or None)
        if self.is_refused(answer, *at):
            return []
        topic, group = self.model.topics[at[0]], self.group(*at)
        self.learn_of(topic)
        pop = Pop(self.model, topic, group, Asked.by(fields, group, began_ms))
        self._judge_pop(pop, answer.json, acks)
        return list(answer.json["messages"])

    def _judge_pop(self, pop: Pop, answer: Json, acks: list[str]) -> None:
        """Where a pop has settled what had ended, late acks in the same call may count or not."""
        topic, group, held = pop.topic, pop.group, pop.held()
        worths = self.model.ack(group, acks, pop.asked.now)
        seen = self.observer.get(path_of(topic.name, group.name)).json
        if held:
            assert answer.keys() == {"messages", "acked", "failed"}
            pop.judge_repeat(held, answer["messages"])
        else:
            pop.judge(answer, self.now, seen)
        after = [self.model.worth(group, receipt, self.now) for receipt in acks]
        worths = [
            EITHER if LOST in each and each[0] != each[1] else each[0] for each in zip(worths, after, strict=True)
        ]
        self._judge_settled(topic, group, "ack", answer, acks, worths, {})
        self.compare(topic.name, group.name, seen)
        self.touched.discard((topic.name, group.name))

    # -- settled ------------------------------------------------------------------------------------------------------

    def settle(self, instance: int, data: st.DataObject) -> None:
        """Mostly receipts of held messages."""
        there = [(topic.name, group.name) for topic, group in self.model.groups() if self.model.newest(group)]
        place = self.touch(data.draw(st.sampled_from(there))) if there else self.place(data)
        self._settle(instance, place, data)

    def _settle(self, instance: int, at: tuple[str, str], data: st.DataObject, verbs: tuple[str, ...] = VERBS) -> None:
        verb, receipts = data.draw(st.sampled_from(verbs)), data.draw(self._receipts(*at))
        reason, delay_ms = data.draw(st.sampled_from(REASONS)), data.draw(st.sampled_from(self.RETRIES))
        invisible_ms = data.draw(st.sampled_from(self.LEASES))
        about: dict[str, Json] = {
            "nack": {"reason": reason, "delay_ms": delay_ms},
            "extend": {"invisible_ms": invisible_ms},
            "bury": {"reason": reason},
        }
        self.model.begin(instance)
        answer = self.clients[instance].post(f"{path_of(*at)}/{verb}", receipts=receipts, **about.get(verb, {}))
        if self.is_refused(answer, *at):
            return
        topic, group = self.model.topics[at[0]], self.group(*at)
        if verb == "ack":
            self._judge_settled(
                topic, group, verb, answer.json, receipts, self.model.ack(group, receipts, self.now), {}
            )
            return
        held = self.model.held(group, receipts, self.now)
        worths = [COUNTS if receipt in held else self.model.lost(group, receipt) for receipt in receipts]
        told = {"invisible_until_ms": self.now + invisible_ms} if verb == "extend" else {"reason": reason}
        self._judge_settled(topic, group, verb, answer.json, receipts, worths, told)
        if verb == "extend":
            self._extended(answer.json["extended"], held, self.now + invisible_ms)
            return
        wait_ms = delay_ms if verb == "nack" else None
        for place in sorted({(ticket.queue, ticket.offset) for ticket, _ in held.values()}):
            self.model.give_up(topic, group, place, self.now, wait_ms, reason, is_last=verb == "bury")

    def _extended(self, leases: list[Json], held: Json, until_ms: int) -> None:
        extended = {lease["receipt"]: lease for lease in leases}
        for receipt, (ticket, cursor) in held.items():
            new = extended[receipt]["new_receipt"]
            assert extended[receipt] == {"receipt": receipt, "new_receipt": new, "invisible_until_ms": until_ms}
            known = self.model.tickets.get(new)
            assert known is None or (cursor.settle_by != "receipt" and known.place == ticket.place)
            cursor.extend(ticket.offset, new if new != receipt else None, until_ms)
            self.model.tickets.setdefault(new, replace(ticket, until_ms=until_ms))

    def _judge_settled(
        self, topic: Topic, group: Group, verb: str, answer: Json, receipts: list[str], worths: list[str], told: Json
    ) -> None:
        """Each receipt is answered by its worth; those that count are counted, and noted once for each delivery."""
        codes = {failure["receipt"]: failure["code"] for failure in answer["failed"]}
        assert sorted(failure["receipt"] for failure in answer["failed"]) == sorted(
            receipt for receipt in receipts if receipt in codes
        )
        for receipt, worth in zip(receipts, worths, strict=True):
            answered = codes.get(receipt, COUNTS)
            assert answered in ((COUNTS, LOST) if worth == EITHER else (worth,)), (receipt, answered, worth)
        counted = [receipt for receipt in receipts if receipt not in codes]
        done = answer[DONE[verb]]
        assert (len(done) if verb == "extend" else done) == len(counted)
        tickets = [self.model.tickets[receipt] for receipt in counted]
        event = {"event": DONE[verb], "at_ms": self.now, **{field: value for field, value in told.items() if value}}
        for queue, offset, attempt in {(ticket.queue, ticket.offset, ticket.attempt) for ticket in tickets}:
            self.model.note(topic, group, (queue, offset), {**event, "attempt": attempt})

    def _receipts(self, topic: str, name: str) -> st.SearchStrategy[list[str]]:
        """The group's newest receipts, the last ones that it returned, any earlier ones, and made-up ones."""
        kinds = [st.sampled_from(["x", "", "MTox"])]
        if self.model.missing(topic, name) is None and (newest := self.model.newest(self.group(topic, name))):
            group_id = self.group(topic, name).id
            last = [receipt for receipt, ticket in self.model.tickets.items() if ticket.group_id == group_id][-6:]
            kinds += [*5 * [st.sampled_from(newest)], *2 * [st.sampled_from(last)]]
        if self.model.tickets:
            any_of_them = st.sampled_from(list(self.model.tickets))
            kinds += [any_of_them, st.builds(altered, any_of_them, st.integers(0, 150))]
        return st.lists(st.one_of(kinds), min_size=1, max_size=4)

    # -- dead letters -------------------------------------------------------------------------------------------------

    def _place_of_dead(self, data: st.DataObject) -> tuple[str, str]:
        """Mostly a group that has some."""
        there = [(topic.name, group.name) for topic, group in self.model.groups() if letters_of(group)]
        return self.touch(data.draw(st.sampled_from([*3 * there, self.place(data)])))

    def list_dead(self, instance: int, data: st.DataObject) -> None:
        """But for those whose messages may be removed."""
        place, limit = self._place_of_dead(data), data.draw(page_limits)
        path = f"{path_of(*place)}/dead"
        answer = self.clients[instance].get(path, limit=limit)
        if self.is_refused(answer, *place):
            return
        topic, letters = self.model.topics[place[0]], letters_of(self.group(*place))
        may_be_gone = {own for own in letters if topic.may_be_gone(*own, self.now)}
        listed = self.rest_of(instance, path, answer, "messages", limit, least=not may_be_gone)
        found = {(message["queue"], message["offset"]): message for message in listed}
        assert list(found) == [own for own in letters if own in found or own not in may_be_gone]
        for (queue, offset), message in found.items():
            letter, dead_at_ms = letters[queue, offset], message["dead_at_ms"]
            death = {"attempts": letter.attempts, "reason": letter.reason, "dead_at_ms": dead_at_ms}
            assert message == {**topic.logs[queue][offset], **death}, letter
            assert letter.from_ms <= dead_at_ms <= letter.to_ms

    def redrive(self, instance: int, data: st.DataObject) -> None:
        """If no message is dead, some die first; perhaps another pop follows."""
        place = self._place_of_dead(data)
        if self.model.missing(*place) is None and not letters_of(self.group(*place)):
            self._pop(instance, place, {"max_messages": 2})
            self._settle(instance, place, data, verbs=("bury",))
        self._redrive(instance, place, data)
        if data.draw(st.booleans()):
            self._pop(1 - instance, place, data.draw(self.POPS))

    def _redrive(self, instance: int, place: tuple[str, str], data: st.DataObject) -> None:
        """All the dead, or some of them: all of these, or none."""
        are_all = data.draw(st.booleans())
        path, client = f"{path_of(*place)}/dead/redrive", self.clients[instance]
        if self.model.missing(*place):
            assert self.is_refused(client.post(path, **({} if are_all else {"message_ids": ["x"]})), *place)
            return
        topic, group = self.model.topics[place[0]], self.group(*place)
        letters = letters_of(group)
        ids = {topic.logs[queue][offset]["message_id"]: (queue, offset) for queue, offset in letters}
        if not are_all:
            stored = [message["message_id"] for log in topic.logs for message in log]
            wanted = data.draw(st.lists(st.sampled_from(9 * [*ids] + [*stored, "x"]), min_size=1, max_size=3))
            answer = client.post(path, message_ids=wanted)
            is_gone = any(each in ids and topic.may_be_gone(*ids[each], self.now) for each in wanted)
            if not set(wanted) <= ids.keys() or (is_gone and answer.status == 404):
                assert answer.problem == (404, "MessageNotFound")
                return
            back = [ids[each] for each in sorted(set(wanted))]
        else:
            answer, back = client.post(path), [*letters]
        for queue, offset in back:
            group.cursors[queue].redrive(offset, self.now)
        assert (answer.status, answer.json) == (200, {"redriven": len(back), "remaining": len(letters_of(group))})

    def purge_dead(self, instance: int, data: st.DataObject) -> None:
        """It is rare."""
        place, is_meant = self.place(data), data.draw(st.integers(0, 3))
        answer = self.clients[instance].delete(f"{path_of(*place)}/dead") if is_meant == 3 else None
        if answer and not self.is_refused(answer, *place):
            assert answer.json == {"purged": sum(cursor.purge() for cursor in self.group(*place).cursors)}


def letters_of(group: Group) -> dict[Place, Letter]:
    """By queue and offset."""
    cursors = enumerate(group.cursors)
    return {(queue, offset): letter for queue, cursor in cursors for offset, letter in sorted(cursor.letters.items())}
