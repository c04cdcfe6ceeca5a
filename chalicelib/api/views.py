"""What the service's answers look like as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.admin.groups import GroupDetails
from chalicelib.admin.topics import TopicDetails
from chalicelib.consuming.delivery import Delivery
from chalicelib.consuming.pop import Popped
from chalicelib.consuming.receipt_batch import Failure
from chalicelib.consuming.settle import Extended
from chalicelib.cursors.progress import QueueProgress
from chalicelib.dead_letters.queue import DeadMessage
from chalicelib.delays.writer import Waiting
from chalicelib.producing.produce import Produced


def topic_details(details: TopicDetails) -> dict[str, Any]:
    offsets = [
        {"queue": queue, "first_offset": first, "end_offset": end}
        for queue, (first, end) in enumerate(zip(details.queue_firsts, details.queue_ends, strict=True))
    ]
    return {**details.topic.as_json(), "groups": details.groups, "queue_offsets": offsets}


def group_totals(topic: str, details: GroupDetails) -> dict[str, Any]:
    queues = details.queues
    ready, in_flight = sum(each.ready for each in queues), sum(each.in_flight for each in queues)
    return {
        "topic": topic,
        **details.group.as_json(),
        "alarm_state": details.alarm_state,
        "ready": ready,
        "in_flight": in_flight,
        "retrying": sum(each.retrying for each in queues),
        "dead": sum(each.dead for each in queues),
        "lag": ready + in_flight,
    }


def group_details(topic: str, details: GroupDetails) -> dict[str, Any]:
    queues = [queue_progress(each, details.oldest_ready_at_ms.get(each.queue)) for each in details.queues]
    return {**group_totals(topic, details), "queues": queues}


def queue_progress(progress: QueueProgress, oldest_ready_at_ms: int | None) -> dict[str, Any]:
    return {
        "queue": progress.queue,
        "committed_offset": progress.committed_offset,
        "next_offset": progress.next_offset,
        "end_offset": progress.end_offset,
        "ready": progress.ready,
        "in_flight": progress.in_flight,
        "oldest_ready_at_ms": oldest_ready_at_ms,
        "last_pop_at_ms": progress.last_pop_at_ms,
        "last_consumer_id": progress.last_consumer_id,
    }


def produced(results: Sequence[Produced]) -> dict[str, Any]:
    return {"messages": [_produced(each) for each in results]}


def _produced(result: Produced) -> dict[str, Any]:
    if result.error is not None:
        error = {"code": result.error.code, "detail": result.error.detail, **result.error.members}
        return {"error": error}
    due = {} if result.deliver_at_ms is None else {"deliver_at_ms": result.deliver_at_ms}
    return {"message_id": result.message_id, "queue": result.queue, "offset": result.offset, **due}


def waiting(topic: str, found: Waiting) -> dict[str, Any]:
    place = {"message_id": found.message_id, "topic": topic, "queue": found.queue, "deliver_at_ms": found.due_ms}
    return {**place, **found.message.content()}


def popped(topic: str, result: Popped, acks: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "messages": [_delivery(topic, each) for each in result.deliveries],
        "acked": acks - len(result.failed),
        "failed": failures(result.failed),
    }
    if result.is_paused:
        answer["paused"] = True
    if result.retry_after_ms is not None:
        answer |= {"limited": "rate", "retry_after_ms": result.retry_after_ms}
    elif result.is_limited:
        answer["limited"] = "in_flight"
    return answer


def _delivery(topic: str, delivery: Delivery) -> dict[str, Any]:
    return {
        **delivery.stored.as_json(topic),
        "attempt": delivery.attempt,
        "invisible_until_ms": delivery.invisible_until_ms,
        "receipt": delivery.receipt,
    }


def extended(results: Sequence[Extended]) -> list[dict[str, Any]]:
    return [
        {
            "receipt": each.receipt,
            "new_receipt": each.new_receipt,
            "invisible_until_ms": each.invisible_until_ms,
        }
        for each in results
    ]


def failures(failed: Sequence[Failure]) -> list[dict[str, str]]:
    return [{"receipt": each.receipt, "code": each.code} for each in failed]


def dead_message(topic: str, dead: DeadMessage) -> dict[str, Any]:
    letter = dead.letter
    return {
        **dead.stored.as_json(topic),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "dead_at_ms": letter.dead_at_ms,
    }
