"""A journal keeps facts that change, also of a process that died while it wrote."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.history.facts import Delivered, Sent, Settled
from tests.load import journal
from tests.load.journal import Journal


def test_facts_are_read_as_they_last_were_and_in_the_order_they_began(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    sent = [Sent("a", None, 1, is_unknown=True), Sent("b", "k", 2, is_unknown=True)]
    delivered = Delivered("g", (1, 7), "a", "id", 1, 3, 4, 99, "receipt")
    settled = Settled("ack", "g", (1, 7), "receipt", 5, 5, "unknown")
    with closing(Journal(path)) as writer:
        writer.begin(sent)
        writer.begin([delivered, settled])
        settled.outcome = "ok"
        writer.begin([settled])
        sent[0].place, sent[0].is_unknown = (1, 7), False
        writer.begin(sent[:1])
    found = journal.read([path])
    assert (found.sent, found.delivered, found.settled) == (sent, [delivered], [settled])


def test_a_line_that_was_cut_off_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    fact = Sent("a", None, 1, is_unknown=True)
    with closing(Journal(path)) as writer:
        writer.begin([fact])
        fact.is_unknown = False
        writer.begin([fact])
    assert not journal.read([path]).sent[0].is_unknown
    path.write_bytes(path.read_bytes()[:-3])
    assert journal.read([path]).sent[0].is_unknown
