"""Declares an action of SQS once: its members, what they must be, and who may call it. Both encodings of the wire read
this table. Handlers take and return members by the names that SQS gives them. Batches and pages are checked here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from chalicelib.core.access.callers import may, may_somewhere
from chalicelib.core.access.rights import Need, Verb
from chalicelib.core.base.errors import InvalidField, TopicNotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import PAGE_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store.paging import place_of
from chalicelib.doors.sqs.errors import SqsError, bad_value, denied, missing
from chalicelib.doors.sqs.queue import NAME_PATTERN, SqsQueue, own_name
from chalicelib.doors.sqs.registry import Change, Standing, queues_of
from chalicelib.service import Service

Json = dict[str, Any]

# -- members ----------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """A string; also a number or a flag that SQS spells as text."""


class Integer(NamedTuple):
    """A whole number."""


class Blob(NamedTuple):
    """Bytes, in base64 on the wire."""


class List(NamedTuple):
    """Several of one kind."""

    of: Kind


class Map(NamedTuple):
    """Values of one kind by name."""

    of: Kind


class Structure(NamedTuple):
    """An object of these members. Others are ignored: newer clients send newer members."""

    members: Members


Kind = Text | Integer | Blob | List | Map | Structure
Members = Mapping[str, Kind]

TEXT, INTEGER, BLOB = Text(), Integer(), Blob()
TEXTS = List(TEXT)
TEXT_MAP = Map(TEXT)

# -- calls ------------------------------------------------------------------------------------------------------------


@record
class Context:
    """Where a request came in, and from whom. `prefix`: what stands before the door's own paths, such as the stage.
    `headers`: by their names in lower case. `signer`: the access key id that has signed the request; None where keys
    are not looked at."""

    scheme: str
    host: str
    prefix: str
    account: str
    region: str
    headers: Mapping[str, str]
    signer: str | None

    def url(self, queue_name: str) -> str:
        return f"{self.scheme}://{self.host}{self.prefix}/{self.account}/{queue_name}"

    def arn(self, queue_name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{queue_name}"


class Carrier(Protocol):
    """The encoding of an answer."""

    @property
    def growth(self) -> int:
        """How many times as long as in JSON the fields of a message can be."""

    def weigh(self, members: Json) -> int:
        """How long these members are in an answer of Lambda, in bytes."""


@record
class Call:
    """A request to `action`. `request`: its members, of the kinds that the action declares; what was not given is not
    there, and what is required is. `found`: the queue that it is about; None where the action is about none."""

    service: Service
    action: Action
    request: Json
    context: Context
    carrier: Carrier
    found: Standing | None = None

    @property
    def standing(self) -> Standing:
        """The queue that it is about, with its topic and its group."""
        if self.found is None:
            raise TypeError("the action is about no queue")
        return self.found

    @property
    def queue(self) -> SqsQueue:
        return self.standing.queue

    def current(self) -> Standing:
        """The queue, read again. It may be another by now. Raises QueueGone, SqsError."""
        standing = queues_of(self.service).current(self.queue.name)
        self.demand(standing.queue)
        return standing

    def change(self, change_of: Callable[[Standing], Change]) -> None:
        """Changes the queue, as it is then. Raises QueueGone, SqsError, InvalidField."""

        def allowed(standing: Standing) -> Change:
            self.demand(standing.queue)
            return change_of(standing)

        queues_of(self.service).change(self.queue.name, allowed)

    @property
    def topic(self) -> Topic:
        """The queue's topic as the catalogue has it, which knows at once what this instance changes. Raises
        TopicNotFound."""
        topic = self.service.env.catalogue.topic(self.queue.topic)
        if topic.id != self.queue.topic_id:
            raise TopicNotFound(f"topic '{topic.name}' was made again")
        return topic

    def demand(self, queue: SqsQueue) -> None:
        """Raises SqsError unless the caller has the action's right on this queue."""
        self.demand_at(queue.name, queue.topic, queue.group, queue.owns_topic)

    def demand_absent(self, name: str) -> None:
        """The same of a queue that does not exist: what a queue of this name would have. A caller without the right to
        it does not learn whether it exists."""
        self.demand_at(name, own_name(name), own_name(name), owns_topic=True)

    def demand_anywhere(self) -> None:
        """Raises SqsError unless the caller has the action's right on something."""
        if not may_somewhere(self.action.right):
            raise denied(f"perform sqs:{self.action.name}")

    def demand_at(self, name: str, topic: str, group: str, owns_topic: bool) -> None:
        is_whole = self.action.right == "produce" or (owns_topic and self.action.with_topic)
        if not may(Need(self.action.right, topic, None if is_whole else group)):
            raise denied(f"perform sqs:{self.action.name} on queue {quoted(name)}")

    def demand_consumer(self, name: str, topic: str, group: str) -> None:
        """Raises SqsError unless the caller may receive from the queue whose messages it has move elsewhere."""
        if not may(Need("consume", topic, group)):
            raise denied(f"let messages leave queue {quoted(name)}, from which it may not receive")

    def is_shown(self, queue: SqsQueue) -> bool:
        """Whether the caller may know of the queue."""
        return may(Need("read", queue.topic, queue.group))


Handler = Callable[[Call], Json]
"""Returns the members of the answer; those that are None, or an empty list or map, are left out. Raises SqsError, and
any DecantError."""


def present(answer: Json) -> Json:
    """The members of an answer that both encodings show."""
    return {name: value for name, value in answer.items() if value is not None and value != [] and value != {}}


class Action(NamedTuple):
    """`right`: what the caller needs, where access control is on. `with_topic`: it makes, changes or deletes the topic
    of an own queue, too. `demands`: it is about no queue, and demands the right itself; no key may call another that is
    about none. `is_of_account`: it is unknown at the URL of a queue."""

    name: str
    right: Verb
    members: Structure
    required: Sequence[str]
    run: Handler
    with_topic: bool = False
    demands: bool = False
    is_of_account: bool = False

    @property
    def is_on_queue(self) -> bool:
        return "QueueUrl" in self.members.members


class Actions(dict[str, Action]):
    """Actions that belong together, by name."""

    def action(
        self, name: str, right: Verb, members: Members, required: Sequence[str] = (), **more: bool
    ) -> Callable[[Handler], Handler]:
        """Declares the action that the function carries out. `more`: what else an `Action` can have."""

        def register(run: Handler) -> Handler:
            self[name] = Action(name, right, Structure(members), required, run, **more)
            return run

        return register


T = TypeVar("T")

ENTRIES_MAX = 10
_ID = re.compile("[A-Za-z0-9_-]{1,80}")
_BAD_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
    " It can be at most 80 letters long."
)

Outcome = Json | SqsError


def demand_batch(entries: Sequence[Json], entry_name: str, demand: Callable[[Json], object] = lambda _: None) -> None:
    """Raises SqsError for a batch that is refused as a whole. `entry_name`: what SQS calls an entry. `demand`: raises
    it for an entry for which the whole batch is refused."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {entry_name} in the request.")
    if len(entries) > ENTRIES_MAX:
        count = f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}."
        raise SqsError("TooManyEntriesInBatchRequest", count)
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if "Id" not in entry:
            raise missing(f"{entry_name}.{number}.Id")
        if not _ID.fullmatch(entry["Id"]):
            raise SqsError("InvalidBatchEntryId", _BAD_ID)
    for entry in entries:
        demand(entry)
    for entry in entries:
        if entry["Id"] in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])


class Batch(Generic[T]):
    """The entries of a request, and what the function makes of each, or the SqsError that it raises."""

    def __init__(self, entries: Sequence[Json], check: Callable[[Json], T]) -> None:
        self._checked = [(entry["Id"], _checked(entry, check)) for entry in entries]

    @property
    def valid(self) -> list[T]:
        return [each for _, each in self._checked if not isinstance(each, SqsError)]

    def answer(self, outcomes: Iterable[Outcome]) -> Json:
        """`outcomes`: of each valid entry, the members of its answer, or its error."""
        results = iter(outcomes)
        each = [(id_, own if isinstance(own, SqsError) else next(results)) for id_, own in self._checked]
        return {
            "Successful": [{"Id": id_, **outcome} for id_, outcome in each if not isinstance(outcome, SqsError)],
            "Failed": [_failed(id_, outcome) for id_, outcome in each if isinstance(outcome, SqsError)],
        }


def _checked(entry: Json, check: Callable[[Json], T]) -> T | SqsError:
    try:
        return check(entry)
    except SqsError as error:
        return error


def _failed(id_: str, error: SqsError) -> dict[str, Any]:
    about = {"SenderFault": error.shape.is_senders, "Code": error.entry_code, "Message": error.message}
    return {"Id": id_, **about}


def page(
    call: Call, prefix: str = "", is_wanted: Callable[[SqsQueue], bool] | None = None
) -> tuple[list[str], str | None]:
    """Returns the URLs of the wanted queues whose names begin with the prefix, within `MaxResults` and from `NextToken`
    on, and the token of the next page, if the request gives a number and there is more. Raises SqsError."""
    most, token = call.request.get("MaxResults"), call.request.get("NextToken")
    if most is not None and not 1 <= most <= PAGE_MAX:
        raise bad_value(most, "MaxResults", f"Must be between 1 and {PAGE_MAX}, if provided.")
    try:
        after = place_of(token, NAME_PATTERN) if token else ""
    except InvalidField:
        raise bad_value(token, "NextToken", "It is not from a previous page.") from None
    queues, rest = queues_of(call.service).page(prefix, most or PAGE_MAX, after, is_wanted)
    return [call.context.url(queue.name) for queue in queues], rest if most else None
