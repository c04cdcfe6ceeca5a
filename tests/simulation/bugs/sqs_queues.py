"""Bugs planted into the queues of SQS clients."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from chalicelib.core.catalogue.group import EARLIEST
from chalicelib.doors.sqs.registry import SqsQueues
from tests.history import sqs_queues
from tests.simulation.bugs.lies import Plant, about, calling, forgetting, kept_apart, unguarded, within
from tests.simulation.bugs.registry import shown_by
from tests.simulation.faulty_store import NONE
from tests.simulation.plans import OWNED

_PROMPT = replace(OWNED, faults=replace(NONE, stale=0.2, latency_ms_max=20))


def _records(write: Any) -> bool:
    return within("sqs-queues")(write)


@shown_by(sqs_queues.a_queue_is_there_whole_or_not_at_all, OWNED)
def records_that_come_and_go_apart() -> Plant:
    """A record is written later than its group and its topic."""
    return kept_apart(_records, lambda writes: sorted(writes, key=_records))


@shown_by(
    sqs_queues.a_queue_that_was_emptied_gives_nothing_from_before,
    _PROMPT,
)
def queues_made_again_that_begin_at_the_beginning() -> Plant:
    """A queue whose topic others have kept gets messages of the earlier queue of its name."""
    return calling(SqsQueues, "make", lambda true, self, wanted: true(self, replace(wanted, start=EARLIEST)))


@shown_by(sqs_queues.what_a_standing_queue_took_is_not_lost, OWNED)
def sends_that_are_only_answered() -> Plant:
    """One in six."""
    turns = count(1)
    return forgetting(lambda write: within("log")(write) and next(turns) % 6 == 0)


@shown_by(sqs_queues.a_tag_is_of_the_queue_that_got_it, OWNED)
def changes_that_overwrite_others() -> Plant:
    """A change of a queue ignores other changes since its read."""
    return unguarded(_records, about("version"))
