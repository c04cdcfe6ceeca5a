"""The calls of clients of MQ over HTTP: publish, consume and ack; and half messages, which are transactions of one
message each, by whose ids clients know them."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.api.operation import Family
from chalicelib.core.base.errors import TransactionEnded, TransactionNotFound
from chalicelib.core.base.fields import array, checked, integer, optional, request, required, string
from chalicelib.core.base.limits import RECEIPT_CHARS_MAX, SECOND_MS, WAIT_MS_MAX
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import Filter, parse_filter
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.consuming.pop import Suits, Unsuitable
from chalicelib.core.consuming.receipt_batch import RECEIPT_INVALID
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.taker import Popped
from chalicelib.core.producing import new_message
from chalicelib.core.telemetry.record import TRACE_HEADERS, Trace
from chalicelib.core.transactions.half import Begin
from chalicelib.doors.mqhttp import messages
from chalicelib.doors.mqhttp.errors import NO_MESSAGE, HandlesFailed, MqError, wrong
from chalicelib.doors.mqhttp.messages import CHECK_AFTER, DELIVER_AT, SPACE, Shown, md5_of, messages_text
from chalicelib.doors.mqhttp.xml_wire import ELEMENTS_MAX, document, element
from chalicelib.service import Service

PATH = "/topics/{topic}/messages"
SUBSCRIPTION = PATH + "?consumer={group}"

MESSAGES_MAX = 16
WAIT_SECONDS_MAX = 30
CHECK_SECONDS_MIN, CHECK_SECONDS_MAX = 10, 300
ORDER = "order"

Outcome = tuple[int, str]
"""Status and document."""

CALLS = Family("MQ-HTTP", "Calls of clients of MQ over HTTP.")

# -- publish ----------------------------------------------------------------------------------------------------------


@request
class Published:
    """Elements of `Message`, each empty where it is not given."""

    MessageBody: str = optional(string(default=""))
    MessageTag: str = optional(string(default=""))
    Properties: str = optional(string(default=""))

    def fields(self, given: dict[str, str]) -> dict[str, object]:
        return {"body": self.MessageBody, "tag": self.MessageTag or None, **messages.fields_of(given)}


@CALLS.operation("POST", PATH, "produce", {}, Published, headers=TRACE_HEADERS, is_frequent=True)
def mq_publish(service: Service, topic: Topic, request: Published, **trace: str | None) -> Outcome:
    if not request.MessageBody:
        raise wrong("element 'MessageBody' must have at least 1 character; it has none")
    given = messages.parse(request.Properties)
    if CHECK_AFTER in given:
        handle = _begun(service, topic, request, given, trace)
        return 201, _receipt(handle, request.MessageBody, element("ReceiptHandle", handle))
    fields = request.fields(given)

    def parse(current: Topic) -> list[new_message.Sending]:
        sending = new_message.parse(fields, current, "Message", service.env.runtime.now())
        sending.message = new_message.traced(sending.message, trace)
        return [sending]

    [result] = service.producing.send_parsed(topic, parse)
    return 201, _receipt(result.message_id or "", request.MessageBody)


def _begun(service: Service, topic: Topic, request: Published, given: dict[str, str], trace: Trace) -> str:
    """Stores a half message, and returns the id of its transaction."""
    seconds = messages.integer(CHECK_AFTER, given[CHECK_AFTER])
    if not CHECK_SECONDS_MIN <= seconds <= CHECK_SECONDS_MAX:
        bounds = f"from {CHECK_SECONDS_MIN} to {CHECK_SECONDS_MAX}"
        raise wrong(f"property '{CHECK_AFTER}' must be a number of seconds {bounds}; it is {seconds}")
    if DELIVER_AT in given:
        raise wrong(f"property '{DELIVER_AT}' cannot be given for a half message: its commit says when")
    begin = checked(Begin, {"messages": [request.fields(given)], "check_after_ms": seconds * SECOND_MS})
    return str(service.transactions.decisions.begin(topic, begin, trace).id)


def _receipt(message_id: str, body: str, more: str = "") -> str:
    about = element("MessageId", message_id) + element("MessageBodyMD5", md5_of(body))
    return document("Message", about + more)


# -- consume ----------------------------------------------------------------------------------------------------------


@request
class Asked:
    """Parameters that say how many messages to take. `trans`: the call is that which it names."""

    numOfMessages: int = optional(integer(1, MESSAGES_MAX, default=1))  # noqa: N815 - as clients spell it
    waitseconds: int = optional(integer(0, WAIT_SECONDS_MAX, default=0))
    trans: str = optional(string(default=""))

    @property
    def wait_ms(self) -> int:
        return min(self.waitseconds * SECOND_MS, WAIT_MS_MAX)


@request
class AskedByTag(Asked):
    tag: str = optional(string(default=""))


@CALLS.operation("GET", SUBSCRIPTION, "consume", {}, AskedByTag, is_frequent=True)
def mq_consume(service: Service, topic: Topic, group_name: str, request: AskedByTag) -> Outcome:
    popped = _popped(service, topic, group_name, request)
    shown = [_delivered(delivery) for delivery in popped.deliveries]
    return 200, _some(shown, messages_text(shown))


def _popped(service: Service, topic: Topic, group_name: str, request: AskedByTag) -> Popped:
    ask = Pop(request.numOfMessages, wait_ms=request.wait_ms, fill=True, notes_first=True, space=SPACE)
    wanted = _filter(request.tag)
    while True:
        try:
            return service.consuming.pop(topic, group_name, ask, _suits(request, wanted))
        except Unsuitable as unsuitable:
            group = unsuitable.group
        if request.trans and not group.ordered:
            raise wrong(f"parameter 'trans' is '{ORDER}', but group '{group.name}' is not ordered")
        if wanted and group.filter is None:
            group = service.admin.groups.adopt_filter(topic, group_name, wanted)
        if wanted and not _has_filter(group, wanted):
            raise wrong(f"parameter 'tag' asks for {_listed(wanted)}, but {_received(group)}: a group has one filter")


def _suits(request: AskedByTag, wanted: Filter | None) -> Suits:
    """A consumer's filter must not take messages from the others of its group: all of them have one filter."""
    return lambda group: (not request.trans or bool(group.ordered)) and (wanted is None or _has_filter(group, wanted))


def _filter(tag: str) -> Filter | None:
    """None: whatever the group receives. Raises InvalidFilter."""
    if tag in ("", "*"):
        return None
    return parse_filter({"tags": list(dict.fromkeys(part.strip() for part in tag.split("||")))})


def _has_filter(group: Group, wanted: Filter) -> bool:
    given = group.filter.given if group.filter else {}
    return set(given.get("tags", ())) == set(wanted.given["tags"])


def _listed(wanted: Filter) -> str:
    return f"'{'||'.join(wanted.given['tags'])}'"


def _received(group: Group) -> str:
    if group.filter is None:
        return f"group '{group.name}' has no filter"
    given = group.filter.given
    what = _listed(group.filter) if "tags" in given else f"what fulfils '{given['expression']}'"
    return f"group '{group.name}' receives {what}"


def _delivered(delivery: Delivery) -> Shown:
    stored = delivery.stored
    published_at_ms = stored.message.sent_at_ms or stored.stored_at_ms
    times = (published_at_ms, delivery.invisible_until_ms, delivery.first_at_ms, delivery.attempt)
    return Shown(stored.message, stored.message_id, delivery.receipt, *times)


def _some(shown: list[Shown], text: str) -> str:
    if not shown:
        raise MqError("MessageNotExist", NO_MESSAGE)
    return text


# -- ack --------------------------------------------------------------------------------------------------------------


@request
class Handles:
    """The receipt handles of a request."""

    ReceiptHandle: list[str] = required(array(string(), minItems=1, maxItems=ELEMENTS_MAX))

    def sound(self) -> list[str]:
        """Raises MqError."""
        for handle in self.ReceiptHandle:
            if not 1 <= len(handle) <= RECEIPT_CHARS_MAX:
                bounds = f"1 to {RECEIPT_CHARS_MAX} characters"
                raise MqError("ReceiptHandleError", f"a receipt handle has {bounds}; one has {len(handle)}")
        return self.ReceiptHandle


@CALLS.operation("DELETE", SUBSCRIPTION, "consume", {}, Handles, is_frequent=True)
def mq_ack(service: Service, topic: Topic, group_name: str, request: Handles) -> Outcome:
    failed = service.consuming.ack(topic, group_name, request.sound())
    if any(failure.code == RECEIPT_INVALID for failure in failed):
        service.env.catalogue.group(topic, group_name)  # it is not there, perhaps: that says more
    if failed:
        codes = {RECEIPT_INVALID: "ReceiptHandleError"}
        raise HandlesFailed([(failure.receipt, codes.get(failure.code, "MessageNotExist")) for failure in failed])
    return 204, ""


# -- half messages ----------------------------------------------------------------------------------------------------


@CALLS.operation("GET", PATH, "produce", {}, Asked, hands_out=("",))
def mq_check(service: Service, topic: Topic, request: Asked) -> Outcome:
    now = service.env.runtime.now
    taken = service.transactions.checks.check(topic, request.numOfMessages, request.wait_ms)
    shown = [
        Shown(message, str(each.id), str(each.id), each.id.begun_at_ms, each.check_at_ms, now(), each.checks)
        for each, messages in ((begun.transaction, begun.messages) for begun in taken)
        for message in messages
    ]
    return 200, _some(shown, messages_text(shown))


@CALLS.operation("DELETE", PATH, "produce", {}, Handles)
def mq_commit(service: Service, topic: Topic, request: Handles) -> Outcome:
    def commit(handle: str) -> None:
        service.transactions.decisions.commit(topic, handle)
        service.stored(topic)

    return _decided(request, commit)


@CALLS.operation("DELETE", PATH, "produce", {}, Handles)
def mq_rollback(service: Service, topic: Topic, request: Handles) -> Outcome:
    return _decided(request, lambda handle: service.transactions.decisions.roll_back(topic, handle))


def _decided(request: Handles, decide: Callable[[str], None]) -> Outcome:
    handle, *others = request.sound()
    if others:
        raise wrong(f"a commit or a rollback has one receipt handle; this one has {1 + len(others)}")
    try:
        decide(handle)
    except (TransactionNotFound, TransactionEnded):
        raise HandlesFailed([(handle, "MessageNotExist")]) from None
    return 204, ""
