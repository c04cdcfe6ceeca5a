"""What a group wants to see of its topic: messages with certain tags, or those that an expression is true of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jmespath
import orjson
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.lexer import Lexer

from chalicelib.errors import InvalidField, InvalidFilter
from chalicelib.fields import encodable, shown
from chalicelib.limits import EXPRESSION_CHARS_MAX, EXPRESSIONS_KEPT_MAX, FILTER_TAGS_MAX, TAG_CHARS_MAX
from chalicelib.message import Message

_FIELDS = frozenset({"tags", "expression"})
_FORMS = '{"tags": [tag, ...]} or {"expression": JMESPath over tag, key and properties}'


@dataclass(frozen=True, slots=True)
class Filter:
    """`given`: as the client wrote it, `{"tags": [...]}` or `{"expression": "..."}`."""

    given: Any

    @classmethod
    def of(cls, text: str) -> Filter:
        return cls(orjson.loads(text))

    @property
    def text(self) -> str:
        return orjson.dumps(self.given).decode()

    def wants(self, message: Message) -> bool:
        """Whether the group is to be given this message. One that the expression has no answer for (it asks for the
        length of a number, say) is not wanted: a message must not stop those behind it."""
        if "tags" in self.given:
            return message.tag in self.given["tags"]
        seen = {"tag": message.tag, "key": message.key, "properties": message.properties}
        try:
            return _is_true(_compiled(self.given["expression"]).search(seen))
        except (JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError):
            return False


@lru_cache(EXPRESSIONS_KEPT_MAX)
def _compiled(expression: str) -> Any:
    return jmespath.compile(expression)


def _is_true(value: object) -> bool:
    """As JMESPath has it: null, false, and what is empty are not; 0 is."""
    return value is not None and value is not False and value not in ("", [], {})


def parse(data: object) -> Filter:
    """Raises InvalidFilter, which says where in the expression it went wrong; InvalidField for a lone surrogate."""
    given = {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else {}
    if not isinstance(data, dict) or not data.keys() <= _FIELDS or len(given) != 1:
        raise InvalidFilter(f"field 'filter' must be {_FORMS}; it is {shown(data)}")
    if "tags" in given:
        _demand_tags(given["tags"])
    else:
        _demand_expression(given["expression"])
    return Filter(given)


def _demand_encodable(field: str, text: str) -> None:
    if not encodable(text):
        raise InvalidField(f"field '{field}' must be text without a lone surrogate; it is {shown(text)}")


def _demand_tags(tags: object) -> None:
    if not isinstance(tags, list) or not 1 <= len(tags) <= FILTER_TAGS_MAX:
        raise InvalidFilter(f"field 'filter.tags' must be a list of 1 to {FILTER_TAGS_MAX} tags; it is {shown(tags)}")
    for index, tag in enumerate(tags):
        is_tag = isinstance(tag, str) and 1 <= len(tag) <= TAG_CHARS_MAX and "|" not in tag and tag == tag.strip()
        if not is_tag:
            raise InvalidFilter(
                f"field 'filter.tags[{index}]' must be a tag that a message can have; it is {shown(tag)}"
            )
        _demand_encodable(f"filter.tags[{index}]", tag)


def _demand_expression(expression: object) -> None:
    if not isinstance(expression, str) or not 1 <= len(expression) <= EXPRESSION_CHARS_MAX:
        wanted = f"a JMESPath expression of 1 to {EXPRESSION_CHARS_MAX} characters"
        raise InvalidFilter(f"field 'filter.expression' must be {wanted}; it is {shown(expression)}")
    _demand_encodable("filter.expression", expression)
    try:
        nodes = list(_nodes(_compiled(expression).parsed))
    except RecursionError:
        raise InvalidFilter(f"field 'filter.expression' is nested too deep: {shown(expression)}") from None
    except JMESPathError as error:
        where = f"at position {getattr(error, 'lex_position', 0)} of {shown(expression)}"
        raise InvalidFilter(f"field 'filter.expression' is not JMESPath: it goes wrong {where}") from None
    if any(node["type"] == "slice" and node["children"][_STEP] == 0 for node in nodes):
        raise InvalidFilter(f"field 'filter.expression' has a slice whose step is 0: {shown(expression)}")
    calls = [node for node in nodes if node["type"] == "function_expression"]
    for node, position in zip(calls, _calls(expression), strict=True):
        if wrong := _wrong_call(node["value"], len(node["children"])):
            raise InvalidFilter(
                f"field 'filter.expression' calls {wrong}, at position {position} of {shown(expression)}"
            )


_STEP = 2
"""Place of the step among the children of a slice."""


def _nodes(node: Any) -> Iterator[Any]:
    """The nodes of a parsed expression, in the order in which they are written."""
    yield node
    children = node["children"]
    if node["type"] == "slice":
        return  # its children are numbers
    if node["type"] == "filter_projection":
        left, right, condition = children
        children = [left, condition, right]
    for child in children:
        yield from _nodes(child)


def _calls(expression: str) -> Iterator[int]:
    """Where the functions stand that are called: a parenthesis after a name is a call, any other one groups."""
    for token, following in pairwise(Lexer().tokenize(expression)):
        if following["type"] == "lparen" and token["type"] in ("unquoted_identifier", "rparen"):
            yield token["start"]


def _wrong_call(name: str, count: int) -> str | None:
    if name not in Functions.FUNCTION_TABLE:
        return f"{name}(), which is no function of JMESPath"
    signature = Functions.FUNCTION_TABLE[name]["signature"]
    least, is_open = len(signature), bool(signature) and bool(signature[-1].get("variadic"))
    if count == least or (is_open and count > least):
        return None
    return f"{name}() with {count} argument{'s' * (count != 1)}, where it takes {least}{' or more' if is_open else ''}"
