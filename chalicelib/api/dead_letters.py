"""Messages that a group has given up: delivered `max_attempts` times without an ack, or buried."""

from __future__ import annotations

from chalicelib.api.messages import Message
from chalicelib.api.operation import GROUP, Family, Json, Page, page_of
from chalicelib.core.base.errors import MessageNotFound
from chalicelib.core.base.fields import Answer, Sometimes, optional, request
from chalicelib.core.base.limits import ID_CHARS_MAX
from chalicelib.core.base.schema import batch, integer, string
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.dead_letters.dead_letter import DeadLetter, RedriveResult
from chalicelib.service import Service

DEAD_LETTERS = Family("Dead letters", __doc__)

_DEAD = GROUP + "/dead"


class DeadMessage(Message, DeadLetter):
    """A message that the group has given up, with exactly one of `body` and `body_base64`.

    body: The payload; empty when the store has lost it, as `reason` then says."""

    body = Sometimes(string(examples=["order 4711 paid"]))


@request
class RedriveRequest:
    """The messages to redrive. Without `message_ids`: all.

    message_ids: Messages in the dead letters."""

    message_ids: list[str] | None = optional(batch(string(ID_CHARS_MAX, examples=["5c0a7f3e91d2b8460111"])))


class PurgeResult(Answer):
    """The outcome of a purge.

    purged: How many dead letters were removed."""

    purged = integer(examples=[2])


@DEAD_LETTERS.operation("GET", _DEAD, "read", page_of("messages", DeadMessage), Page)
def list_dead(service: Service, topic: Topic, group_name: str, request: Page) -> Json:
    """List dead letters.

    They come by queue and offset. A message that is no longer in the log is left out. A broadcast group lists a message
    once for each consumer that gave it up; a redrive with its id brings it back to all of them."""
    page, rest = service.dead_letters.queue.page(topic, group_name, request.limit, request.next)
    messages = [{**message.stored.as_json(topic.name), **message.letter.as_json()} for message in page]
    return {"messages": messages, "next": rest}


@DEAD_LETTERS.operation("POST", _DEAD + "/redrive", "admin", RedriveResult, RedriveRequest, errors=(MessageNotFound,))
def redrive_dead(service: Service, topic: Topic, group_name: str, request: RedriveRequest) -> Json:
    """Bring dead letters back.

    They are delivered to this group again, and to no other, from `attempt` 1 on. With `message_ids`, at most
    {BATCH_MESSAGES_MAX}, nothing is done unless all of them are in the dead letters. One call takes {DEAD_MS} ms at
    most, and brings back no more than a queue has room for: call again while `remaining` is not 0."""
    redrive, ids = service.dead_letters.redrive, request.message_ids
    result = redrive.all(topic, group_name) if ids is None else redrive.some(topic, group_name, ids)
    service.stored(topic)
    return result.as_json()


@DEAD_LETTERS.operation("DELETE", _DEAD, "admin", PurgeResult)
def purge_dead(service: Service, topic: Topic, group_name: str) -> Json:
    """Throw dead letters away.

    The messages stay in the log for other groups. One call takes {DEAD_MS} ms at most: call again until nothing is
    purged."""
    return {"purged": service.dead_letters.queue.purge(topic, group_name)}
