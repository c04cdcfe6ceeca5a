"""Which operations a path has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import unquote

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation

TEMPLATES = {
    path: {operation.method: operation for operation in OPERATIONS.values() if operation.path == path}
    for path in dict.fromkeys(operation.path for operation in OPERATIONS.values())
}
"""Path template -> method -> operation."""

_SHAPES: dict[tuple[int, str | None], list[tuple[str, list[str | None]]]] = defaultdict(list)
"""Number of parts, and the last one -> the templates of this kind, and their parts. None stands for a name."""
for _path in TEMPLATES:
    _parts = [None if part.startswith("{") else part for part in _path.split("/")]
    _SHAPES[len(_parts), _parts[-1]].append((_path, _parts))


def operations_at(path: str) -> tuple[Mapping[str, Operation], list[str]] | None:
    """The operations by their methods, and the names in the path. None: there is no such path. One with an extra slash
    is none: otherwise every resource would have aliases."""
    parts = path.split("/")
    for last in (parts[-1], None):
        for template, known in _SHAPES.get((len(parts), last), ()):
            if all(map(_fits, parts, known)):
                names = [unquote(part) for part, kind in zip(parts, known, strict=True) if kind is None]
                return TEMPLATES[template], names
    return None


def _fits(part: str, known: str | None) -> bool:
    return bool(part) if known is None else part == known
