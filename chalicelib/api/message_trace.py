"""The state of a message in each group and, in a topic with `trace`, the calls that led there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.messages import MESSAGES_PATH
from chalicelib.api.operation import GROUP_NAME, MESSAGE_ID, TOPIC_NAME, Family, Json
from chalicelib.core.base.fields import Answer, Sometimes, array, flag, instant, integer, nullable, string
from chalicelib.core.base.message import OFFSET, QUEUE
from chalicelib.core.catalogue.topic import Topic
from chalicelib.service import Service

if TYPE_CHECKING:
    from chalicelib.core.reading.trace import MessageState

TRACES = Family("Traces", __doc__)

# -- types ------------------------------------------------------------------------------------------------------------


class TraceEvent(Answer):
    """An event of the message in a group. An expired lease is no event; the next pop has a higher `attempt`.

    event: The effect of a call. `dead`: the message became a dead letter.
    at_ms: When it happened.
    attempt: The number of the delivery. 0: the message was redriven or moved back, and not delivered since.
    consumer_id: The `consumer_id` of the pop. Absent if it gave none.
    invisible_until_ms: The end of the lease that a pop or an extend set. Absent otherwise.
    reason: Why the message was nacked or buried, or is dead. Absent if no reason was given.
    caller: The caller: the id of a token or of an access key, or an IAM principal. Absent without access control, and
        for a push."""

    event = string(enum=["popped", "acked", "nacked", "extended", "buried", "dead"])
    at_ms = instant()
    attempt = integer(examples=[1])
    consumer_id = Sometimes(string(examples=["worker-1"]))
    invisible_until_ms = Sometimes(instant())
    reason = Sometimes(string(minLength=0, examples=["no stock"]))
    caller = Sometimes(string(examples=["QJ7ZK3XW5B2NDM4T"]))


class GroupTrace(Answer):
    """The state of a message in a group.

    consumer_id: In a broadcast group, the consumer. Null otherwise.
    state: `ready`: a pop can take it, if the group's filter matches. `in_flight`: it is leased. `retrying`: it waits
        after a nack. `dead`: it is a dead letter. `settled`: it was acked or skipped: it had expired, did not match the
        filter, or lies before the position where the group started or was reset to.
    attempts: How often it was delivered, if it is leased, retrying or dead. Null otherwise.
    until_ms: When the lease or the wait for the retry ends. Null otherwise.
    events: The events, earliest first. Empty in a topic without `trace`."""

    group = GROUP_NAME
    consumer_id = nullable(string(examples=["worker-1"]))
    state = string(enum=["ready", "in_flight", "retrying", "settled", "dead"])
    attempts = nullable(integer(examples=[1]))
    until_ms = nullable(instant())
    events = array(TraceEvent)


class MessageTrace(Answer):
    """The state of a message in each group, and its events.

    stored_at_ms: When the message was stored.
    traced: The topic has `trace` set.
    complete: False: some groups are left out, or the latest events, since there are too many around this message.
    groups: One entry for each group, by name; for each consumer in a broadcast group."""

    message_id = MESSAGE_ID
    topic = TOPIC_NAME
    queue = QUEUE
    offset = OFFSET
    stored_at_ms = instant()
    traced = flag()
    complete = flag()
    groups = array(GroupTrace)


# -- operations -------------------------------------------------------------------------------------------------------


@TRACES.operation("GET", MESSAGES_PATH + "/{message_id}/trace", "read", MessageTrace)
def get_trace(service: Service, topic: Topic, message_id: str) -> Json:
    """Trace a message.

    Shows its state in each of the first {GROUP_DETAILS_MAX} groups by name. In a topic with `trace`, it also lists the
    events that led there. A call records its events right after its effect, so those of a crashed call may be
    missing."""
    trace = service.reading.traces.of(topic, message_id)
    stored = trace.stored
    place = {"message_id": stored.message_id, "topic": topic.name, "queue": stored.queue, "offset": stored.offset}
    groups = [_in_group(found) for found in trace.states]
    about = {"traced": topic.trace, "complete": trace.is_complete}
    return {**place, "stored_at_ms": stored.stored_at_ms, **about, "groups": groups}


def _in_group(found: MessageState) -> Json:
    lease, letter = found.lease, found.letter
    events = [
        {
            "event": event.name,
            "at_ms": event.at_ms,
            "attempt": event.attempt,
            **({"consumer_id": event.by} if event.by else {}),
            **({"invisible_until_ms": event.until_ms} if event.until_ms else {}),
            **({"reason": event.reason} if event.reason else {}),
            **({"caller": event.caller} if event.caller else {}),
        }
        for event in found.events
    ]
    if letter:
        reason = {"reason": letter.reason} if letter.reason else {}
        events.append({"event": "dead", "at_ms": letter.dead_at_ms, "attempt": letter.attempts, **reason})
    consumer = found.cursor.last_consumer_id if found.group.is_broadcast else None
    attempts = letter.attempts if letter else lease.attempt if lease else None
    until_ms = lease.deadline if lease and found.state in ("in_flight", "retrying") else None
    whose = {"group": found.group.name, "consumer_id": consumer}
    return {**whose, "state": found.state, "attempts": attempts, "until_ms": until_ms, "events": events}
