"""Topics, and the groups that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from chalicelib.api.operation import DELETED, GROUP, GROUP_NAME, TOPIC, TOPIC_NAME, Family, Json, Page, page_of
from chalicelib.core.access.callers import may_read
from chalicelib.core.base.errors import InvalidFilter, QueuesDraining
from chalicelib.core.base.fields import (
    Answer,
    Label,
    Sometimes,
    array,
    check,
    either,
    flag,
    instant,
    integer,
    nullable,
    one_of,
    optional,
    request,
    required,
    string,
)
from chalicelib.core.base.limits import QUEUES_MAX
from chalicelib.core.base.message import OFFSET, QUEUE
from chalicelib.core.catalogue.group import EARLIEST, LATEST, NOW, GroupSettings
from chalicelib.core.catalogue.group_forms import CLEARED, RAISED
from chalicelib.core.catalogue.topic import Topic as StoredTopic
from chalicelib.core.catalogue.topic import TopicSettings
from chalicelib.core.cursors.progress import QueueOffsets, QueueProgress
from chalicelib.core.producing.new_message import parse_queue, unchecked
from chalicelib.service import Service

if TYPE_CHECKING:
    from chalicelib.core.admin.groups import GroupDetails, OneQueue


# -- topics -----------------------------------------------------------------------------------------------------------

TOPICS = Family(
    "Topics", "A topic is a set of queues. Producing to an unknown topic fails; it does not create the topic."
)


class Topic(Answer, TopicSettings):
    """A topic.

    queues: How many queues (partitions) the topic has.
    queues_auto: True: the topic gets more queues automatically. Absent otherwise.
    draining: Queues that the topic no longer writes to, since `queues` was lowered, but reads until every group has
        settled them. Absent if there are none.
    created_at_ms: When the topic was created."""

    topic = TOPIC_NAME
    queues = integer(1, QUEUES_MAX)
    queues_auto = Sometimes(flag())
    draining = Sometimes(array(QUEUE))
    created_at_ms = instant()


class TopicDetail(Topic):
    """A topic, its groups, and the offsets of its queues.

    groups: The names of its groups.
    queue_offsets: One entry for each queue, including those that drain."""

    groups = array(GROUP_NAME)
    queue_offsets = array(QueueOffsets)


@TOPICS.operation("GET", "/topics", "read", page_of("topics", Topic), Page, is_filtered=True)
def list_topics(service: Service, request: Page) -> Json:
    """List the topics.

    Paging never repeats or skips a topic, even while topics are created. The list leaves out topics that the caller may
    not read."""
    topics, rest = service.admin.topics.page(request.limit, request.next, may_read)
    return {"topics": [topic.as_json() for topic in topics], "next": rest}


@TOPICS.operation("PUT", TOPIC, "admin", {200: Topic, 201: Topic}, TopicSettings, errors=(QueuesDraining,))
def put_topic(service: Service, topic_name: str, settings: Json) -> tuple[int, Json]:
    """Create or change a topic.

    Changes only the settings that are given. If `queues` rises, consumers read the new queues at once and producers
    write to them {HEARD_MS} ms later. If it falls, producers stop writing to the surplus queues, and consumers read
    those until every group has settled them; until then, `queues` cannot rise again."""
    topic, is_new = service.admin.topics.put(topic_name, settings)
    return 201 if is_new else 200, topic.as_json()


@TOPICS.operation("GET", TOPIC, "read", TopicDetail)
def get_topic(service: Service, topic: StoredTopic) -> Json:
    """Get a topic.

    Returns the topic, the names of its groups, and the first and the end offset of each queue."""
    groups = service.env.catalogue.names_of_groups(topic)
    offsets = [queue.as_json() for queue in service.admin.topics.offsets(topic)]
    return {**topic.as_json(), "groups": groups, "queue_offsets": offsets}


@TOPICS.operation("DELETE", TOPIC, "admin", DELETED)
def delete_topic(service: Service, topic: StoredTopic) -> None:
    """Delete a topic.

    Also deletes its messages and groups. A topic created again under the same name starts empty at offset 0. Old
    receipts have no effect on it."""
    service.admin.topics.delete(topic)


# -- groups -----------------------------------------------------------------------------------------------------------

GROUPS = Family("Groups", "A group reads every message of its topic, at its own pace; it does not affect other groups.")

# -- types ------------------------------------------------------------------------------------------------------------


class Group(Answer, GroupSettings):
    """A group, its settings and its progress over all queues.

    alarm_state: The state of the alarm at the last check. Null: the group has no alarm.
    created_at_ms: When the group was created.
    purged_at_ms: When the group was reset to `now`: it does not receive delayed or held messages that were sent by
        then. Null: no reset to `now`, or another reset has undone it.
    ready: Messages that a pop can take now, including those whose lease expired.
    in_flight: Messages that are leased.
    retrying: Messages that wait for a retry after a nack. Not part of `lag`.
    delayed: Messages that the group's `delay_ms` still holds back. Not part of `lag`.
    dead: Messages in the dead letters: delivered `max_attempts` times without an ack, or buried.
    lag: `ready` and `in_flight` together."""

    group = GROUP_NAME
    topic = TOPIC_NAME
    alarm_state = nullable(string(enum=[RAISED, CLEARED]))
    created_at_ms = instant()
    purged_at_ms = nullable(instant())
    ready = integer(examples=[3])
    in_flight = integer(examples=[1])
    retrying = integer()
    delayed = integer()
    dead = integer()
    lag = integer(examples=[4])


class GroupDetail(Group):
    """A group, its settings, and its progress over all queues and in each.

    queues: One entry for each queue, including those that drain."""

    queues = array(QueueProgress)


@request
class ResetTarget:
    """An instant for all queues, or an offset of one queue, which leaves the other queues alone.

    at_ms: The first message stored at or after this instant."""

    RULES: ClassVar[Any] = either("at_ms", "queue", "offset")

    at_ms: int | None = optional(instant())
    queue: int | None = optional(QUEUE, unchecked)
    offset: int | None = optional(OFFSET)


_TO = one_of(string(enum=[EARLIEST, LATEST, NOW], title="Place"), ResetTarget)


def _target(value: object, label: Label) -> str | int | OneQueue:
    to: str | ResetTarget = check(_TO, value, label)
    if isinstance(to, str):
        return to
    if to.at_ms is not None and to.queue is None and to.offset is None:
        return to.at_ms
    if to.at_ms is None and to.queue is not None and to.offset is not None:
        return to.queue, to.offset
    raise label.wrong('"earliest", "latest", "now", {"at_ms"} or {"queue", "offset"}', value)


@request
class ResetRequest:
    """Where to move the group.

    to: `earliest`: the first message that can be read. `latest`: the end. `now`: the end, and the group never receives
        messages sent before the reset that still wait for their time or for a commit; any other reset undoes that.
        `at_ms`: the first message stored at or after an instant. `queue` and `offset`: an offset of one queue, from its
        first to its end offset."""

    to: str | int | OneQueue = required(_TO, _target)


# -- operations -------------------------------------------------------------------------------------------------------


@GROUPS.operation("GET", TOPIC + "/groups", "read", page_of("groups", Group), Page)
def list_groups(service: Service, topic: StoredTopic, request: Page) -> Json:
    """List the groups of a topic.

    Paging never repeats or skips a group, even while groups are created. A page has at most {GROUP_DETAILS_MAX} groups,
    whatever the `limit`."""
    groups, rest = service.admin.groups.page(topic, request.limit, request.next)
    return {"groups": [totals(topic, group) for group in groups], "next": rest}


@GROUPS.operation(
    "PUT",
    GROUP,
    "admin",
    {200: GroupDetail, 201: GroupDetail},
    GroupSettings,
    errors=(InvalidFilter,),
    hands_out=("push", "dead_letters"),
)
def put_group(service: Service, topic: StoredTopic, group_name: str, settings: Json) -> tuple[int, Json]:
    """Create or change a group.

    Changes only the settings that are given. A topic in `dead_letters` also needs the right to `produce` to that
    topic."""
    if "push" in settings:
        service.pushing.demand_reachable(settings["push"])
    group, is_new = service.admin.groups.put(topic, group_name, settings)
    if group.is_pushed:
        service.outside.wake(topic.name, False)
    return 201 if is_new else 200, _details(topic, service.admin.groups.details(topic, group_name))


@GROUPS.operation("GET", GROUP, "read", GroupDetail)
def get_group(service: Service, topic: StoredTopic, group_name: str) -> Json:
    """Get a group.

    Returns its settings and its progress."""
    return _details(topic, service.admin.groups.details(topic, group_name))


@GROUPS.operation("DELETE", GROUP, "admin", DELETED)
def delete_group(service: Service, topic: StoredTopic, group_name: str) -> None:
    """Delete a group.

    A group created again under the same name starts afresh. Old receipts have no effect on it."""
    service.admin.groups.delete(topic, group_name)


@GROUPS.operation("POST", GROUP + "/reset", "admin", GroupDetail, ResetRequest)
def reset_group(service: Service, topic: StoredTopic, group_name: str, request: ResetRequest) -> Json:
    """Move a group.

    Older leases no longer redeliver or settle messages, and waiting retries are dropped. If the reset moves one queue,
    this applies to that queue only."""
    if isinstance(request.to, tuple):
        parse_queue(request.to[0], topic.readers, Label("to.queue"))
    details = service.admin.groups.reset(topic, group_name, request.to)
    service.stored(topic)
    return _details(topic, details)


def totals(topic: StoredTopic, details: GroupDetails) -> Json:
    """The group, its settings and its progress over all queues."""
    totals = {name: sum(getattr(queue, name) for queue in details.queues) for name in _COUNTS}
    totals["dead"] += details.left_dead
    return {
        "topic": topic.name,
        **details.group.as_json(),
        "alarm_state": details.alarm_state,
        **totals,
        "lag": totals["ready"] + totals["in_flight"],
    }


def _details(topic: StoredTopic, details: GroupDetails) -> Json:
    return {**totals(topic, details), "queues": [queue.as_json() for queue in details.queues]}


_COUNTS = ("ready", "in_flight", "retrying", "delayed", "dead")
