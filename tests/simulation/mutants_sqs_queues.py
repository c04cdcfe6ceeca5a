"""Bugs planted into the queues of SQS clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue import topic
from chalicelib.core.catalogue.group import EARLIEST
from chalicelib.core.table.writes import Equals, Write
from chalicelib.doors.sqs import queue as sqs_queue
from chalicelib.doors.sqs import registry as sqs_queues
from chalicelib.doors.sqs import sending
from chalicelib.doors.sqs.registry import SqsQueues
from tests.simulation.mutants import planted, replaced


@planted
def records_that_come_and_go_apart() -> Any:
    """The record is written when its group and its topic are."""

    def write_apart(self: Any, writes: Any) -> None:
        self._store.write_together(writes[1:])
        self._store.write_together(writes[:1])

    return patch.object(SqsQueues, "_write_together", write_apart)


@planted
def topics_that_the_last_two_queues_leave() -> Any:
    """Of two queues that are deleted at once, neither sees that it is the last."""
    true = SqsQueues._removal

    def removal(self: Any, standing: Any, with_topic: bool) -> Any:
        return [write for write in true(self, standing, with_topic) if with_topic or write.key != standing.topic.key]

    return patch.object(SqsQueues, "_removal", removal)


@planted
def topics_that_go_with_others_groups() -> Any:
    """A queue takes its topic along although another group has come meanwhile."""

    def remove(gone: Any) -> list[Write]:
        removal, *rest = topic.remove(gone)
        return [_without(removal, "version"), *rest]

    return replaced(sqs_queues, "topics", remove=remove)


@planted
def changes_that_overwrite_others() -> Any:
    """A change of a queue does not ask whether there was another since it was read."""

    def change(*args: Any) -> Write:
        return _without(sqs_queue.change(*args), "version")

    return replaced(sqs_queues, "sqs_queue", change=change)


@planted
def records_removed_by_their_name() -> Any:
    """Who meets the record of a queue that is gone removes that of the queue made again."""
    return replaced(sqs_queues, "sqs_queue", remove=lambda queue: _without(sqs_queue.remove(queue), "id"))


@planted
def queues_made_again_that_begin_at_the_beginning() -> Any:
    """A queue whose topic others have kept gets what was sent to the one that had its name."""
    true = SqsQueues._new_group
    return patch.object(SqsQueues, "_new_group", lambda self, of, new: true(self, of, replace(new, start=EARLIEST)))


@planted
def queues_made_again_that_get_what_waited() -> Any:
    """The same of what was delayed."""
    return patch.object(SqsQueues, "_past_what_waits", lambda _: None)


@planted
def queues_made_again_that_know_old_ids() -> Any:
    """What is sent under an id that the queue of this name had before is taken for a repeat."""
    true = sending._dedup_id

    def dedup_id(call: Any, given: Any) -> str:
        standing = replace(call.standing, queue=replace(call.queue, id=""))
        return true(replace(call, found=standing), given)

    return patch.object(sending, "_dedup_id", dedup_id)


def _without(write: Write, attribute: str) -> Write:
    """The write without its guard of the value of this attribute."""
    kept = (each for each in write.guards if not (isinstance(each, Equals) and each.path == (attribute,)))
    return replace(write, guards=tuple(kept))
