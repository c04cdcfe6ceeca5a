"""Declares an action of SQS once: its members, what they must be, and who may call it. Both encodings of the wire read
this table. Handlers take and return members by the names that SQS gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from chalicelib.admin.sqs_queues import Standing
from chalicelib.api.operation import Right
from chalicelib.base.errors import TopicNotFound
from chalicelib.base.records import record
from chalicelib.catalogue.sqs_queue import SqsQueue
from chalicelib.catalogue.topic import Topic
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
    `headers`: by their names in lower case."""

    scheme: str
    host: str
    prefix: str
    account: str
    region: str
    headers: Mapping[str, str]

    def url(self, queue_name: str) -> str:
        return f"{self.scheme}://{self.host}{self.prefix}/{self.account}/{queue_name}"

    def arn(self, queue_name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{queue_name}"


@record
class Call:
    """A request to an action. `request`: its members, of the kinds that the action declares; what was not given is not
    there, and what is required is. `found`: the queue that it is about; None where the action is about none."""

    service: Service
    request: Json
    context: Context
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

    @property
    def topic(self) -> Topic:
        """The queue's topic as the catalogue has it, which knows at once what this instance changes. Raises
        TopicNotFound."""
        topic = self.service.env.catalogue.topic(self.queue.topic)
        if topic.id != self.queue.topic_id:
            raise TopicNotFound(f"topic '{topic.name}' was made again")
        return topic


Handler = Callable[[Call], Json]
"""Returns the members of the answer; those that are None, or an empty list or map, are left out. Raises SqsError, and
any DecantError."""


def present(answer: Json) -> Json:
    """The members of an answer that both encodings show."""
    return {name: value for name, value in answer.items() if value is not None and value != [] and value != {}}


class Action(NamedTuple):
    """`right`: what the caller needs, where access control is on."""

    name: str
    right: Right
    members: Structure
    required: Sequence[str]
    run: Handler

    @property
    def is_on_queue(self) -> bool:
        return "QueueUrl" in self.members.members


class Actions(dict[str, Action]):
    """Actions that belong together, by name."""

    def action(
        self, name: str, right: Right, members: Members, required: Sequence[str] = ()
    ) -> Callable[[Handler], Handler]:
        """Declares the action that the function carries out."""

        def register(run: Handler) -> Handler:
            self[name] = Action(name, right, Structure(members), required, run)
            return run

        return register
