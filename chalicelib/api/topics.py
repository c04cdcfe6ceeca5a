"""A topic is a set of queues. Producing to an unknown topic fails; it does not create the topic."""

from __future__ import annotations

from chalicelib.api.operation import DELETED, GROUP_NAME, TOPIC, TOPIC_NAME, Family, Json, Page, page_of
from chalicelib.core.access.callers import may_read
from chalicelib.core.base.errors import QueuesDraining
from chalicelib.core.base.fields import Answer, Sometimes, array, flag, instant, integer
from chalicelib.core.base.limits import QUEUES_MAX
from chalicelib.core.base.message import QUEUE
from chalicelib.core.catalogue.topic import Topic as StoredTopic
from chalicelib.core.catalogue.topic import TopicSettings
from chalicelib.core.cursors.progress import QueueOffsets
from chalicelib.service import Service

TOPICS = Family("Topics", __doc__)


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
