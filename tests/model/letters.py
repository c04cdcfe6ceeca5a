"""Messages without a sender: those that move to a topic for dead messages, and those of alarms."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.model.group import Group
from tests.model.values import Json

ALARMS = "decant.alarms"
REASON = "decant.reason"


@dataclass(frozen=True)
class Coming:
    """A message on its way into a log. `lane`: where it comes from, if it has no key. `order`: among those of one call
    and one queue. `due_ms`: not before. `is_late`: it was not due when it was sent, and waits."""

    shown: Json
    lane: tuple[str, int] | None
    order: tuple[int, int, int]
    due_ms: int = 0
    is_late: bool = False

    def is_(self, message: Json) -> bool:
        new = {"message_id", "queue", "offset", "stored_at_ms", "sent_at_ms"}
        shown = {name: value for name, value in message.items() if name not in new}
        if shown["topic"] == ALARMS:  # the body of an alarm is compared by what it says
            shown["body"] = json.loads(shown["body"])
        return shown == self.shown

    def is_before(self, other: Coming) -> bool:
        is_of_one_call = self.order[:2] == other.order[:2] and self.shown["key"] == other.shown["key"]
        return is_of_one_call and self.order < other.order


def of_alarm(told: Json, now: int) -> Coming:
    place = {"topic": told["topic"], "group": told["group"]}
    about = {"key": "{topic}/{group}".format(**place), "tag": told["state"], "properties": place}
    at_ms = told["at_ms"]
    return Coming({"topic": ALARMS, "body": told, **about}, None, (0, 0, at_ms), at_ms, is_late=at_ms > now)


def of_dead(message: Json, group: Group, attempt: int, reason: str, call: int) -> Coming:
    """A dead message as it comes into the topic for dead ones. `call` tells calls apart."""
    target, own = group.settings["dead_letters"], dict[str, str](message["properties"])
    own.pop(REASON, None)
    first = {"sqs:id": message["message_id"], "sqs:sent": str(message.get("sent_at_ms", message["stored_at_ms"]))}
    last = {
        "sqs:source": target.get("source", group.name),
        "sqs:origin": f"{message['queue']}:{message['offset']}",
        "sqs:count": str(attempt + int(own.get("sqs:count", 0))),
    }
    why = {REASON: reason} if reason else {}
    kept: Json = {field: message[field] for field in ("key", "tag", "body", "body_base64") if field in message}
    shown: Json = {**kept, "topic": target["topic"], "properties": {**first, **own, **last, **why}}
    lane = (message["topic"], message["queue"]) if message["key"] is None else None
    return Coming(shown, lane, (call, message["queue"], message["offset"]))
