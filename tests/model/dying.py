"""The steps of dead letters: buried, listed, redriven, purged."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.cursor import Letter
from tests.model.machine import Machine, instances, path_of, reasons
from tests.model.model import Group
from tests.support.client import Client

_DEATH = {"attempts", "reason", "dead_at_ms"}


class DyingMachine(Machine):
    @precondition(lambda self: self.model.tickets)
    @rule(instance=instances, reason=reasons, data=st.data())
    def bury(self, instance: int, reason: str, data: st.DataObject) -> None:
        topic, name = data.draw(self._places())
        receipts = data.draw(self._receipts(topic, name))
        answer = self.clients[instance].post(f"{path_of(topic, name)}/bury", receipts=receipts, reason=reason)
        if self._is_refused(answer, topic, name):
            return
        group = self.model.topics[topic].groups[name]
        held = self.model.held(group, receipts, self.now)
        for queue, offset in {(ticket.queue, ticket.offset) for ticket, _ in held.values()}:
            group.cursors[queue].bury(offset, self.now, self.now, reason)
        self._judge_worths(answer.json, "buried", receipts, self._moved(group, receipts, held))

    @rule(instance=instances, limit=st.sampled_from([1, 2, 100]), data=st.data())
    def list_the_dead(self, instance: int, limit: int, data: st.DataObject) -> None:
        place = data.draw(self._places())
        client, path = self.clients[instance], f"{path_of(*place)}/dead"
        answer = client.get(path, limit=limit)
        if self._is_refused(answer, *place):
            return
        listed = self.rest_of(instance, path, answer, "messages", limit)
        topic = self.model.topics[place[0]]
        letters = _letters(topic.groups[place[1]])
        assert [(each["queue"], each["offset"]) for each in listed] == list(letters)
        for message, ((queue, offset), letter) in zip(listed, letters.items(), strict=True):
            assert {name: value for name, value in message.items() if name not in _DEATH} == topic.logs[queue][offset]
            assert (message["attempts"], message["reason"]) == (letter.attempts, letter.reason), (message, letter)
            assert letter.from_ms <= message["dead_at_ms"] <= letter.to_ms

    @rule(instance=instances, are_all=st.booleans(), data=st.data())
    def redrive(self, instance: int, are_all: bool, data: st.DataObject) -> None:
        place = data.draw(self._places())
        client, path = self.clients[instance], f"{path_of(*place)}/dead/redrive"
        if are_all:
            self._redrive_all(client, path, place)
        else:
            self._redrive_some(client, path, place, data)

    def _redrive_all(self, client: Client, path: str, place: tuple[str, str]) -> None:
        answer = client.post(path)
        if self._is_refused(answer, *place):
            return
        group = self.model.topics[place[0]].groups[place[1]]
        letters = _letters(group)
        for queue, offset in letters:
            group.cursors[queue].redrive(offset, self.now)
        assert answer.json == {"redriven": len(letters), "remaining": 0}

    def _redrive_some(self, client: Client, path: str, place: tuple[str, str], data: st.DataObject) -> None:
        """All of these, or none."""
        topic = self.model.topics.get(place[0])
        group = topic.groups.get(place[1]) if topic else None
        if topic is None or group is None:
            assert self._is_refused(client.post(path, message_ids=["x"]), *place)
            return
        stored = {message["message_id"]: message for log in topic.logs for message in log}
        dead = [topic.logs[queue][offset]["message_id"] for queue, offset in _letters(group)]
        ids = data.draw(st.lists(st.sampled_from(9 * dead + [*stored, "x"]), min_size=1, max_size=3))
        answer = client.post(path, message_ids=ids)
        if not set(ids) <= set(dead):
            assert answer.problem == (404, "MessageNotFound")
            return
        for message in (stored[message_id] for message_id in set(ids)):
            group.cursors[message["queue"]].redrive(message["offset"], self.now)
        assert answer.json == {"redriven": len(set(ids)), "remaining": len(_letters(group))}

    @rule(instance=instances, is_meant=st.integers(0, 3), data=st.data())
    def purge_the_dead(self, instance: int, is_meant: int, data: st.DataObject) -> None:
        place = data.draw(self._places())
        if is_meant:  # it is rare
            return
        answer = self.clients[instance].delete(f"{path_of(*place)}/dead")
        if not self._is_refused(answer, *place):
            cursors = self.model.topics[place[0]].groups[place[1]].cursors
            assert answer.json == {"purged": sum(cursor.purge() for cursor in cursors)}


def _letters(group: Group) -> dict[tuple[int, int], Letter]:
    """By queue and offset."""
    cursors = enumerate(group.cursors)
    return {(queue, offset): letter for queue, cursor in cursors for offset, letter in sorted(cursor.letters.items())}
