"""A topic is a set of queues. It is created on purpose, never by a typo in a produce."""

from __future__ import annotations

from chalicelib.api.operation import DELETED, GROUP_NAME, TOPIC, TOPIC_NAME, Family, Json, Page, page_of
from chalicelib.core.access.callers import may_read
from chalicelib.core.base.errors import QueuesDraining
from chalicelib.core.base.fields import Answer, Sometimes
from chalicelib.core.base.limits import QUEUES_MAX
from chalicelib.core.base.message import QUEUE
from chalicelib.core.base.schema import array, flag, instant, integer
from chalicelib.core.catalogue.topic import Topic as StoredTopic
from chalicelib.core.catalogue.topic import TopicSettings
from chalicelib.core.cursors.progress import QueueOffsets
from chalicelib.service import Service

TOPICS = Family("Topics", __doc__)


class Topic(Answer, TopicSettings):
    """A topic.

    queues: How many queues (partitions) the topic has.
    queues_auto: True if the topic gets more queues by itself. Only then.
    draining: Queues that get no new messages, since the topic was given fewer, but are read until every group has
        settled them. Only while there are some.
    created_at_ms: When the topic was created."""

    topic = TOPIC_NAME
    queues = integer(1, QUEUES_MAX)
    queues_auto = Sometimes(flag())
    draining = Sometimes(array(QUEUE))
    created_at_ms = instant()


class TopicDetail(Topic):
    """A topic, its groups, and the offsets of its queues.

    groups: The names of its groups.
    queue_offsets: One entry for each queue, and for those that drain."""

    groups = array(GROUP_NAME)
    queue_offsets = array(QueueOffsets)


@TOPICS.operation("GET", "/topics", "read", page_of("topics", Topic), Page, is_filtered=True)
def list_topics(service: Service, request: Page) -> Json:
    """List the topics.

    Paging while topics are created neither repeats nor skips one. Those that the caller may not read are left out."""
    topics, rest = service.admin.topics.page(request.limit, request.next, may_read)
    return {"topics": [topic.as_json() for topic in topics], "next": rest}


@TOPICS.operation("PUT", TOPIC, "admin", {200: Topic, 201: Topic}, TopicSettings, errors=(QueuesDraining,))
def put_topic(service: Service, topic_name: str, settings: Json) -> tuple[int, Json]:
    """Create or change a topic.

    Changes the settings that are given, and only those. With more `queues`, the new ones are read at once, and get
    messages {HEARD_MS} ms later. With fewer, those that are too many get no more messages from then on, but are read
    until every group has settled them; the topic cannot have more again before that."""
    topic, is_new = service.admin.topics.put(topic_name, settings)
    return 201 if is_new else 200, topic.as_json()


@TOPICS.operation("GET", TOPIC, "read", TopicDetail)
def get_topic(service: Service, topic: StoredTopic) -> Json:
    """Get a topic.

    The topic, the names of its groups, and the first and the end offset of each queue."""
    groups = service.env.catalogue.names_of_groups(topic)
    offsets = [queue.as_json() for queue in service.admin.topics.offsets(topic)]
    return {**topic.as_json(), "groups": groups, "queue_offsets": offsets}


@TOPICS.operation("DELETE", TOPIC, "admin", DELETED)
def delete_topic(service: Service, topic: StoredTopic) -> None:
    """Delete a topic.

    Deletes its messages and groups too. A topic created again under the same name starts empty at offset 0, and no old
    receipt has an effect on it."""
    service.admin.topics.delete(topic)
