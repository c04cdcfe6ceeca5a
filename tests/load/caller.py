"""A caller of the service that writes down what it asks for and what it hears."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chalicelib.errors import StoreUnavailable
from chalicelib.message import Message
from chalicelib.service.claimer import Pop
from chalicelib.service.consumer import Popped
from chalicelib.service.service import Service
from chalicelib.topic import Topic
from tests.load.journal import Journal
from tests.simulation.history import Delivered, Sent, Settled

PADDED = "|"
"""What follows it in a body is there for its size alone."""


def now() -> int:
    """ms; one clock for all processes of the machine."""
    return time.time_ns() // 1_000_000


def sleep(ms: int) -> None:
    time.sleep(ms / 1_000)


class Caller:
    def __init__(self, service: Service, topic: Topic, journal: Path) -> None:
        self._service = service
        self._topic = topic
        self._journal = Journal(journal)

    def close(self) -> None:
        self._journal.close()

    def send(self, bodies: Sequence[str], keys: Sequence[str | None], padding: str) -> None:
        facts = [Sent(body, key, now(), is_unknown=True) for body, key in zip(bodies, keys, strict=True)]
        self._journal.write(facts)
        messages = [
            (Message(f"{each.body}{PADDED}{padding}".encode(), True, each.key, None, {}), None) for each in facts
        ]
        try:
            results = self._service.producer.produce(self._topic, messages)
        except StoreUnavailable as trouble:
            for fact in facts:
                fact.is_unknown = trouble.outcome_unknown
        else:
            for fact, result in zip(facts, results, strict=True):
                fact.is_unknown = result.error is not None and result.error.outcome_unknown
                if result.offset is not None:
                    fact.place = (result.queue, result.offset)
        self._journal.write(facts)

    def pop(self, group: str, ask: Pop, riding: Sequence[Delivered] = ()) -> list[Delivered] | None:
        """None: the store did not answer, and messages may be leased all the same. `riding` are those whose receipts
        `ask` acks."""
        began = now()
        acks = [Settled("ack", group, each.place, each.receipt, began, began, "unknown") for each in riding]
        self._journal.write(acks)
        try:
            popped = self._service.consumer.pop(self._topic, group, ask)
        except StoreUnavailable:
            return None
        failed = {each.receipt: each.code for each in popped.failed}
        for ack in acks:
            ack.outcome, ack.at_ms = failed.get(ack.receipt, "ok"), now()
        got = _delivered(group, popped, began)
        self._journal.write([*acks, *got])
        return got

    def ack(self, messages: Sequence[Delivered]) -> None:
        facts = self._asked("ack", messages)
        try:
            failed = self._service.settler.ack(self._topic, messages[0].group, [each.receipt for each in messages])
        except StoreUnavailable:
            return
        self._answered(facts, {each.receipt: each.code for each in failed})

    def nack(self, messages: Sequence[Delivered], delay_ms: int) -> None:
        facts, group = self._asked("nack", messages), messages[0].group
        receipts = [each.receipt for each in messages]
        try:
            failed = self._service.settler.nack(self._topic, group, receipts, delay_ms, "because")
        except StoreUnavailable:
            return
        self._answered(facts, {each.receipt: each.code for each in failed})

    def extend(self, messages: Sequence[Delivered], invisible_ms: int) -> list[Delivered]:
        """Those that are extended, with the receipts under which they go on."""
        facts, group = self._asked("extend", messages), messages[0].group
        receipts = [each.receipt for each in messages]
        try:
            extended, failed = self._service.settler.extend(self._topic, group, receipts, invisible_ms)
        except StoreUnavailable:
            return []
        renewed = {each.receipt: each for each in extended}
        for fact in facts:
            if new := renewed.get(fact.receipt):
                fact.new_receipt, fact.until_ms = new.new_receipt, new.invisible_until_ms
        self._answered(facts, {each.receipt: each.code for each in failed})
        return [
            replace(each, receipt=renewed[each.receipt].new_receipt) for each in messages if each.receipt in renewed
        ]

    def _asked(self, verb: str, messages: Sequence[Delivered]) -> list[Settled]:
        began = now()
        facts = [Settled(verb, each.group, each.place, each.receipt, began, began, "unknown") for each in messages]
        self._journal.write(facts)
        return facts

    def _answered(self, facts: Sequence[Settled], codes: dict[str, str]) -> None:
        for fact in facts:
            fact.outcome, fact.at_ms = codes.get(fact.receipt, "ok"), now()
        self._journal.write(facts)


def _delivered(group: str, popped: Popped, began: int) -> list[Delivered]:
    """An answer may be so late that its leases have run out; the next ones may then be known already. What the checker
    has to know is that a lease was held by the end of it at the latest."""
    return [
        Delivered(
            group,
            (each.stored.queue, each.stored.offset),
            each.stored.message.body.decode().split(PADDED)[0],
            each.stored.message_id,
            each.attempt,
            began,
            min(now(), each.invisible_until_ms - 1),
            each.invisible_until_ms,
            each.receipt,
        )
        for each in popped.deliveries
    ]
