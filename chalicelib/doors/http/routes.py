"""Which operations a path has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple
from urllib.parse import unquote

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation

TEMPLATES = {
    path: {operation.method: operation for operation in OPERATIONS.values() if operation.path == path}
    for path in dict.fromkeys(operation.path for operation in OPERATIONS.values())
}
"""Path template -> method -> operation."""


class _Shape(NamedTuple):
    """How to recognise a path of a template: by its fixed parts. `named`: where the names stand."""

    operations: Mapping[str, Operation]
    fixed_of: Callable[[list[str]], object]
    fixed: object
    named: list[int]


def _shape(path: str) -> _Shape:
    parts = path.split("/")
    named = [place for place, part in enumerate(parts) if part.startswith("{")]
    fixed_of = itemgetter(*(place for place in range(len(parts)) if place not in named))
    return _Shape(TEMPLATES[path], fixed_of, fixed_of(parts), named)


_SHAPES: dict[tuple[int, str | None], list[_Shape]] = defaultdict(list)
"""By the number of parts, and the last one; None stands for a name."""
for _path in TEMPLATES:
    _last = _path.split("/")[-1]
    _SHAPES[_path.count("/") + 1, None if _last.startswith("{") else _last].append(_shape(_path))


def operations_at(path: str) -> tuple[Mapping[str, Operation], list[str]] | None:
    """The operations by their methods, and the names in the path. None: there is no such path. One with an extra slash
    is none: otherwise every resource would have aliases."""
    parts = path.split("/")
    for last in (parts[-1], None):
        for shape in _SHAPES.get((len(parts), last), ()):
            names = [parts[place] for place in shape.named]
            if all(names) and shape.fixed_of(parts) == shape.fixed:
                return shape.operations, [unquote(name) for name in names]
    return None
