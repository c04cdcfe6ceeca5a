"""Declares an action of SQS once: its members, what they must be, and who may call it. Both encodings of the wire read
this table. Handlers take and return members by the names that SQS gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from chalicelib.core.access.callers import may, may_somewhere
from chalicelib.core.access.rights import Need, Verb
from chalicelib.core.base.errors import TopicNotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.topic import Topic
from chalicelib.doors.sqs.errors import denied
from chalicelib.doors.sqs.queue import SqsQueue, own_name
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
        """The same of a queue that does not exist: what a queue of this name would have. Whoever has no right to that
        does not learn whether it exists."""
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
