"""Checks every state of the table in the simulation: at any time, all work for a sweep has an appointment no later than
it is due. It runs when the history is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from chalicelib.core.catalogue import agenda
from chalicelib.core.catalogue.agenda import ALWAYS_MS, FORWARD, MOVE, REVIVE, Appointment
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.moves.task import RUNNING
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from chalicelib.core.upkeep.sweeps import Sweeps
from tests.simulation.faulty_store import PastStore

SHARED_MS = 400


class Waiting(NamedTuple):
    """Work that waits for a sweep, from one instant to another."""

    sweep: str
    subject: str
    due_ms: int
    since_ms: int
    until_ms: float


@contextmanager
def short_appointments(late_write_ms: int, skew_ms: int) -> Iterator[None]:
    """Shortens the times of appointments. Sweeps make no missing ones, which would hide that a caller forgot one."""
    settings: dict[str, Any] = {"SHARED_MS": SHARED_MS, "LATE_WRITE_MS_MAX": late_write_ms, "SKEW_MS_MAX": skew_ms}
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(agenda, **settings))
        stack.enter_context(patch.object(Sweeps, "appoint_missing", lambda *_: None))
        yield


def unappointed(store: PastStore) -> Iterator[str]:
    made: dict[tuple[str, str], list[tuple[int, int, float]]] = defaultdict(list)
    for key, since_ms, until_ms, item in store.lives("agenda#"):
        appointment = Appointment.of(item)
        made[key.pk.split("#")[1], appointment.subject].append((since_ms, appointment.due_ms, until_ms))
    for waiting in _waiting(store):
        kept_ms: float = waiting.since_ms
        for since_ms, due_ms, until_ms in sorted(made[waiting.sweep, waiting.subject]):
            if due_ms <= waiting.due_ms and since_ms <= kept_ms:
                kept_ms = max(kept_ms, until_ms)
        if kept_ms < waiting.until_ms:
            yield f"{waiting} had no appointment from {kept_ms} on"


def _waiting(store: PastStore) -> Iterator[Waiting]:
    topics = {item["id"]: (keys.topic_name(key.pk), until_ms) for key, _, until_ms, item in store.lives("topic#")}
    for key, since_ms, until_ms, _ in store.lives("delay#"):
        name, gone_ms = topics[_topic_of(key)]
        yield Waiting(FORWARD, name, keys.due_and_entry(key.sk)[0], since_ms, min(until_ms, gone_ms))
    queues = {item["id"]: key.sk for key, _, _, item in store.lives(keys.subscriptions())}
    for key, since_ms, until_ms, item in store.lives("moves#"):
        if item["state"] == RUNNING:
            yield Waiting(MOVE, queues[_topic_of(key)], ALWAYS_MS, since_ms, until_ms)
    groups = {key.pk: (item, until_ms) for key, _, until_ms, item in store.lives("group#") if key.sk == keys.SETTINGS}
    for key, since_ms, until_ms, item in store.lives("group#"):
        group, ended_ms = groups[keys.owners(key.pk)[1]]
        last = group["max_attempts"]
        if "leases" in item and any(listed[3] >= last for listed in item["leases"].values()):
            subject = keys.subject(topics[_topic_of(key)][0], key.pk.split("#")[2])
            for lease in Cursor.of(item).owing:
                if lease.attempt >= last:
                    yield Waiting(REVIVE, subject, lease.deadline, since_ms, min(until_ms, ended_ms))


def _topic_of(key: Key) -> str:
    return key.pk.split("#")[1]
