"""Messages that a group has given up: delivered `max_attempts` times without an ack, or buried."""

from __future__ import annotations

from chalicelib.api.messages import Message
from chalicelib.api.operation import GROUP, Family, Json, Page, page_of
from chalicelib.core.base.errors import MessageNotFound
from chalicelib.core.base.fields import Answer, Sometimes, batch, integer, optional, request, string
from chalicelib.core.base.limits import ID_CHARS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.dead_letters.bury import DeadLetter, RedriveResult
from chalicelib.service import Service

DEAD_LETTERS = Family("Dead letters", __doc__)

_DEAD = GROUP + "/dead"


class DeadMessage(Message, DeadLetter):
    """A message that the group has given up, with exactly one of `body` and `body_base64`.

    body: The payload. Empty if the store has lost it; `reason` then says so."""

    body = Sometimes(string(examples=["order 4711 paid"]))


@request
class RedriveRequest:
    """The messages to redrive: all, unless `message_ids` is given.

    message_ids: The ids of dead letters."""

    message_ids: list[str] | None = optional(batch(string(ID_CHARS_MAX, examples=["5c0a7f3e91d2b8460111"])))


class PurgeResult(Answer):
    """The outcome of a purge.

    purged: How many dead letters were removed."""

    purged = integer(examples=[2])


@DEAD_LETTERS.operation("GET", _DEAD, "read", page_of("messages", DeadMessage), Page)
def list_dead(service: Service, topic: Topic, group_name: str, request: Page) -> Json:
    """List dead letters.

    The list is ordered by queue and offset. It leaves out messages that are no longer in the log. A broadcast group
    lists a message once for each consumer that gave it up; a redrive by its id brings it back to all of them."""
    page, rest = service.dead_letters.queue.page(topic, group_name, request.limit, request.next)
    messages = [{**message.stored.as_json(topic.name), **message.letter.as_json()} for message in page]
    return {"messages": messages, "next": rest}


@DEAD_LETTERS.operation("POST", _DEAD + "/redrive", "admin", RedriveResult, RedriveRequest, errors=(MessageNotFound,))
def redrive_dead(service: Service, topic: Topic, group_name: str, request: RedriveRequest) -> Json:
    """Bring dead letters back.

    This group, and no other, delivers them again, starting at `attempt` 1. `message_ids` names at most
    {BATCH_MESSAGES_MAX} messages; unless all of them are dead letters, the call does nothing. One call takes at most
    {DEAD_MS} ms and brings back no more messages than the queue has room for: call again until `remaining` is 0."""
    redrive, ids = service.dead_letters.redrive, request.message_ids
    result = redrive.all(topic, group_name) if ids is None else redrive.some(topic, group_name, ids)
    service.stored(topic)
    return result.as_json()


@DEAD_LETTERS.operation("DELETE", _DEAD, "admin", PurgeResult)
def purge_dead(service: Service, topic: Topic, group_name: str) -> Json:
    """Throw dead letters away.

    The messages stay in the log for other groups. One call takes at most {DEAD_MS} ms: call again until `purged` is
    0."""
    return {"purged": service.dead_letters.queue.purge(topic, group_name)}
