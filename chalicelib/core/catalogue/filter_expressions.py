"""Filter expressions in JMESPath: checked when a group sets one, and evaluated for each message. Doors check and
evaluate other JMESPath here too.

Each evaluation counts its steps and fails at a limit, which bounds its time and memory for every message and for
filters stored before the limit existed. `demand_sound` also evaluates the expression on two sample messages, to reject
expressions that always fail. The count is exact, so results need no static bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.lexer import Lexer
from jmespath.visitor import TreeInterpreter

from chalicelib.core.base.errors import InvalidField, InvalidFilter
from chalicelib.core.base.fields import Label, shown
from chalicelib.core.base.limits import PROPERTIES_BYTES_MAX
from chalicelib.core.base.message import Message

EXPRESSIONS_KEPT_MAX = 1_000
"""Compiled expressions cached by one instance."""

EXPRESSION_DEPTH_MAX = 150
"""Levels of a parsed expression. Evaluating one takes up to four of Python's 1,000 stack frames."""
STEPS_MIN = 4_096
"""Steps that one evaluation may take for any message. An expression of 1,024 characters has fewer than 1,024 nodes."""
STEPS_PER_CHAR = 64
"""Further steps for each character of tag, key and properties: the time grows no faster than the message."""
CHARS_PER_STEP = 16
"""Characters copied or compared in one step: this takes less time than visiting a node."""


def judge(expression: str, message: Message) -> tuple[bool, int]:
    """Whether the expression selects this message, and how many steps it took. An evaluation that fails (such as on the
    length of a number) or takes too many steps does not select it, so that no message blocks those behind it."""
    evaluation = _Evaluation(steps_max(message))
    try:
        is_selected = _is_true(evaluation.visit(_compiled(expression), _seen(message)))
    except (*_FAILURES, RecursionError):
        is_selected = False
    return is_selected, evaluation.taken


def demand_sound(expression: str) -> None:
    """Raises InvalidFilter, with the position of the error."""
    label = Label("filter.expression")
    with _explained(expression, label):
        _demand_known(expression, label)
        _demand_few_steps(expression)


def demand_known(expression: str, label: Label) -> None:
    """Raises InvalidFilter if this is not JMESPath, or calls an unknown function."""
    with _explained(expression, label):
        _demand_known(expression, label)


def value_of(expression: str, document: object, chars: int) -> object:
    """The value of the expression on JSON of about this many characters. Raises InvalidField if it fails, or takes more
    steps than a filter may take on as many characters."""
    try:
        return _Evaluation(_steps_max(chars)).visit(_compiled(expression), document)
    except TooManySteps:
        raise InvalidField(f"{shown(expression)} takes more than {_steps_max(chars)} steps") from None
    except (*_FAILURES, RecursionError) as error:
        raise InvalidField(f"{shown(expression)} fails: {shown(str(error))}") from None


@contextmanager
def _explained(expression: str, label: Label) -> Iterator[None]:
    try:
        yield
    except JMESPathError as error:
        where = f"at position {getattr(error, 'lex_position', 0)} of {shown(expression)}"
        raise InvalidFilter(f"{label} is not JMESPath: it fails {where}") from None
    except RecursionError:
        most = f"at most {EXPRESSION_DEPTH_MAX} levels"
        raise InvalidFilter(f"{label} is nested too deep, {most}: {shown(expression)}") from None


def _demand_known(expression: str, label: Label) -> None:
    """Raises InvalidFilter for errors that the parser misses."""
    nodes = list(_nodes(_compiled(expression)))
    if any(node["type"] == "slice" and node["children"][_STEP] == 0 for node in nodes):
        raise InvalidFilter(f"{label} has a slice whose step is 0: {shown(expression)}")
    calls = [node for node in nodes if node["type"] == "function_expression"]
    for node, position in zip(calls, _calls(expression), strict=True):
        if wrong := _wrong_call(node["value"], len(node["children"])):
            raise InvalidFilter(f"{label} calls {wrong}, at position {position} of {shown(expression)}")


_MANY_PROPERTIES = {f"{number:03x}": "x" for number in range(PROPERTIES_BYTES_MAX // 4)}
"""Nearly as many properties as a message can have."""


def _demand_few_steps(expression: str) -> None:
    named = {node["value"]: "x" for node in _nodes(_compiled(expression)) if node["type"] == "field"}
    for properties in (named, _MANY_PROPERTIES | named):
        sample = Message("", None, key="x", tag="x", properties=properties)
        try:
            _Probe(steps_max(sample)).visit(_compiled(expression), _seen(sample))
        except TooManySteps:
            most = f"{steps_max(sample)} steps for a message ({len(properties)} properties)"
            raise InvalidFilter(f"field 'filter.expression' takes more than {most}: {shown(expression)}") from None
        except _FAILURES:
            pass  # it may succeed for other messages


_STEP = 2
"""The index of the step among the children of a slice."""


def _nodes(node: Any, depth: int = 1) -> Iterator[Any]:
    """The nodes of a parsed expression, in the order in which they are written. Raises RecursionError below
    `EXPRESSION_DEPTH_MAX`."""
    if depth > EXPRESSION_DEPTH_MAX:
        raise RecursionError
    yield node
    for child in _children(node):
        yield from _nodes(child, depth + 1)


def _children(node: Any) -> list[Any]:
    if node["type"] == "slice":
        return []  # its children are numbers
    if node["type"] == "filter_projection":
        left, right, condition = node["children"]
        return [left, condition, right]
    children: list[Any] = node["children"]
    return children


def _calls(expression: str) -> Iterator[int]:
    """The positions of function calls: a parenthesis after a name is a call, any other one groups."""
    for token, following in pairwise(Lexer().tokenize(expression)):
        if following["type"] == "lparen" and token["type"] in ("unquoted_identifier", "rparen"):
            yield token["start"]


def _wrong_call(name: str, count: int) -> str | None:
    if name not in Functions.FUNCTION_TABLE:
        return f"{name}(), which is not a JMESPath function"
    signature = Functions.FUNCTION_TABLE[name]["signature"]
    least, is_open = len(signature), bool(signature) and bool(signature[-1].get("variadic"))
    if count == least or (is_open and count > least):
        return None
    return f"{name}() with {count} argument{'s' * (count != 1)}, where it takes {least}{' or more' if is_open else ''}"


_FAILURES = (JMESPathError, TypeError, ValueError, ArithmeticError)


@lru_cache(EXPRESSIONS_KEPT_MAX)
def _compiled(expression: str) -> Any:
    return jmespath.compile(expression).parsed


def _seen(message: Message) -> dict[str, Any]:
    return {"tag": message.tag, "key": message.key, "properties": message.properties}


def steps_max(message: Message) -> int:
    texts = chain((message.tag or "", message.key or ""), message.properties, message.properties.values())
    return _steps_max(sum(map(len, texts)))


def _steps_max(chars: int) -> int:
    return STEPS_MIN + STEPS_PER_CHAR * chars


class TooManySteps(JMESPathError):
    pass


_FUNCTIONS = Functions()
_OPERANDS = [{"type": "index", "value": place, "children": []} for place in range(2)]
"""Nodes that take the values of a comparator's operands, which have been evaluated, from a list of them."""


class _Evaluation(TreeInterpreter):
    """Evaluates one expression once and counts the steps: nodes visited, elements and characters copied or compared.

    Projections, `map` and `sort_by` visit a node for each element. The methods below count other work before it copies
    or compares anything. The rest takes constant time per step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = self._left = steps

    @property
    def taken(self) -> int:
        """The steps taken: at least one, and one above the limit if it failed for that."""
        return max(1, self._steps - self._left)

    def visit(self, node: Any, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooManySteps
        return getattr(self, f"visit_{node['type']}")(node, value)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        parts = [part if isinstance(part, list) else [part] for part in base]
        self._spend(len(parts) + sum(map(len, parts)))
        return list(chain.from_iterable(parts))

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self._spend(len(value))
        return super().visit_slice(node, value)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        operands = [self.visit(child, value) for child in node["children"]]
        self._spend_all(operands)
        evaluated: Any = {**node, "children": _OPERANDS}
        return super().visit_comparator(evaluated, operands)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        arguments = [self.visit(child, value) for child in node["children"]]
        self._spend_all(arguments)
        match arguments:
            case [str() as separator, list() as texts] if node["value"] == "join":
                self._spend(len(separator) * len(texts) // CHARS_PER_STEP)
        return _FUNCTIONS.call_function(node["value"], arguments)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManySteps

    def _spend_all(self, values: list[Any]) -> None:
        """Counts the values with everything in them. A list that occurs in many places counts in each, because
        comparing it or turning it into text takes the time in each."""
        pending = list(values)
        while pending:
            value = pending.pop()
            self._spend(1 + len(value) // CHARS_PER_STEP if isinstance(value, str) else 1)
            if isinstance(value, dict):
                pending += chain(value, value.values())
            elif isinstance(value, list):
                pending += value


class _Probe(_Evaluation):
    """An evaluation in which every condition is true, so that it counts all possible work."""

    def visit_or_expression(self, node: Any, value: Any) -> Any:
        return [self.visit(child, value) for child in node["children"]][-1]

    visit_and_expression = visit_or_expression

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        base, right, condition = node["children"]
        elements = self.visit(base, value)
        if not isinstance(elements, list):
            return None
        for element in elements:
            self.visit(condition, element)
        return [self.visit(right, element) for element in elements]


def _is_true(value: object) -> bool:
    """Truth in JMESPath: null, false and empty values are false; 0 is true."""
    return value is not None and value is not False and value not in ("", [], {})
