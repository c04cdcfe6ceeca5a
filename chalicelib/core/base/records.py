"""Dataclasses that a cold start can afford.

`dataclasses` compiles up to eight methods for each class as it is defined, which was almost half of a cold start. Here
the classes share their methods. Only `__init__` is compiled for each class, with its first instance.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(kind: type[T]) -> type[T]:
    """An immutable dataclass, equal to another of its type whose fields are equal. mypy rejects changes; a check at run
    time would make creating instances four times as slow."""
    made: Any = mutable(kind)
    made.__eq__, made.__hash__ = _equal, _hash
    return made  # type: ignore[no-any-return]


@dataclass_transform(field_specifiers=(dataclasses.field,))
def mutable(kind: type[T]) -> type[T]:
    """A dataclass whose instances are equal only to themselves."""
    kind.__doc__ = kind.__doc__ or kind.__name__  # or `dataclasses` writes one
    caches = any(isinstance(value, cached_property) for value in vars(kind).values())
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=not caches)(kind)

    def begin(self: Any, *given: Any, **named: Any) -> None:
        made.__init__ = _initializer(made)
        made.__init__(self, *given, **named)

    made.__init__, made.__repr__ = begin, _repr
    return made  # type: ignore[no-any-return]


def _initializer(kind: Any) -> Any:
    """The same that `dataclasses` makes."""
    known: dict[str, Any] = {"_MISSING": dataclasses.MISSING}
    positional, named, lines = ["self"], ["*"], ["pass"]
    for field in dataclasses.fields(kind):
        parameter = value = name = field.name
        if field.default is not dataclasses.MISSING:
            known[f"_{name}"], parameter = field.default, f"{name}=_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_{name}"], parameter = field.default_factory, f"{name}=_MISSING"
            value = f"_{name}() if {name} is _MISSING else {name}"
        (named if field.kw_only else positional).append(parameter)
        lines.append(f"self.{name} = {value}")
    parameters = ", ".join(positional + (named if len(named) > 1 else []))
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines), known)  # noqa: S102
    return known["__init__"]


def _equal(self: Any, other: object) -> bool:
    return type(self) is type(other) and _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    names = [field.name for field in dataclasses.fields(self)]
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _values(instance: Any) -> tuple[Any, ...]:
    return tuple(getattr(instance, field.name) for field in dataclasses.fields(instance))
