"""Which operations a path has."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation

TEMPLATES = {
    path: {operation.method: operation for operation in OPERATIONS.values() if operation.path == path}
    for path in dict.fromkeys(operation.path for operation in OPERATIONS.values())
}
"""Path template -> method -> operation."""

_PARTS = {path: [None if part.startswith("{") else part for part in path.split("/")] for path in TEMPLATES}
"""None stands for a name."""


def operations_at(path: str) -> tuple[Mapping[str, Operation], list[str]] | None:
    """The operations by their methods, and the names in the path. None: there is no such path. One with an extra slash
    is none: otherwise every resource would have aliases."""
    parts = path.split("/")
    for template, known in _PARTS.items():
        if len(parts) == len(known) and all(map(_fits, parts, known)):
            return TEMPLATES[template], [unquote(part) for part, kind in zip(parts, known, strict=True) if kind is None]
    return None


def _fits(part: str, known: str | None) -> bool:
    return bool(part) if known is None else part == known
