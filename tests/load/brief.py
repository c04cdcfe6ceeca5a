"""A topic that is deleted and made again while others use it, and whose group is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chalicelib.base.limits import METADATA_AGE_MS_MAX
from chalicelib.service import Service
from tests.history.aftermath import take_all
from tests.history.caller import Caller
from tests.history.facts import Delivered, Sent
from tests.load import journal
from tests.load.clock import now
from tests.load.journal import Journal

GROUP = "g"
FOLDER = "brief"
"""Of the journals of its callers."""

_LASTS_SECONDS = (1.0, 9.0)
_AWAY_SECONDS = (0.0, 2.0)
_KNOWN_MS = METADATA_AGE_MS_MAX + 1_000
"""For so long an instance may use what was deleted, and a request takes a while."""


def name_of(topic: str) -> str:
    """Of the brief topic beside this one."""
    return f"{topic}-brief"


@dataclass(slots=True)
class Lives:
    """`deleted`: when each deletion of the topic began, and when it was answered. `since_ms`: when the topic that
    stands was surely there."""

    deleted: list[tuple[int, int]] = field(default_factory=list)
    groups: int = 0
    since_ms: int = 0


@contextmanager
def living(service: Service, name: str, seed: int) -> Iterator[Lives]:
    """Deletes the topic or its group now and then, and makes it again."""
    random, lives, over = Random(f"{seed} brief"), Lives(), threading.Event()
    _make(service, name, lives)

    def live() -> None:
        while not over.wait(random.uniform(*_LASTS_SECONDS)):
            if random.random() < 0.5:
                _delete_group(service, name)
                lives.groups += 1
            else:
                began_ms = now()
                service.admin.topics.delete(service.env.catalogue.current_topic(name))
                lives.deleted.append((began_ms, now()))
                over.wait(random.uniform(*_AWAY_SECONDS))
            _make(service, name, lives)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def _make(service: Service, name: str, lives: Lives) -> None:
    topic, is_new = service.admin.topics.put(name, {"queues": 2})
    service.admin.groups.put(topic, GROUP, {"invisible_ms": 1_000})
    lives.since_ms = now() if is_new else lives.since_ms


def _delete_group(service: Service, name: str) -> None:
    service.admin.groups.delete(service.env.catalogue.current_topic(name), GROUP)


def violations(service: Service, name: str, lives: Lives, folder: Path) -> list[str]:
    """In the end the group is made once more, and gets all that the topic has."""
    _delete_group(service, name)
    _make(service, name, lives)
    history = journal.read(sorted(folder.glob("*.jsonl")))
    topic = service.env.catalogue.current_topic(name)
    with closing(Journal(folder / "drain.jsonl")) as record:
        take_all(Caller(service, topic, record, now), GROUP)
    drained = journal.read([folder / "drain.jsonl"]).delivered
    came = [*history.delivered, *drained]
    return [*out_of_place(history.sent, came, lives.deleted), *lost(history.sent, drained, lives.since_ms)]


def out_of_place(
    sent: Sequence[Sent], delivered: Sequence[Delivered], deleted: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """What comes from another topic, or from before a deletion."""
    sent_by = {each.body: each.at_ms for each in sent}
    for each in delivered:
        if each.body not in sent_by:
            yield f"the brief topic gave {each.body}, which was never sent to it"
        for began_ms, at_ms in deleted:
            if sent_by.get(each.body, began_ms) < began_ms and each.began_ms > at_ms + _KNOWN_MS:
                what = f"the brief topic gave {each.body} at {each.began_ms}, sent by {sent_by[each.body]}"
                yield f"{what}, though it was deleted from {began_ms} to {at_ms}"


def lost(sent: Sequence[Sent], drained: Sequence[Delivered], since_ms: int) -> Iterator[str]:
    """What the topic that stands since then surely took, and does not give in the end."""
    came = {each.body for each in drained}
    for each in sent:
        if each.place is not None and each.began_ms > since_ms + _KNOWN_MS and each.body not in came:
            yield f"the brief topic, which stands since {since_ms}, never gives {each.body}, sent at {each.began_ms}"
