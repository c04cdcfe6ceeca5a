"""Move tasks: what comes back, to where, how fast, and what ends a task."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from chalicelib.core.base.limits import DAY_MS, HOUR_MS, METADATA_AGE_MS_MAX
from chalicelib.core.cursors.retries import PARKED_MAX
from chalicelib.doors.sqs.registry import moves_of, queues_of
from tests.http.test_log_lines import Log
from tests.http.test_queues_up_and_down import check, read_queues, shrunk
from tests.sqs.client import Json, Refused, Sqs
from tests.support.client import Client, Group, Topic, receipts
from tests.support.clock import START_MS, Clock
from tests.support.late_store import LateStore
from tests.support.orders import noise

ARN = "arn:aws:sqs:us-east-1:000000000000:"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def make(sqs: Sqs, name: str = "orders", dead: str = "dead", tags: Json | None = None, **attributes: str) -> None:
    """A queue whose messages are dead when they were received once."""
    policy = json.dumps({"deadLetterTargetArn": ARN + dead, "maxReceiveCount": 1})
    given = {"RedrivePolicy": policy, "VisibilityTimeout": "0", **attributes}
    sqs.CreateQueue(QueueName=name, Attributes=given, tags=tags or {})


@pytest.fixture
def made(sqs: Sqs) -> Sqs:
    """The queue `orders`, and its dead-letter queue `dead`."""
    sqs.CreateQueue(QueueName="dead", tags={"decant:queues": "1"})
    make(sqs, tags={"decant:queues": "1"})
    return sqs


def receive(sqs: Sqs, queue: str, **members: Any) -> list[Json]:
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10, **members}
    messages: list[Json] = sqs.ReceiveMessage(QueueUrl=queue, **asked).get("Messages", [])
    return messages


def bodies(sqs: Sqs, queue: str) -> list[str]:
    """The bodies of all messages that can be received."""
    came: list[str] = []
    while got := receive(sqs, queue, VisibilityTimeout=1_000):
        came += [message["Body"] for message in got]
    return came


def die(sqs: Sqs, *texts: str, queue: str = "orders", to: str | None = None) -> None:
    """Sends messages, and has them received too often."""
    for text in texts:
        sqs.SendMessage(QueueUrl=to or queue, MessageBody=text, MessageAttributes={"n": _NUMBER})
    left = len(texts)
    while left > 0:
        left -= len(receive(sqs, queue))
    assert receive(sqs, queue) == []


_NUMBER = {"DataType": "Number", "StringValue": "7"}


def start(sqs: Sqs, source: str = "dead", **members: Any) -> str:
    handle: str = sqs.StartMessageMoveTask(SourceArn=ARN + source, **members)["TaskHandle"]
    return handle


def tasks(sqs: Sqs, source: str = "dead", **members: Any) -> list[Json]:
    listed: list[Json] = sqs.ListMessageMoveTasks(SourceArn=ARN + source, **members).get("Results", [])
    return listed


def sweep(client: Client) -> dict[str, int]:
    service = client.api.service
    swept: dict[str, int] = service.sweeps.move(moves_of(service)).as_json()
    return swept


def count(sqs: Sqs, queue: str) -> int:
    name = "ApproximateNumberOfMessages"
    return int(sqs.GetQueueAttributes(QueueUrl=queue, AttributeNames=[name])["Attributes"][name])


# -- where messages go ------------------------------------------------------------------------------------------------


def test_of_several_sources_each_gets_its_own(made: Sqs) -> None:
    make(made, "bills")
    die(made, "order")
    die(made, "bill", queue="bills")
    start(made)
    assert (bodies(made, "orders"), bodies(made, "bills")) == (["order"], ["bill"])


def test_one_step_moves_what_is_from_many_queues(made: Sqs, clock: Clock) -> None:
    names = [f"orders-{number}" for number in range(6)]
    for name in names:
        make(made, name)
        die(made, name, queue=name)
    before_ms = clock.ms
    start(made)
    assert (tasks(made)[0]["Status"], clock.ms) == ("COMPLETED", before_ms)
    assert [bodies(made, name) for name in names] == [[name] for name in names]


def test_messages_go_to_the_destination_that_is_named(made: Sqs) -> None:
    made.CreateQueue(QueueName="other")
    die(made, "a")
    made.SendMessage(QueueUrl="dead", MessageBody="of no source")
    start(made, DestinationArn=f"{ARN}other")
    assert sorted(bodies(made, "other")) == ["a", "of no source"]
    assert bodies(made, "orders") == bodies(made, "dead") == []


def test_a_moved_message_is_a_new_one(made: Sqs, clock: Clock) -> None:
    sent = made.SendMessage(QueueUrl="orders", MessageBody="a", MessageAttributes={"n": _NUMBER})
    [first], clock_before = receive(made, "orders"), clock.ms
    assert receive(made, "orders") == []
    clock.sleep(5_000)
    start(made)
    [moved] = receive(made, "orders")
    assert moved["MessageId"] != sent["MessageId"]
    assert moved["MessageAttributes"] == {"n": _NUMBER}
    assert moved["MD5OfMessageAttributes"] == first["MD5OfMessageAttributes"]
    assert moved["Attributes"]["ApproximateReceiveCount"] == "1"
    assert int(moved["Attributes"]["SentTimestamp"]) == clock_before + 5_000
    assert "DeadLetterQueueSourceArn" not in moved["Attributes"]


def test_a_message_that_dies_again_moves_again(made: Sqs) -> None:
    die(made, "a")
    for _ in range(2):
        start(made)
        assert len(receive(made, "orders")) == 1
        assert receive(made, "orders") == []
    assert bodies(made, "dead") == ["a"]


def test_messages_of_a_fifo_queue_keep_their_order(sqs: Sqs, clock: Clock) -> None:
    fifo: Json = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    sqs.CreateQueue(QueueName="dead.fifo", Attributes=fifo)
    make(sqs, "orders.fifo", "dead.fifo", **{**fifo, "VisibilityTimeout": "1"})
    for body in ("a1", "b1", "a2", "a3"):
        sqs.SendMessage(QueueUrl="orders.fifo", MessageBody=body, MessageGroupId=body[0])
    assert len(receive(sqs, "orders.fifo")) == 4
    clock.sleep(1_000)
    assert receive(sqs, "orders.fifo") == []
    start(sqs, "dead.fifo")
    came = [(each["Body"], each["Attributes"]["MessageGroupId"]) for each in receive(sqs, "orders.fifo")]
    assert sorted(came, key=lambda each: each[1]) == [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")]


def test_messages_in_the_hands_of_consumers_stay(made: Sqs, client: Client) -> None:
    die(made, "a", "b")
    [held] = receive(made, "dead", MaxNumberOfMessages=1, VisibilityTimeout=100)
    start(made)
    assert bodies(made, "orders") == [{"a": "b", "b": "a"}[held["Body"]]]
    [task] = tasks(made)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    assert made.DeleteMessage(QueueUrl="dead", ReceiptHandle=held["ReceiptHandle"]) == {}


# -- subscribed queues ------------------------------------------------------------------------------------------------


@pytest.fixture
def subscribed(made: Sqs) -> Sqs:
    """The queues `bills` and `mails`, which read the topic of `news`."""
    made.CreateQueue(QueueName="news", tags={"decant:queues": "1"})
    make(made, "bills", tags={"decant:topic": "news"})
    made.CreateQueue(QueueName="mails", tags={"decant:topic": "news"})
    return made


def test_a_subscribed_queue_gets_its_message_back_alone(subscribed: Sqs) -> None:
    sent = subscribed.SendMessage(QueueUrl="news", MessageBody="a")
    receive(subscribed, "bills")
    assert receive(subscribed, "bills") == []
    start(subscribed)
    [back] = receive(subscribed, "bills")
    assert (back["Body"], back["MessageId"]) == ("a", sent["MessageId"])
    assert back["Attributes"]["ApproximateReceiveCount"] == "1"
    assert bodies(subscribed, "mails") == bodies(subscribed, "news") == ["a"]
    assert receive(subscribed, "bills") == []  # it is dead again
    assert bodies(subscribed, "dead") == ["a"]


def test_a_subscribed_queue_that_was_named_gets_its_messages_back(subscribed: Sqs) -> None:
    die(subscribed, "a", "b", queue="bills", to="news")
    start(subscribed, DestinationArn=f"{ARN}mails")
    assert sorted(bodies(subscribed, "mails")) == ["a", "b"]  # each once: it had not received them
    assert bodies(subscribed, "dead") == bodies(subscribed, "bills") == []


def test_a_message_that_has_moved_before_comes_back_too(made: Sqs) -> None:
    made.CreateQueue(QueueName="last")
    make(made, "second", "last", tags={"decant:topic": "dead"})
    die(made, "a")
    assert len(receive(made, "second")) == 1
    assert receive(made, "second") == []
    start(made, "last")
    assert bodies(made, "second") == ["a"]


def test_what_waits_for_a_retry_after_a_reset_does_not_come_twice(subscribed: Sqs, client: Client) -> None:
    """Some of it in a retry page."""
    bills = Group(client, Topic(client, "news"), "bills")
    bills.topic.produce(*["x"] * (PARKED_MAX + 1))
    messages = bills.take(PARKED_MAX + 1)
    assert client.post(f"{bills.path}/bury", receipts=receipts(*messages)).json["failed"] == []
    bills.reset("earliest")
    bills.change(max_attempts=2)
    for message in bills.take(PARKED_MAX + 1):
        bills.nack(message, delay_ms=DAY_MS)
    start(subscribed)
    assert tasks(subscribed)[0]["ApproximateNumberOfMessagesMoved"] == PARKED_MAX + 1
    assert bills.totals() == (0, 0, PARKED_MAX + 1, 0)


def test_a_message_that_a_reset_has_made_ready_comes_once(subscribed: Sqs, client: Client) -> None:
    die(subscribed, "a", queue="bills", to="news")
    assert client.post("/topics/news/groups/bills/reset", to="earliest").status == 200
    start(subscribed)
    assert bodies(subscribed, "dead") == []
    assert len(receive(subscribed, "bills")) == 1
    assert receive(subscribed, "bills") == []
    assert bodies(subscribed, "dead") == ["a"]


def test_what_is_dead_twice_comes_back_once(subscribed: Sqs, client: Client) -> None:
    die(subscribed, "a", queue="bills", to="news")
    assert client.post("/topics/news/groups/bills/reset", to="earliest").status == 200
    assert len(receive(subscribed, "bills")) == 1
    assert receive(subscribed, "bills") == []
    assert count(subscribed, "dead") == 2
    start(subscribed)
    assert bodies(subscribed, "dead") == []
    assert len(receive(subscribed, "bills")) == 1


def test_messages_come_back_into_a_queue_that_has_left_its_topic(made: Sqs, client: Client, clock: Clock) -> None:
    made.CreateQueue(QueueName="wide", tags={"decant:queues": "2"})
    make(made, "readers", tags={"decant:topic": "wide"})
    wide = Topic(client, "wide")
    wide.produce("a", queue=1)
    Group(client, wide, "wide").drained()
    assert bodies(made, "readers") == ["a"]
    clock.sleep(1_000_000)
    assert receive(made, "readers") == []
    shrunk(wide, 1)
    assert read_queues(wide) == [0]
    clock.sleep(HOUR_MS)
    check(wide)  # and is to look at the topic no more
    start(made)
    check(wide)
    clock.sleep(METADATA_AGE_MS_MAX + 1)
    assert bodies(made, "readers") == ["a"]


@pytest.mark.parametrize("gone", ["retention", "ttl", "payload", "topic", "direct", "foreign"])
def test_what_a_subscribed_queue_cannot_get_back_fails(
    subscribed: Sqs, client: Client, clock: Clock, gone: str
) -> None:
    reason = "topic 'news' no longer has one of the messages"
    if gone == "direct":
        subscribed.SendMessage(QueueUrl="dead", MessageBody="a")
        reason = "CouldNotDetermineMessageSource"
    elif gone in ("ttl", "payload"):
        Topic(client, "news").produce("a" + noise(1, 2_000)[0], ttl_ms=60_000)
        assert len(receive(subscribed, "bills")) == 1
        assert receive(subscribed, "bills") == []
    else:
        die(subscribed, "a", queue="orders" if gone == "foreign" else "bills", to=None if gone == "foreign" else "news")
    if gone == "retention":
        assert client.put("/topics/news", retention_ms=60_000).status == 200
        clock.sleep(61_000)
    if gone == "ttl":
        clock.sleep(60_000)
    if gone == "payload":
        del client.store._items[next(pk for pk in client.store._items if pk.startswith("payload#"))]
        subscribed = type(subscribed)(client.another())
    if gone == "topic":
        for name in ("bills", "mails", "news"):
            subscribed.DeleteQueue(QueueUrl=name)
        subscribed.CreateQueue(QueueName="news", tags={"decant:queues": "1"})
        make(subscribed, "bills", tags={"decant:topic": "news"})
        subscribed.SendMessage(QueueUrl="news", MessageBody="another at this place")
        receive(subscribed, "bills", VisibilityTimeout=100)
    start(subscribed, DestinationArn=f"{ARN}bills")
    [task] = tasks(subscribed)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 0)
    assert task["FailureReason"].startswith(reason)
    assert [body[0] for body in bodies(subscribed, "dead")] == ["a"]


@pytest.mark.parametrize("is_young", [False, True])
def test_what_a_subscribed_queue_would_pass_over_stays(subscribed: Sqs, clock: Clock, is_young: bool) -> None:
    if not is_young:
        subscribed.TagQueue(QueueUrl="mails", Tags={"decant:filter": "urgent"})
    subscribed.SendMessage(QueueUrl="news", MessageBody="a", DelaySeconds=9)
    subscribed.CreateQueue(QueueName="young", tags={"decant:topic": "news"})
    clock.sleep(10_000)
    while receive(subscribed, "bills"):
        pass
    queue = "young" if is_young else "mails"
    start(subscribed, DestinationArn=ARN + queue)
    [task] = tasks(subscribed)
    assert (task["Status"], task["FailureReason"]) == (
        "FAILED",
        f"queue '{queue}' does not receive one of the messages",
    )
    assert bodies(subscribed, "dead") == ["a"]


def test_a_subscribed_queue_gets_back_what_it_would_pass_over_now(subscribed: Sqs, client: Client) -> None:
    die(subscribed, "a", queue="bills", to="news")
    subscribed.TagQueue(QueueUrl="bills", Tags={"decant:filter": "urgent"})
    assert client.post("/topics/news/groups/bills/reset", to="now").status == 200
    start(subscribed)
    assert len(receive(subscribed, "bills")) == 1


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_a_task_that_is_done_says_so(made: Sqs) -> None:
    die(made, "a", "b")
    handle = json.loads(base64.b64decode(start(made)))
    assert handle == {"taskId": handle["taskId"], "sourceArn": f"{ARN}dead"}
    assert re.fullmatch(UUID, handle["taskId"])
    assert tasks(made) == [
        {
            "Status": "COMPLETED",
            "SourceArn": f"{ARN}dead",
            "ApproximateNumberOfMessagesMoved": 2,
            "ApproximateNumberOfMessagesToMove": 2,
            "StartedTimestamp": START_MS,
        }
    ]


def test_a_task_keeps_to_its_rate(made: Sqs, client: Client, clock: Clock) -> None:
    made.CreateQueue(QueueName="other")
    die(made, *"abcd")
    handle = start(made, DestinationArn=f"{ARN}other", MaxNumberOfMessagesPerSecond=1)
    assert tasks(made) == [
        {
            "TaskHandle": handle,
            "Status": "RUNNING",
            "SourceArn": f"{ARN}dead",
            "DestinationArn": f"{ARN}other",
            "MaxNumberOfMessagesPerSecond": 1,
            "ApproximateNumberOfMessagesMoved": 1,
            "ApproximateNumberOfMessagesToMove": 4,
            "StartedTimestamp": START_MS,
        }
    ]
    assert sweep(client) == {"seen": 1, "done": 3}
    assert clock.ms - START_MS == 3_000
    [task] = tasks(made)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 4)
    assert "TaskHandle" not in task


def test_what_the_call_leaves_sweeps_do(made: Sqs, client: Client, clock: Clock) -> None:
    Topic(client, "dead").produce(*[{"body": "x", "properties": {"sqs:source": "orders"}}] * 50)
    start(made, MaxNumberOfMessagesPerSecond=10)
    assert clock.ms - START_MS == 2_000
    assert tasks(made)[0]["ApproximateNumberOfMessagesMoved"] == 21
    assert sweep(client) == {"seen": 1, "done": 29}
    assert tasks(made)[0]["Status"] == "COMPLETED"
    assert clock.ms - START_MS == 4_900
    assert sweep(client) == {"seen": 0, "done": 0}


def test_a_task_moves_no_more_than_there_was(made: Sqs, client: Client) -> None:
    die(made, "a", "b")
    start(made, MaxNumberOfMessagesPerSecond=1)
    die(made, "c")  # and what has moved dies again
    sweep(client)
    assert count(made, "dead") == 2
    assert tasks(made)[0]["ApproximateNumberOfMessagesMoved"] == 2


def test_a_queue_has_one_active_task(made: Sqs, client: Client) -> None:
    die(made, "a", "b")
    start(made, MaxNumberOfMessagesPerSecond=1)
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    refused = made.refused("StartMessageMoveTask", SourceArn=f"{ARN}dead")
    assert (refused.status, refused.code, refused.message) == (400, "InvalidParameterValue", text)
    sweep(client)
    start(made)
    assert [task["Status"] for task in tasks(made, MaxResults=10)] == ["COMPLETED", "COMPLETED"]


def test_the_last_ten_tasks_are_listed_the_newest_first(made: Sqs) -> None:
    for rate in range(1, 13):
        start(made, MaxNumberOfMessagesPerSecond=rate)
    listed = [task["MaxNumberOfMessagesPerSecond"] for task in tasks(made, MaxResults=10)]
    assert listed == [*range(12, 2, -1)]
    assert len(tasks(made)) == 1


def test_a_task_that_is_cancelled_moves_nothing_more(made: Sqs, client: Client, clock: Clock) -> None:
    die(made, "a", "b")
    handle = start(made, MaxNumberOfMessagesPerSecond=1)
    for _ in range(2):  # a client that got no answer repeats it
        assert made.CancelMessageMoveTask(TaskHandle=handle) == {"ApproximateNumberOfMessagesMoved": 1}
    [task] = tasks(made)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)
    assert "TaskHandle" not in task
    assert sweep(client)["done"] == 0
    assert count(made, "dead") == 1
    start(made)
    assert count(made, "dead") == 0


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_task_fails_when_its_destination_is_deleted(
    made: Sqs, client: Client, is_named: bool, is_made_again: bool
) -> None:
    """A source that is made again is a source as before: in SQS, too, its name is all that messages know of it."""
    die(made, "a", "b", "c")
    start(made, MaxNumberOfMessagesPerSecond=1, **({"DestinationArn": f"{ARN}orders"} if is_named else {}))
    made.DeleteQueue(QueueUrl="orders")
    if is_made_again:
        make(made)
    sweep(client)
    [task] = tasks(made)
    if is_made_again and not is_named:
        assert (task["Status"], count(made, "dead")) == ("COMPLETED", 0)
    else:
        assert (task["Status"], task["FailureReason"], count(made, "dead")) == ("FAILED", NO_QUEUE, 2)


def test_a_message_that_no_queue_has_given_up_has_no_source(made: Sqs) -> None:
    made.SendMessage(QueueUrl="dead", MessageBody="a")
    start(made)
    [task] = tasks(made)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    [left] = receive(made, "dead")
    assert left["Attributes"]["ApproximateReceiveCount"] == "1"


def test_no_property_sends_a_message_where_nobody_asked_for_it(made: Sqs, client: Client) -> None:
    made.CreateQueue(QueueName="payroll")
    Topic(client, "dead").produce({"body": "a", "properties": {"sqs:source": "payroll"}})
    start(made)
    assert tasks(made)[0]["FailureReason"] == "CouldNotDetermineMessageSource"
    assert (bodies(made, "payroll"), bodies(made, "dead")) == ([], ["a"])


def test_the_tasks_of_a_queue_end_with_it(made: Sqs, client: Client) -> None:
    die(made, "a", "b")
    handle = start(made, MaxNumberOfMessagesPerSecond=1)
    service = client.api.service
    queue_id = queues_of(service).current("dead").queue.id
    made.DeleteQueue(QueueUrl="dead")
    assert moves_of(service).tasks.list(queue_id) == []
    assert sweep(client)["done"] == 0
    refused = made.refused("ListMessageMoveTasks", SourceArn=f"{ARN}dead")
    assert refused == _no_resource("SourceArn")
    made.CreateQueue(QueueName="dead")
    assert tasks(made) == []
    refused = made.refused("CancelMessageMoveTask", TaskHandle=handle)
    assert (refused.status, refused.message) == (404, "Task does not exist.")


def test_a_paused_group_holds_its_task_up(made: Sqs, client: Client, clock: Clock) -> None:
    die(made, "a")
    assert client.put("/topics/dead/groups/dead", paused=True).status == 200
    start(made)
    for _ in range(2):
        clock.sleep(600_000)
        assert sweep(client) == {"seen": 1, "done": 0}
    assert tasks(made)[0]["Status"] == "RUNNING"
    assert client.put("/topics/dead/groups/dead", paused=False).status == 200
    assert sweep(client) == {"seen": 1, "done": 1}
    assert bodies(made, "orders") == ["a"]


def test_what_has_died_since_a_task_was_started_stays(made: Sqs, client: Client) -> None:
    die(made, "a")
    dead = Group(client, Topic(client, "dead"), "dead")
    dead.change(paused=True)
    start(made)
    die(made, "b")
    dead.change(paused=False)
    sweep(client)
    assert (bodies(made, "orders"), bodies(made, "dead")) == (["a"], ["b"])


def test_a_task_that_was_held_up_does_not_make_up_for_it(made: Sqs, client: Client, clock: Clock) -> None:
    die(made, *"abc")
    dead = Group(client, Topic(client, "dead"), "dead")
    start(made, MaxNumberOfMessagesPerSecond=1)
    dead.change(paused=True)
    clock.sleep(600_000)
    dead.change(paused=False)
    began_ms = clock.ms
    assert sweep(client)["done"] == 2
    assert clock.ms - began_ms == 1_000


def test_a_task_is_not_over_while_its_worker_does_not_see_its_messages_yet() -> None:
    store = LateStore()
    client = Client(store)
    sqs = Sqs(client)
    sqs.CreateQueue(QueueName="dead", tags={"decant:queues": "1"})
    make(sqs, tags={"decant:queues": "1"})
    store.fall_behind()
    past, store.past = store.past, None
    die(sqs, "a", "b")
    store.past = past
    other = client.another()
    start(Sqs(other))
    assert tasks(sqs)[0]["Status"] == "RUNNING"
    store.past = None
    assert sweep(other) == {"seen": 1, "done": 2}
    assert tasks(sqs)[0]["Status"] == "COMPLETED"


def test_a_task_waits_for_what_comes_after_messages_in_flight(sqs: Sqs, client: Client) -> None:
    fifo: Json = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    sqs.CreateQueue(QueueName="dead.fifo", Attributes=fifo)
    make(sqs, "orders.fifo", "dead.fifo", **fifo)
    for body in ("a1", "a2"):
        sqs.SendMessage(QueueUrl="dead.fifo", MessageBody=body, MessageGroupId="a")
    [held] = receive(sqs, "dead.fifo", MaxNumberOfMessages=1)
    sqs.CreateQueue(QueueName="other.fifo", Attributes=fifo)
    start(sqs, "dead.fifo", DestinationArn=f"{ARN}other.fifo")
    assert tasks(sqs, "dead.fifo")[0]["Status"] == "RUNNING"
    sqs.DeleteMessage(QueueUrl="dead.fifo", ReceiptHandle=held["ReceiptHandle"])
    assert sweep(client) == {"seen": 1, "done": 1}
    assert bodies(sqs, "other.fifo") == ["a2"]


def test_a_pushed_group_has_no_messages_to_move(made: Sqs, client: Client) -> None:
    die(made, "a")
    assert client.put("/topics/dead/groups/dead", push={"url": "https://example.com/"}).status == 200
    start(made)
    [task] = tasks(made)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.UnsupportedOperation")


def test_a_task_that_has_ended_writes_a_line(made: Sqs, client: Client) -> None:
    die(made, "a")
    made.SendMessage(QueueUrl="dead", MessageBody="of no source")
    log = Log(client)
    start(made)
    told = {"queue": "dead", "state": "FAILED", "moved": 1, "to_move": 2, "reason": "no source"}
    assert told.items() <= log.only(operation="move_task").items()
    assert log.only(operation="sqs.StartMessageMoveTask")["moved"] == 1
    assert 'decant_moved_messages_total{group="dead",process=' in client.get("/metrics").json
    handle = start(made, DestinationArn=f"{ARN}orders", MaxNumberOfMessagesPerSecond=1)
    die(made, "b")
    assert tasks(made)[0]["Status"] == "COMPLETED"
    assert made.refused("CancelMessageMoveTask", TaskHandle=handle).status == 404
    assert [line["state"] for line in log if line["operation"] == "move_task"] == ["FAILED", "COMPLETED"]


# -- refused ----------------------------------------------------------------------------------------------------------


def _no_resource(member: str) -> Refused:
    text = f"The resource that you specified for the {member} parameter doesn't exist."
    return Refused(404, "ResourceNotFoundException", "ResourceNotFoundException", text)


def _handle(told: Any) -> str:
    return base64.b64encode(json.dumps(told).encode()).decode()


def test_queues_that_there_are_not_are_not_found(made: Sqs) -> None:
    nowhere = {"SourceArn": f"{ARN}nowhere"}
    assert made.refused("StartMessageMoveTask", **nowhere) == _no_resource("SourceArn")
    assert made.refused("ListMessageMoveTasks", **nowhere) == _no_resource("SourceArn")
    handle = _handle({"taskId": "10f57157-0000-4da9-a113-4de7e12d05dd", "sourceArn": f"{ARN}nowhere"})
    assert made.refused("CancelMessageMoveTask", TaskHandle=handle) == _no_resource("SourceArn")
    refused = made.refused("StartMessageMoveTask", SourceArn=f"{ARN}dead", DestinationArn=f"{ARN}nowhere")
    assert refused == _no_resource("DestinationArn")


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"SourceArn": f"{ARN}orders"}, "Source queue must be configured as a Dead Letter Queue."),
        ({"SourceArn": f"{ARN}readers"}, "Source queue must be configured as a Dead Letter Queue."),
        ({"SourceArn": f"{ARN}orders", "DestinationArn": f"{ARN}dead"}, "Source queue must be configured as a Dead"),
        ({"DestinationArn": f"{ARN}dead"}, "The destination must be another queue than the source."),
        ({"DestinationArn": f"{ARN}other.fifo"}, "The destination must be same type of queue as the source."),
        ({"MaxNumberOfMessagesPerSecond": 0}, "Value 0 for parameter MaxNumberOfMessagesPerSecond is invalid."),
        ({"MaxNumberOfMessagesPerSecond": 501}, "Must be between 1 and 500, if provided."),
    ],
)
def test_a_task_that_cannot_be_is_refused(made: Sqs, members: Json, text: str) -> None:
    made.CreateQueue(QueueName="other.fifo", Attributes={"FifoQueue": "true"})
    made.CreateQueue(QueueName="readers", tags={"decant:topic": "dead"})
    refused = made.refused("StartMessageMoveTask", **{"SourceArn": f"{ARN}dead", **members})
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert text in refused.message
    assert tasks(made) == []


@pytest.mark.parametrize("most", [0, 11])
def test_a_list_that_cannot_be_is_refused(made: Sqs, most: int) -> None:
    refused = made.refused("ListMessageMoveTasks", SourceArn=f"{ARN}dead", MaxResults=most)
    text = f"Value {most} for parameter MaxResults is invalid. Reason: Must be between 1 and 10, if provided."
    assert (refused.code, refused.message) == ("InvalidParameterValue", text)


@pytest.mark.parametrize(
    "handle", ["foobared", "é", "", _handle([]), _handle({"taskId": "a"}), _handle({"taskId": 1, "sourceArn": ARN})]
)
def test_a_handle_that_is_none_is_refused(made: Sqs, handle: str) -> None:
    refused = made.refused("CancelMessageMoveTask", TaskHandle=handle)
    text = "Value for parameter TaskHandle is invalid."
    assert (refused.status, refused.code, refused.message) == (400, "InvalidParameterValue", text)


def test_clients_make_handles_themselves(made: Sqs) -> None:
    die(made, "a", "b")
    task = json.loads(base64.b64decode(start(made, MaxNumberOfMessagesPerSecond=1)))
    unknown = _handle({**task, "taskId": "10f57157-0000-4da9-a113-4de7e12d05aa"})
    refused = made.refused("CancelMessageMoveTask", TaskHandle=unknown)
    assert (refused.status, refused.code, refused.message) == (404, "ResourceNotFoundException", "Task does not exist.")
    again = _handle({"sourceArn": "arn:aws:sqs:eu-west-1:123456789012:dead", "taskId": task["taskId"]})
    assert made.CancelMessageMoveTask(TaskHandle=again) == {"ApproximateNumberOfMessagesMoved": 1}
