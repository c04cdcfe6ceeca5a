"""Declares an operation of the contract once. Routes, checks, the OpenAPI document and direct calls follow from it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from chalicelib.core.access.callers import may
from chalicelib.core.access.rights import Need
from chalicelib.core.base import limits
from chalicelib.core.base.deadline import one_call
from chalicelib.core.base.errors import DecantError, Forbidden, GroupNotFound
from chalicelib.core.base.fields import (
    Answer,
    Label,
    array,
    checked,
    declarations,
    demand_name,
    given,
    integer,
    nullable,
    optional,
    request,
    string,
)
from chalicelib.core.telemetry import record
from chalicelib.service import Service

Json = dict[str, Any]
Right = Literal["anyone", "produce", "consume", "read", "admin"]
Answers = type[Answer] | Mapping[int, type[Answer] | str]
F = TypeVar("F", bound=Callable[..., Any])


class TextAnswer(Answer):
    """A response that is not JSON. Subclasses name its media type and give an example."""

    MEDIA_TYPE: ClassVar[str]
    EXAMPLE: ClassVar[str]


class Operation(NamedTuple):
    """`run` takes the service, the names in the path (the `Topic` in place of its name, if it must exist), the request,
    and the headers by name; it returns the answer, or the status and the answer. Its docstring is the operation's
    summary and description; `{LIMIT}` stands for the value of a limit.

    `right`: the right that a caller needs if access control is on. `answers`: by status, the type of the body, or a
    text if there is no body. `errors`: those that do not follow from the method and the path. A GET has its request in
    the query, others in the body. `asks_store`: False for the document itself. `is_frequent`: it takes the topic from
    the cache to save a read; the cache may hold a deleted topic for some seconds. `is_filtered`: it shows only what the
    caller may see, so the right for any topic is enough.

    `hands_out`: the fields of the request that send bodies to a place where the caller may read them, and so also need
    the right to `consume` on the same topic and group; "" stands for the answer."""

    method: str
    path: str
    path_names: tuple[str, ...]
    right: Right
    run: Callable[..., Any]
    answers: Mapping[int, type[Answer] | str]
    request: type | None
    errors: tuple[type[DecantError], ...] = ()
    headers: tuple[str, ...] = ()
    asks_store: bool = True
    is_frequent: bool = False
    is_filtered: bool = False
    hands_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.run.__name__)

    @property
    def id(self) -> str:
        """The name as the document spells it."""
        first, *words = self.name.split("_")
        return first + "".join(map(str.capitalize, words))

    @property
    def media_type(self) -> str:
        return getattr(self.answers.get(200), "MEDIA_TYPE", "application/json")

    @property
    def existing(self) -> tuple[str, ...]:
        """The names in the path that must exist: all, except the last one of a PUT."""
        return self.path_names[:-1] if self.method == "PUT" else self.path_names

    @property
    def text(self) -> tuple[str, str]:
        """Summary and description."""
        summary, _, text = filled(self.run.__doc__).partition("\n\n")
        return _joined(summary).removesuffix("."), _joined(text)

    def call(self, service: Service, names: Sequence[str], data: Any, **headers: str | None) -> tuple[int, Any]:
        """Status and answer. `names`: those in the path. `data`: the request as JSON, or as a query's strings."""
        run: Callable[..., Any] = self._in_topic if "topic" in self.existing else self.run
        for kind, name in zip(self.path_names, names, strict=True):
            if kind in ("topic", "group"):
                demand_name(kind, name)
        if "" in self.hands_out:
            self._demand_consumer(names, "the answer")
        request: Any = self._checked(self.request, data) if self.request else None
        for field in filter(None, self.hands_out):
            value = request.get(field)
            if getattr(value, "given", value):  # an empty setting removes it
                self._demand_consumer(names, f"field '{field}'")
        arguments = [*names, request] if self.request else names
        with one_call(service.env.runtime.uptime()) as call:
            try:
                answer = run(service, *arguments, **headers)
            finally:
                record.waited(call.waited_ms)
        return answer if isinstance(answer, tuple) else (min(self.answers), answer)

    def _demand_consumer(self, names: Sequence[str], what: str) -> None:
        """Raises Forbidden if the caller may not see the bodies that this hands out."""
        named = dict(zip(self.path_names, names, strict=True))
        need = Need("consume", named["topic"], named.get("group"))
        if not may(need):
            raise Forbidden(f"the token has no right to {need}, whose messages {what} hands out")

    def _checked(self, request: type, data: Any) -> Any:
        """A PUT changes only the settings that are given, so it gets a dict of these."""
        if self.method == "GET":
            return checked(request, _typed(request, data), Label(noun="parameter"))
        return (given if self.method == "PUT" else checked)(request, data)

    def _in_topic(self, service: Service, name: str, *arguments: Any, **headers: str | None) -> Any:
        """Runs with the current topic. A frequent operation runs with the cached topic, and again with the current one
        if the cached topic was replaced and has no such group."""
        catalogue = service.env.catalogue
        if not self.is_frequent:
            return self.run(service, catalogue.current_topic(name), *arguments, **headers)
        cached = catalogue.topic(name)
        try:
            return self.run(service, cached, *arguments, **headers)
        except GroupNotFound:
            current = catalogue.current_topic(name) if "group" in self.path_names else cached
            if current.id == cached.id:
                raise
            return self.run(service, current, *arguments, **headers)


def _typed(request: type, query: Any) -> Json:
    """The query with declared integers converted from digits; the check reports any others."""
    kinds = {name: declared.schema["type"] for name, declared in declarations(request).items()}
    return {
        name: int(value) if kinds.get(name) == "integer" and re.fullmatch(r"-?[0-9]{1,18}", value) else value
        for name, value in query.items()
    }


def described(kind: type) -> dict[str, str]:
    """The texts of a type's fields by name, and its own under "". They come from its docstring, where `name: text`
    begins the text of a field, and from those of its bases for inherited fields."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for part in re.split(r"\n*^(?=[a-z0-9_]+: )", filled(vars(base).get("__doc__")), flags=re.M):
            name, colon, text = part.partition(": ")
            is_field = colon and re.fullmatch("[a-z0-9_]+", name)
            if part:
                texts[name if is_field else ""] = _joined(text if is_field else part)
    return texts


def filled(docstring: str | None) -> str:
    """The docstring with limits replaced by their values."""
    return re.sub(r"{([A-Z_]+)}", lambda name: str(getattr(limits, name[1])), inspect.cleandoc(docstring or ""))


def _joined(text: str) -> str:
    return re.sub(r"(?<!\n)\n *(?!\n)", " ", text)


class Family:
    """Operations that belong together, under one tag of the document."""

    def __init__(self, tag: str, text: str | None) -> None:
        self.tag = tag
        self.text = _joined(filled(text))
        self.operations: list[Operation] = []

    def operation(
        self, method: str, path: str, right: Right, answers: Answers, request: type | None = None, **more: Any
    ) -> Callable[[F], F]:
        """Declares the operation that the function implements. `more`: other fields of `Operation`."""
        names = tuple(re.findall(r"{(\w+)}", path))
        by_status = {200: answers} if isinstance(answers, type) else answers

        def register(run: F) -> F:
            self.operations.append(Operation(method, path, names, right, run, by_status, request, **more))
            return run

        return register


# -- what operations share --------------------------------------------------------------------------------------------

TOPIC = "/topics/{topic}"
GROUP = TOPIC + "/groups/{group}"
DELETED = {204: "Deleted."}

TOPIC_NAME = string(pattern=limits.NAME_PATTERN, examples=["orders"], description="The topic's name.")
MESSAGE_ID = string(
    minLength=1,
    examples=["5c0a7f3e91d2b8460111"],
    description="The message's id. Id, queue and offset stay the same through every retry.",
)
TRANSACTION_ID = string(
    minLength=1, examples=["0d2f6b91c47e5a38b19b76e8eb00"], description="The transaction's id. Opaque."
)
CORRELATION_ID = string(
    minLength=1,
    examples=["MQGbdvMNaAALuFEF5Qe2X5W9ZjhwWlE3YTpvcmRlcnPkDeQ_jRM4gr9ZbK8Fv6Ht"],
    description="The request's id. Opaque.",
)
GROUP_NAME = string(pattern=limits.NAME_PATTERN, examples=["billing"], description="The group's name.")


@request
class Page:
    """limit: How many items to return, at most.
    next: The `next` of the previous page."""

    limit: int = optional(integer(1, limits.PAGE_MAX, default=limits.PAGE_DEFAULT))
    next: str | None = optional(string(minLength=1))


def page_of(items: str, kind: type[Answer]) -> type[Answer]:
    """One page of a list."""
    text = f"""A page of {items}.

    {items}: At most `limit` {items}.
    next: Pass it as `next` to get the next page. Null on the last page."""
    fields = {items: array(kind), "next": nullable(string()), "__doc__": text}
    return type(f"{kind.__name__}List", (Answer,), fields)
