"""Makes small changes of a source file, each of which some check should notice."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider
from mutmut.mutation import mutators

Operator = Callable[[Any], Iterable[cst.CSTNode]]
"""Takes a node of one kind, and returns its changes."""
_Part = cst.Arg | cst.BaseElement | cst.BaseDictElement

_GUARDS = {"Exists", "Absent", "Equals", "AtMost", "AtLeast", "SizeIs", "SizeBelow", "Lacks", "Either"}
_WRITTEN = _GUARDS | {"Set", "Add", "Append"}
"""They cannot be made with an argument less."""
_FENCES = {"_fence", "_is_that", "guards", "unchanged"}
"""Names of functions that return guards, and of arguments that take them."""

_DECISIONS = (cst.Comparison, cst.BooleanOperation)
_DISPLAYS = (cst.Tuple, cst.List, cst.Set, cst.Dict)
_TARGETS = (cst.AssignTarget, cst.For, cst.CompFor)
_TESTED = (cst.If, cst.While, cst.IfExp, cst.CompIf, cst.Assert)


@dataclass(frozen=True)
class Place:
    """A function of a module or class, or the module without those."""

    name: str
    first_line: int
    text: str

    @property
    def is_function(self) -> bool:
        return bool(self.name)

    @cached_property
    def version(self) -> str:
        return sha256(self.text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Mutant:
    path: Path
    place: Place
    line: int
    decides: bool
    """Whether it changes a guard, a condition or a fence."""
    changed: tuple[str, ...]
    """The lines that it removes and adds, as in a diff."""
    text: str
    """The whole file."""
    nth: int = 0
    """Its number among those of a function with the same difference."""

    @cached_property
    def id(self) -> str:
        about = (str(self.path), self.place.name, *self.changed, str(self.nth))
        return sha256("\n".join(about).encode()).hexdigest()[:8]

    @property
    def version(self) -> str:
        """The version of the function that it is in."""
        return self.place.version

    @property
    def change(self) -> str:
        """The change in one line."""
        before, after = (" ".join(line[1:].strip() for line in self.changed if line[0] == sign) for sign in "-+")
        return f"{before} => {after}"

    @property
    def diff(self) -> str:
        where = f"{self.path}:{self.line} {self.place.name}".rstrip()
        return "\n".join((f"{self.id} {'decides' if self.decides else 'acts'} {where}", *self.changed))


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file that compile."""
    text = path.read_text()
    wrapper = MetadataWrapper(cst.parse_module(text))
    finder = _Finder(text, wrapper.module)
    wrapper.visit(finder)
    places, mutants = Places(text), {}
    for after, (line, decides, changed) in finder.found.items():
        if after == text or not _is_valid(after):
            continue
        mutant = Mutant(path, places.of(line), line, decides, changed, after)
        while mutant.id in mutants:
            mutant = replace(mutant, nth=mutant.nth + 1)
        mutants[mutant.id] = mutant
    return list(mutants.values())


def _is_valid(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


class Places:
    """The outermost functions of a file, by line."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._functions = list(_functions(ast.parse(text).body))

    def of(self, line: int) -> Place:
        for name, function in self._functions:
            if function.body[0].lineno <= line <= (function.end_lineno or 0):
                return self._place(name, function)
        return Place("", 0, self._lines[line - 1])

    def functions(self) -> list[Place]:
        return [self._place(name, function) for name, function in self._functions]

    def _place(self, name: str, function: ast.FunctionDef) -> Place:
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        return Place(name, first, "\n".join(self._lines[first - 1 : function.end_lineno]))


def _functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (ByteSpanPositionProvider, ParentNodeProvider)

    def __init__(self, text: str, module: cst.Module) -> None:
        super().__init__()
        self._text, self._module = text.encode(), module
        self.found: dict[str, tuple[int, bool, tuple[str, ...]]] = {}
        """Yields the texts after a change: its line, whether it decides, and the changed lines."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)):
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                for changed in operator(node):
                    self._note(node, changed)
        for part in _parts(node, self.get_metadata(ParentNodeProvider, node, None)):
            self._cut(_all_parts(node), part)
        if isinstance(node, _TESTED):
            for changed in _decided(node.test, isinstance(node, cst.While)):
                self._note(node.test, changed)
        if isinstance(node, cst.MatchCase) and node.guard is None:
            self._replace(node.pattern, self._module.code_for_node(node.pattern) + " if False", True)
        return True

    def _note(self, node: cst.CSTNode, changed: cst.CSTNode) -> None:
        self._replace(node, self._module.code_for_node(changed).strip(), self._decides(node))

    def _replace(self, node: cst.CSTNode, code: str, decides: bool) -> None:
        """An operator's own space belongs to its node, and stays."""
        if self.get_metadata(ByteSpanPositionProvider, node, None):
            first, last = self._span(node)
            text = self._text[first:last]
            start, end = last - len(text.lstrip()), first + len(text.rstrip())
            self._splice(start, end, code, decides)

    def _cut(self, parts: Sequence[_Part], place: int) -> None:
        part, code = parts[place], ""
        start, end = self._span(part)
        if isinstance(part.comma, cst.Comma):
            end += len(self._module.code_for_node(part.comma).encode())
        if isinstance(part, cst.BaseElement) and len(parts) == 2 and place == 0:
            end = self._span(parts[1])[1]  # one element is a tuple by its comma
            code = self._module.code_for_node(parts[1]).rstrip(", \n") + ","
        self._splice(start, end, code, self._decides(part) or _is_of_guards(self._module.code_for_node(part)))

    def _span(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.get_metadata(ByteSpanPositionProvider, node)
        return span.start, span.start + span.length

    def _splice(self, start: int, end: int, code: str, decides: bool) -> None:
        before, after = self._text[:start], self._text[end:]
        line = 1 + before.count(b"\n")
        first, last = before.rfind(b"\n") + 1, end + (after + b"\n").find(b"\n")
        removed = self._text[first:last].decode()
        added = self._text[first:start].decode() + code + self._text[end:last].decode()
        changed = [f"-{each}" for each in removed.split("\n")] + [f"+{each}" for each in added.split("\n")]
        self.found.setdefault((before + code.encode() + after).decode(), (line, decides, tuple(changed)))

    def _decides(self, node: cst.CSTNode) -> bool:
        below: cst.CSTNode | None = None
        above: cst.CSTNode | None = node
        while above is not None and not isinstance(above, (cst.BaseCompoundStatement, cst.BaseSmallStatement)):
            if isinstance(above, _DECISIONS) or _is_not(above) or _is_tested(above, below) or _is_guard(above):
                return True
            below, above = above, self.get_metadata(ParentNodeProvider, above, None)
        return above is not None and _is_tested(above, below)


def _is_not(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)


def _is_tested(node: cst.CSTNode, below: cst.CSTNode | None) -> bool:
    return isinstance(node, _TESTED) and (below is None or node.test is below)


def _is_guard(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in _FENCES
    return isinstance(node, cst.Call) and _called(node) in _GUARDS | _FENCES


def _called(node: cst.Call) -> str:
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return name.value if isinstance(name, cst.Name) else ""


def _is_of_guards(code: str) -> bool:
    return any(f"{name}(" in code for name in _GUARDS | _FENCES)


# -- operators that mutmut lacks --------------------------------------------------------------------------------------


def _all_parts(node: cst.CSTNode) -> Sequence[_Part]:
    if isinstance(node, cst.Call):
        return node.args
    return node.elements if isinstance(node, _DISPLAYS) else ()


def _parts(node: cst.CSTNode, above: cst.CSTNode | None) -> Sequence[int]:
    """The places of guards, effects, parts of an answer, and of arguments that may have a default."""
    if isinstance(node, cst.Call) and len(node.args) > 1:
        places = [place for place, arg in enumerate(node.args) if arg.keyword is None]
        last = -1 if _called(node) in _WRITTEN else max(places, default=-1)
        return [place for place, arg in enumerate(node.args) if arg.keyword is not None or place == last]
    if not isinstance(node, _DISPLAYS) or isinstance(above, _TARGETS):
        return ()
    is_path = isinstance(node, cst.Tuple) and all(isinstance(each.value, cst.SimpleString) for each in node.elements)
    return range(0 if is_path else len(node.elements))


def _either_operand(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    yield from (node.left, node.right)


def _decided(test: cst.BaseExpression, is_loop: bool) -> Iterator[cst.CSTNode]:
    """The condition becomes always false or true (for a loop only false: true would be endless), and is still
    evaluated."""
    test = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    for operator, literal in ((cst.And(), "False"), (cst.Or(), "True"))[: 1 if is_loop else 2]:
        yield cst.BooleanOperation(test, operator, cst.Name(literal), [cst.LeftParen()], [cst.RightParen()])


def _nothing(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if not (isinstance(node, cst.Expr) and isinstance(node.value, (cst.BaseString, cst.Yield))):
        yield cst.Pass()


def _one_less(node: cst.Integer) -> Iterator[cst.CSTNode]:
    yield cst.parse_expression(
        f"({node.evaluated_value - 1})" if node.evaluated_value < 1 else str(node.evaluated_value - 1)
    )


_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def _opposite(node: cst.Call) -> Iterator[cst.CSTNode]:
    if isinstance(node.func, cst.Name) and node.func.value in _OPPOSITES:
        yield node.with_changes(func=cst.Name(_OPPOSITES[node.func.value]))


_LEFT_OUT = (
    mutators.operator_string,  # texts are not judged
    mutators.operator_assignment,  # None for any value, which the types rule out
    mutators.operator_arg_removal,
    mutators.operator_if_exp,
    mutators.operator_match,
)
OPERATORS: list[tuple[type | tuple[type, ...], Operator]] = [
    *(each for each in mutators.mutation_operators if each[1] not in _LEFT_OUT),
    (cst.BooleanOperation, _either_operand),
    ((cst.Expr, cst.Raise, cst.Del), _nothing),
    (cst.Integer, _one_less),
    (cst.Call, _opposite),
]
