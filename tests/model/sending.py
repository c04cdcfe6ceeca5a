"""Messages as clients of SQS send them: what is stored, what is a repeat, and what is refused."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from chalicelib.core.base.limits import DEDUP_MS, METADATA_AGE_MS_MAX
from tests.model.model import Json
from tests.model.queueing import DEAD, ID_RULE, NOT_OF_QUEUE, SINGLE, TOPIC, Queueing, instances
from tests.model.sqs import (
    DELAY,
    NO_QUEUE,
    REDRIVE,
    URL,
    VISIBILITY,
    Pending,
    Queue,
    bad_value,
    bytes_of,
    md5,
    md5_of,
    place_in,
    policy_text,
    properties_of,
    refused,
    sequence_number,
)
from tests.sqs.client import Refused

NO_IDS = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"

started_with: dict[str, st.SearchStrategy[dict[str, str]]] = {
    "orders": st.fixed_dictionaries(
        {},
        optional={
            DELAY: st.sampled_from(["0", "2"]),
            "MaximumMessageSize": st.just("1024"),
            "ReceiveMessageWaitTimeSeconds": st.just("3"),
            "KmsMasterKeyId": st.just("alias/a"),
        },
    ),
    "line.fifo": st.fixed_dictionaries(
        {}, optional={DELAY: st.just("2"), "DeduplicationScope": st.sampled_from(["queue", "messageGroup"])}
    ),
}
given_attributes: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={"n": st.sampled_from(["7", "-1.5"]), "s": st.just("ü"), "b": st.just("AAE="), "decant.tag": st.just("x")},
).map(lambda given: {name: _attribute(name, text) for name, text in given.items()})


def _attribute(name: str, text: str) -> Json:
    type_ = {"n": "Number.float", "b": "Binary"}.get(name, "String")
    return {"DataType": type_, "BinaryValue" if name == "b" else "StringValue": text}


class Sending(Queueing):
    @initialize(queues=st.sampled_from(["1", "1", "2"]), most=st.sampled_from([1, 2, 3]), data=st.data())
    def begin(self, queues: str, most: int, data: st.DataObject) -> None:
        wait = data.draw(st.sampled_from(["30", "1", "0"]))
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        for name in ("last", "dead", "orders", "bills", "dead.fifo", "line.fifo"):
            given = {VISIBILITY: wait, **(fifo if name.endswith(".fifo") else {})}
            given |= data.draw(started_with.get(name, st.just({})))
            if name in ("orders", "bills", "line.fifo"):
                given[REDRIVE] = policy_text(DEAD[name][0], most)
            self.make(0, name, given, self._tags_of(name, queues))
        for name in ("orders", "line.fifo"):
            self.send(1, name, [self._message(name, data) for _ in range(3)], data)

    def _tags_of(self, name: str, queues: str) -> dict[str, str]:
        if name == "bills":
            return {TOPIC: "orders", "decant:start": "earliest"}
        return {} if name.endswith(".fifo") else {"decant:queues": "1" if name in SINGLE else queues}

    # -- sent ---------------------------------------------------------------------------------------------------------

    @rule(instance=instances, count=st.sampled_from([1, 1, 2, 3, 5]), data=st.data())
    def send_some(self, instance: int, count: int, data: st.DataObject) -> None:
        name = self.name(data, "orders", "line.fifo")
        self.send(instance, name, [self._message(name, data) for _ in range(count)], data)

    def _message(self, name: str, data: st.DataObject) -> Json:
        """The members of a message; sometimes it repeats another, or is one that no queue takes."""
        self.sent += 1
        given: Json = {"MessageBody": f"body {self.sent}"}
        attributes = data.draw(st.one_of(st.just({}), given_attributes))
        if attributes:
            given["MessageAttributes"] = attributes
        if data.draw(st.integers(0, 5)) == 0:
            trace = {"DataType": "String", "StringValue": "Root=1"}
            given["MessageSystemAttributes"] = {"AWSTraceHeader": trace}
        if name.endswith(".fifo"):
            given |= data.draw(self._fifo_members())
            given["MessageBody"] = given.pop("body", given["MessageBody"])
        else:
            given |= data.draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        DELAY: st.sampled_from([0, 1, 2, 2, 3, 900]),
                        "MessageGroupId": st.sampled_from(["g", "h"]),
                    },
                )
            )
        return self._spoilt(given, data) if data.draw(st.integers(0, 9)) == 0 else given

    def _fifo_members(self) -> st.SearchStrategy[Json]:
        group = st.sampled_from(["a", "a", "a", "b", "b", "c"])
        again = {"MessageDeduplicationId": st.sampled_from(["d1", "d2", "d3"]), "body": st.sampled_from(["x", "y"])}
        return st.fixed_dictionaries({"MessageGroupId": group}, optional=again)

    def _spoilt(self, given: Json, data: st.DataObject) -> Json:
        wrong: list[Json] = [
            {"MessageBody": ""},
            {"MessageBody": "\ufffe"},
            {DELAY: 901},
            {DELAY: -1},
            {"MessageGroupId": " "},
            {"MessageDeduplicationId": "ü"},
            {"MessageBody": 1_024 * "x", "MessageAttributes": {}},
            {"MessageBody": 1_025 * "x", "MessageAttributes": {}},
            {"MessageBody": 1_017 * "x", "MessageAttributes": {"s": _attribute("s", "y")}},
            {"MessageBody": 1_016 * "x", "MessageAttributes": {"s": _attribute("s", "y")}},
            {"MessageBody": 1_017 * "x", "MessageAttributes": {"s": _attribute("s", "y")}},
            {"MessageAttributes": {"s": {"DataType": "Text", "StringValue": "x"}}},
            {"MessageAttributes": {"n": {"DataType": "Number", "StringValue": "x"}}},
            {"MessageSystemAttributes": {"x": {"DataType": "String", "StringValue": "x"}}},
        ]
        return {**given, **data.draw(st.sampled_from(wrong))}

    def send(self, instance: int, name: str, messages: list[Json], data: st.DataObject) -> None:
        instance = self.about(instance, name)
        if len(messages) > 1:
            entries = [{"Id": f"m-{number}", **message} for number, message in enumerate(messages)]
            answer = self.ask(instance, "SendMessageBatch", QueueUrl=URL + name, Entries=entries)
        else:
            answer = self.ask(instance, "SendMessage", QueueUrl=URL + name, **messages[0])
        queue = self.world.queues.get(name)
        if queue is None or not queue.owns_topic:
            text = "queue 'bills' reads topic 'orders': send to 'orders'"
            assert answer == (refused("UnsupportedOperation", text) if queue else NO_QUEUE)
        elif len(messages) == 1:
            wrong = self._wrong_ids(queue, messages[0], False) or self._wrong(queue, messages[0], False)
            assert answer == (wrong or answer)
            assert isinstance(answer, Refused) == (wrong is not None), answer
            if isinstance(answer, dict):
                self._judge_sent(queue, messages[0], answer)
        else:
            self._judge_batch(queue, messages, answer)
        since_ms = queue.topic.delayed_since_ms if queue else None
        if since_ms is not None and self.now - since_ms <= METADATA_AGE_MS_MAX:
            self.outdated(name, 1 - instance)  # it need not know yet that messages wait here
        self._learn(queue)

    def _judge_batch(self, queue: Queue, messages: list[Json], answer: Json | Refused) -> None:
        for message in messages if queue.is_fifo else []:
            if wrong := self._wrong_ids(queue, message, True):
                assert answer == wrong
                return
        assert isinstance(answer, dict)
        sent = {each.pop("Id"): each for each in answer.get("Successful", [])}
        failed = {each.pop("Id"): each for each in answer.get("Failed", [])}
        for number, message in enumerate(messages):
            wrong = self._wrong(queue, message, True)
            if wrong:
                about = {"SenderFault": True, "Code": wrong.code, "Message": wrong.message}
                assert failed.pop(f"m-{number}") == about
            else:
                self._judge_sent(queue, message, sent.pop(f"m-{number}"))
        assert (sent, failed) == ({}, {})

    def _wrong_ids(self, queue: Queue, given: Json, is_entry: bool) -> Refused | None:
        """Why the ids of a message are refused, in a FIFO queue."""
        if not queue.is_fifo:
            return None
        if not is_entry and (wrong := self._wrong_content(given)):
            return wrong
        if given["MessageGroupId"] == " ":
            return bad_value(" ", "MessageGroupId", f"MessageGroupId {ID_RULE}")
        if given.get("MessageDeduplicationId") == "ü":
            return bad_value("ü", "MessageDeduplicationId", f"MessageDeduplicationId {ID_RULE}")
        has_id = "MessageDeduplicationId" in given or queue.settable()["ContentBasedDeduplication"] == "true"
        is_small = is_entry or self._size(queue, given, False) is None
        is_late = is_entry or not given.get(DELAY)
        return None if has_id or not is_small or not is_late else refused("InvalidParameterValue", NO_IDS)

    def _wrong(self, queue: Queue, given: Json, is_entry: bool) -> Refused | None:
        wrong = self._wrong_content(given) or self._size(queue, given, is_entry)
        if wrong:
            return wrong
        delay = given.get(DELAY, 0)
        if queue.is_fifo:
            return bad_value(delay, DELAY, NOT_OF_QUEUE) if delay else self._wrong_system(given)
        if not 0 <= delay <= 900:
            return bad_value(delay, DELAY, "DelaySeconds must be >= 0 and <= 900.")
        if given.get("MessageGroupId") == " ":
            return bad_value(" ", "MessageGroupId", f"MessageGroupId {ID_RULE}")
        if "MessageDeduplicationId" in given:
            return bad_value(given["MessageDeduplicationId"], "MessageDeduplicationId", NOT_OF_QUEUE)
        return self._wrong_system(given)

    def _wrong_content(self, given: Json) -> Refused | None:
        body, attributes = given["MessageBody"], given.get("MessageAttributes", {})
        if body == "":
            return refused("MissingParameter", "The request must contain the parameter MessageBody.")
        if body == "\ufffe":
            return refused("InvalidMessageContents", "The message contains characters outside the allowed set.")
        if attributes.get("s", {}).get("DataType") == "Text":
            known = "the set of supported type prefixes is Binary, Number, and String."
            about = f"The message attribute 's' has an invalid message attribute type, {known}"
            return refused("InvalidParameterValue", about)
        if attributes.get("n", {}).get("StringValue") == "x":
            about = "Can't cast the value of message (user) attribute 'n' to a number."
            return refused("InvalidParameterValue", about)
        return None

    def _wrong_system(self, given: Json) -> Refused | None:
        if "x" in given.get("MessageSystemAttributes", {}):
            return refused("InvalidParameterValue", "Message system attribute name 'x' is invalid.")
        return None

    def _size(self, queue: Queue, given: Json, is_entry: bool) -> Refused | None:
        most = queue.number("MaximumMessageSize")
        if bytes_of(given["MessageBody"], given.get("MessageAttributes", {})) <= most:
            return None
        what = "cannot be validated" if is_entry else "are invalid"
        reason = f"Message must be shorter than {most} bytes."
        return refused("InvalidParameterValue", f"One or more parameters {what}. Reason: {reason}")

    def _judge_sent(self, queue: Queue, given: Json, answer: Json) -> None:
        attributes, system = given.get("MessageAttributes", {}), given.get("MessageSystemAttributes", {})
        digests = {"MD5OfMessageBody": md5(given["MessageBody"].encode())}
        digests |= {"MD5OfMessageAttributes": md5_of(attributes)} if attributes else {}
        digests |= {"MD5OfMessageSystemAttributes": md5_of(system)} if system else {}
        topic, id_, number = queue.topic, answer["MessageId"], answer.get("SequenceNumber")
        assert answer == {**digests, "MessageId": id_, **({"SequenceNumber": number} if queue.is_fifo else {})}
        if queue.is_fifo:
            name = self._dedup_name(queue, given)
            at_ms, *first = topic.dedup.get(name, (self.now - DEDUP_MS, id_, number))
            if at_ms > self.now - DEDUP_MS:
                assert [id_, number] == first
                return
            topic.dedup[name] = self.now, id_, str(number)
        self._note_sent(queue, given, id_, number)

    def _note_sent(self, queue: Queue, given: Json, id_: str, number: str | None) -> None:
        topic, attributes = queue.topic, given.get("MessageAttributes", {})
        seconds = 0 if queue.is_fifo else given.get(DELAY, queue.number(DELAY))
        has_waited, decant_queue, place = place_in(id_)
        due_ms = self.now + seconds * 1_000 if seconds else None
        assert has_waited == (due_ms is not None)
        assert not has_waited or place == due_ms
        assert number is None or number == sequence_number(decant_queue, place)
        if has_waited:
            topic.let_wait(self.now)
        key = given["MessageGroupId"] if queue.is_fifo else None
        tag = attributes.get("decant.tag", {}).get("StringValue")
        shown = {"body": given["MessageBody"], "key": key, "tag": tag, "properties": self._properties(queue, given)}
        topic.pending.append(Pending(shown, id_, due_ms, self.now, decant_queue))

    def _properties(self, queue: Queue, given: Json) -> dict[str, str]:
        own = properties_of(given.get("MessageAttributes", {}))
        if queue.is_fifo:
            own["sqs:dedup"] = self._dedup_name(queue, given)[-1]
        elif "MessageGroupId" in given:
            own["sqs:group"] = given["MessageGroupId"]
        if "MessageSystemAttributes" in given:
            own["sqs:trace"] = "Root=1"
        return own

    def _dedup_name(self, queue: Queue, given: Json) -> tuple[Any, ...]:
        """What counts for whether a message is a repeat."""
        by_content = hashlib.sha256(given["MessageBody"].encode()).hexdigest()
        is_by_group = queue.settable()["DeduplicationScope"] == "messageGroup"
        scope = given["MessageGroupId"] if is_by_group else None
        return queue.id, queue.purges, scope, given.get("MessageDeduplicationId", by_content)
