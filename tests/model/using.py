"""The steps of messages that are sent, taken, settled and given up, where they expire, end and wait."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.model.cursor import COUNTS, EITHER, INVALID, LOST
from tests.model.lasting_topic import DAY_MS, DEDUP_MS, MINUTE_MS, details, forgive
from tests.model.looking import KEYS, PATH, TOPIC, Looking
from tests.model.model import Group, Json, Waiting
from tests.model.popping import asked
from tests.model.taking import Taking

GROUPS: dict[str, bool | str] = {"billing": False, "shipping": True, "ledger": "key"}
"""By name, how they are ordered."""
HEARD_MS = 5_000
"""How long an instance may cache what it read about a topic."""
LARGE_CHARS = 1_600

VERBS = ("ack", "nack", "nack", "bury", "extend")

groups = st.sampled_from([*GROUPS])
invisible = st.sampled_from([1, 1_000, 1_000, 1_000, 20_000, 70_000, 12 * 60 * MINUTE_MS])
delays = st.sampled_from([0, 1, 1, 1_000, 1_000, 30_000, 60_000, 400_000, DAY_MS, 100 * DAY_MS])
pop_fields = st.fixed_dictionaries(
    {"max_messages": st.sampled_from([1, 2, 3, 10])},
    optional={"invisible_ms": invisible, "consumer_id": st.just("c1")},
)


def batches(queues: int) -> st.SearchStrategy[list[Json]]:
    """New messages for a topic with so many queues, a few for one that it does not have."""
    places = st.sampled_from([*3 * [*range(queues)], queues])
    new_message = st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(KEYS),
            "queue": places,
            "tag": st.sampled_from(["x", "x", "y"]),
            "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
            "ttl_ms": st.sampled_from([1, 1_000, 30_000, 60_000, 100_000, DAY_MS]),
        },
    )
    return st.lists(new_message, min_size=1, max_size=4)


class Using(Looking):
    def __init__(self) -> None:
        super().__init__()
        self.sent = self.steps = 0
        self.stale_until_ms = {0: 0, 1: 0}
        """Until when an instance may cache the topic as it was."""

    def _note_change(self, instance: int | None) -> None:
        """The topic was changed, by this instance or by both."""
        for other in (0, 1):
            if other != instance:
                self.stale_until_ms[other] = self.now + HEARD_MS

    def _informed(self, instance: int) -> int:
        """The instance, once it has heard of the last change: what it does within five seconds is not modelled."""
        if self.now <= self.stale_until_ms[instance]:
            assert self.clients[instance].get(PATH).json == self.topic.shown(self.now)
            self.stale_until_ms[instance] = 0
        return instance

    # -- messages -----------------------------------------------------------------------------------------------------

    def produce(self, instance: int, data: st.DataObject) -> None:
        self._produce(instance, data.draw(batches(self.topic.queues)))

    def produce_for_later(self, instance: int, data: st.DataObject) -> None:
        batch = data.draw(batches(self.topic.queues))
        self._produce(instance, [message | {"delay_ms": data.draw(delays)} for message in batch])

    def _produce(self, instance: int, batch: list[Json]) -> None:
        sent = [{**message, "body": self._body()} for message in batch]
        has_delayed = self.topic.has_delayed
        answer = self.clients[self._informed(instance)].post(f"{PATH}/messages", messages=sent)
        if any(message.get("queue", 0) >= self.topic.queues for message in batch):
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.status == 200
        for message, place in zip(sent, answer.json["messages"], strict=True):
            self._keep(message, place)
        if self.topic.has_delayed and not has_delayed:
            self._note_change(instance)

    def _body(self) -> str:
        """Another one each time. Every fourth does not fit a segment."""
        self.sent += 1
        text = f"body {self.sent}"
        if self.sent % 4:
            return text
        digits = (hashlib.sha256(f"{text}.{part}".encode()).hexdigest() for part in range(LARGE_CHARS // 64))
        return text + "".join(digits)

    def _keep(self, message: Json, place: Json) -> None:
        """Unless its dedup id was used within five minutes."""
        topic, delay_ms, ttl_ms = self.topic, message.pop("delay_ms", 0), message.pop("ttl_ms", None)
        dedup_id = message.pop("dedup_id", None)
        topic.has_delayed = topic.has_delayed or delay_ms > 0
        at_ms, first = topic.dedup.get(dedup_id, (self.now - DEDUP_MS, {}))
        if at_ms > self.now - DEDUP_MS:
            assert place == first
            return
        if dedup_id:
            topic.dedup[dedup_id] = self.now, place
        queue = place["queue"]
        if "queue" in message:
            assert queue == message["queue"]
        elif "key" in message:
            topic.place(message["key"], queue, self.now)
        else:
            assert queue < topic.writers(self.now)
        shown = {"key": None, "tag": None, "properties": {}, **message, "queue": queue, "topic": TOPIC}
        shown["message_id"] = place["message_id"]
        if delay_ms:
            due_ms = self.now + delay_ms
            assert place == {**place, "offset": None, "deliver_at_ms": due_ms}
            topic.waiting[place["message_id"]] = Waiting(shown, queue, due_ms, self.now)
            topic.ttls[place["message_id"]] = ttl_ms
        else:
            assert place == {**place, "offset": len(topic.logs[queue])}
            topic.store({**shown, **place, "stored_at_ms": self.now}, ttl_ms)

    def _learn(self) -> None:
        """What has waited comes into the log when somebody looks for it, which the log tells."""
        topic = self.topic
        if not topic.due(self.now):
            return
        for queue in self.observer.get(PATH).json["queue_offsets"]:
            known = len(topic.logs[queue["queue"]])
            if queue["end_offset"] > known:
                query = {"queue": queue["queue"], "offset": known, "limit": 1_000}
                for message in self.observer.get(f"{PATH}/messages", **query).json["messages"]:
                    self._meet(message)

    def _meet(self, message: Json) -> None:
        ttl_ms = self.topic.ttls[message["message_id"]]
        log = self.topic.logs[message["queue"]]
        self.topic.meet(message, self.now)
        log.remove(message)
        assert message["stored_at_ms"] == self.now
        self.topic.store(message, ttl_ms)

    # -- consuming ----------------------------------------------------------------------------------------------------

    def pop(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(groups)
        acks = data.draw(st.lists(self._receipts(name), max_size=2, unique=True))
        self._pop(instance, name, data.draw(pop_fields), acks)

    def drain(self, instance: int, data: st.DataObject) -> None:
        """Some groups take and ack all that they can get, perhaps after all leases are over."""
        if data.draw(st.booleans()):
            self.clock.sleep(max([0, *(limit - self.now for limit in self.topic.leases())]))
        self._drain(instance, data.draw(st.sampled_from([[*GROUPS], [*GROUPS], ["billing"], ["ledger"]])))

    def _drain(self, instance: int, names: list[str]) -> None:
        for name in names:
            acks: list[str] = self.model.newest(self.topic.groups[name])
            while taken := self._pop(instance, name, {"max_messages": 10}, acks[:250]):
                acks = [message["receipt"] for message in taken]

    def _pop(self, instance: int, name: str, fields: Json, acks: list[str]) -> list[Json]:
        self._give_up_what_is_gone(name)
        answer = self.clients[self._informed(instance)].post(f"{PATH}/groups/{name}/pop", **fields, ack=acks or None)
        assert answer.json.keys() == {"messages", "acked", "failed"}
        self._learn()
        group, messages = self.topic.groups[name], answer.json["messages"]
        worths = self.model.ack(group, acks, self.now)
        seen = self.observer.get(f"{PATH}/groups/{name}").json
        Taking(self.model, self.topic, group, asked(fields, group, self.now)).judge(messages, seen)
        self._judge_settled(answer.json, "acked", acks, self._worths_after(group, acks, worths))
        assert messages or not self.topic.due(self.now)
        self._compare(name, seen)
        return list(messages)

    def _worths_after(self, group: Group, acks: list[str], worths: list[str]) -> list[str]:
        """Where a pop has settled what had ended, late acks in the same call may count or not."""
        known = [(self.model.place(group, receipt), receipt) for receipt in acks]
        after = [place[1].worth(place[0], receipt, self.now) if place else INVALID for place, receipt in known]
        return [EITHER if LOST in (was, now) and was != now else was for was, now in zip(worths, after, strict=True)]

    def _give_up_what_is_gone(self, name: str) -> None:
        """What a group by key has of messages that may be removed, and of others of their keys, is not modelled."""
        cursors = self.topic.groups[name].cursors[: self.topic.readers]
        owed = [(queue, offset) for queue, cursor in enumerate(cursors) for offset in {*cursor.holds, *cursor.aside}]
        if GROUPS[name] == "key" and any(self.topic.may_be_gone(*place, self.now) for place in owed):
            assert self.observer.post(f"{PATH}/groups/{name}/reset", to="latest").status == 200
            for cursor, log in zip(cursors, self.topic.logs, strict=False):
                cursor.reset(len(log))

    def settle(self, instance: int, data: st.DataObject) -> None:
        name, verb = data.draw(self._groups_with_receipts()), data.draw(st.sampled_from(VERBS))
        ms = data.draw(st.sampled_from([None, 0, 0, 1_000, 60_000, 100_000]))
        receipts = data.draw(st.lists(self._receipts(name), min_size=1, max_size=3, unique=True))
        group, client = self.topic.groups[name], self.clients[instance]
        fields: dict[str, Json] = {"nack": {"delay_ms": ms}, "extend": {"invisible_ms": ms or 5_000}}
        more = fields.get(verb, {})
        answer = client.post(f"{PATH}/groups/{name}/{verb}", receipts=receipts, **more).json
        if verb == "ack":
            self._judge_settled(answer, "acked", receipts, self.model.ack(group, receipts, self.now))
            return
        held = self.model.held(group, receipts, self.now)
        places = {(ticket.queue, ticket.offset): receipt for receipt, (ticket, _) in held.items()}
        for queue, offset in places:
            cursor = group.cursors[queue]
            if verb == "nack":
                cursor.nack(offset, self.now, ms, group.settings["max_attempts"])
            elif verb == "bury":
                cursor.bury(offset, self.now, self.now, "")
        if verb == "extend":
            self._extend(group, answer, held, self.now + (ms or 5_000))
            answer = {"extended": len(answer["extended"]), "failed": answer["failed"]}
        lost = {receipt: LOST if self.model.place(group, receipt) else INVALID for receipt in receipts}
        worths = [COUNTS if receipt in held else lost[receipt] for receipt in receipts]
        counts = {"nack": "nacked", "bury": "buried", "extend": "extended"}
        self._judge_settled(answer, counts[verb], receipts, worths)

    def _extend(self, group: Group, answer: Json, held: Json, until_ms: int) -> None:
        assert {lease["receipt"] for lease in answer["extended"]} == held.keys()
        for lease in answer["extended"]:
            receipt, new = lease["receipt"], lease["new_receipt"]
            assert lease["invisible_until_ms"] == until_ms
            ticket, cursor = held[receipt]
            known = self.model.tickets.get(new)
            assert known is None or (cursor.settle_by != "receipt" and known.place == ticket.place)
            cursor.extend(ticket.offset, new if new != receipt else None, until_ms)
            self.model.tickets.setdefault(new, replace(ticket, until_ms=until_ms))

    def _judge_settled(self, answer: Json, count: str, receipts: list[str], worths: list[str]) -> None:
        failed = {failure["receipt"]: failure["code"] for failure in answer["failed"]}
        for receipt, worth in zip(receipts, worths, strict=True):
            answered = failed.get(receipt, COUNTS)
            assert answered in ((COUNTS, LOST) if worth == EITHER else (worth,)), (receipt, answered, worth)
        assert answer[count] == len(receipts) - len(answer["failed"])

    def _groups_with_receipts(self) -> st.SearchStrategy[str]:
        """Mostly such as have messages out."""
        holding = [name for name, group in self.topic.groups.items() if self.model.newest(group)]
        return st.sampled_from([*3 * holding, *GROUPS])

    def _receipts(self, name: str) -> st.SearchStrategy[str]:
        """Mostly such as are held."""
        held = self.model.newest(self.topic.groups[name])
        kinds = [*([st.sampled_from(held)] * 5 if held else []), st.just("x")]
        if self.model.tickets:
            kinds.append(st.sampled_from(list(self.model.tickets)))
        return st.one_of(kinds)

    # -- dead letters -------------------------------------------------------------------------------------------------

    def list_the_dead(self, instance: int, data: st.DataObject) -> None:
        """But for those whose messages may be removed."""
        name, limit = data.draw(groups), data.draw(st.sampled_from([1, 2, 100]))
        client, path = self.clients[instance], f"{PATH}/groups/{name}/dead"
        answer = client.get(path, limit=limit)
        listed = self.rest_of(instance, path, answer, "messages", limit, least=0)  # all of a page may be removed
        letters = letters_of(self.topic.groups[name])
        found = {(message["queue"], message["offset"]): message for message in listed}
        expected = [place for place in letters if place in found or not self.topic.may_be_gone(*place, self.now)]
        assert list(found) == expected
        for (queue, offset), message in found.items():
            letter = letters[queue, offset]
            death = {"attempts": letter.attempts, "reason": letter.reason, "dead_at_ms": letter.to_ms}
            assert message == {**self.topic.logs[queue][offset], **death}

    def use_the_dead(self, instance: int, data: st.DataObject) -> None:
        name, kind = data.draw(groups), data.draw(st.sampled_from(["all", "some", "some", "purge"]))
        client, path, group = self.clients[instance], f"{PATH}/groups/{name}/dead", self.topic.groups[name]
        letters = letters_of(group)
        if kind == "purge" and data.draw(st.booleans()):
            assert client.delete(path).json == {"purged": len(letters)}
            for cursor in group.cursors:
                cursor.purge()
        elif kind == "all":
            assert client.post(f"{path}/redrive").json == {"redriven": len(letters), "remaining": 0}
            for queue, offset in letters:
                group.cursors[queue].redrive(offset, self.now)
        elif letters:
            self._redrive_one(instance, name, *data.draw(st.sampled_from(list(letters))))

    def _redrive_one(self, instance: int, name: str, queue: int, offset: int) -> None:
        group, message = self.topic.groups[name], self.topic.logs[queue][offset]
        path = f"{PATH}/groups/{name}/dead/redrive"
        answer = self.clients[instance].post(path, message_ids=[message["message_id"]])
        if answer.status == 404 and self.topic.may_be_gone(queue, offset, self.now):
            assert answer.problem == (404, "MessageNotFound")
            return
        group.cursors[queue].redrive(offset, self.now)
        assert (answer.status, answer.json) == (200, {"redriven": 1, "remaining": len(letters_of(group))})

    # -- comparing ----------------------------------------------------------------------------------------------------

    def _compare(self, name: str, seen: Json) -> None:
        seen = forgive(self.topic, self.topic.groups[name], seen, self.now)
        known = details(self.topic, name, self.now)
        wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
        assert not wrong, f"answered and expected: {wrong}"
        assert seen.keys() == {*known, "created_at_ms"}


def letters_of(group: Group) -> dict[tuple[int, int], Any]:
    """By queue and offset."""
    cursors = enumerate(group.cursors)
    return {(queue, offset): letter for queue, cursor in cursors for offset, letter in sorted(cursor.letters.items())}
