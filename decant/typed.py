"""JSON as values of Python types, and back: dataclasses, TypedDicts, enums, dates and what they hold.

A field that the type does not know is skipped, so that a sender can add one before its consumers know it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin
from uuid import UUID

from decant.errors import SettingError

_FROM_TEXT: dict[Any, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}
_PLAIN = (str, bool, int, float, type(None))


def as_json(value: Any) -> Any:
    """For `json.dumps(default=)`: what it does not know itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"the payload holds {value!r:.80}, which is no JSON")


def demand_known(kind: Any) -> None:
    """Raises SettingError for a type that JSON cannot hold."""
    if not _is_known(kind):
        raise SettingError(f"no codec is known for {kind!r}: give one, as Topic(name, codec=Codec(encode, decode))")


def _is_known(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    is_class = isinstance(origin, type)
    return (
        kind in (Any, object)
        or origin in (*_PLAIN, *_FROM_TEXT, Literal, Union, types.UnionType, dict, list, tuple, set, Mapping, Sequence)
        or _fields_of(origin) is not None
        or (is_class and issubclass(origin, enum.Enum))
    )


def read(kind: Any, value: Any, path: str = "the payload") -> Any:
    """The JSON value as a value of the type. Raises ValueError, which names the field."""
    origin = get_origin(kind) or kind
    if kind in (Any, object):
        return value
    if origin in (Union, types.UnionType):
        return _any_of(get_args(kind), value, path)
    if origin is Literal:
        return _demanded(value in get_args(kind), value, path, f"one of {get_args(kind)}")
    if origin in _READERS:
        return _READERS[origin](get_args(kind), value, path)
    if origin in _PLAIN:
        return _plain(origin, value, path)
    if origin in _FROM_TEXT or (isinstance(origin, type) and issubclass(origin, enum.Enum)):
        return _converted(_FROM_TEXT.get(origin, origin), origin.__name__, value, path)
    return _object(origin, value, path)


def _demanded(is_good: bool, value: Any, path: str, wanted: str) -> Any:
    if not is_good:
        raise ValueError(f"{path} must be {wanted}; it is {value!r:.80}")
    return value


def _plain(kind: Any, value: Any, path: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    return _demanded(type(value) is kind, value, path, "null" if kind is type(None) else f"of type {kind.__name__}")


def _converted(convert: Callable[[Any], Any], name: str, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, ArithmeticError):
        raise ValueError(f"{path} must be a {name}; it is {value!r:.80}") from None


def _any_of(kinds: Sequence[Any], value: Any, path: str) -> Any:
    """Reads the value as the first of these types that takes it."""
    reasons = []
    for kind in kinds:
        try:
            return read(kind, value, path)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(reasons[0])


def _list(kinds: Sequence[Any], value: Any, path: str) -> list[Any]:
    _demanded(isinstance(value, list), value, path, "a list")
    return [read(kinds[0] if kinds else Any, item, f"{path}[{place}]") for place, item in enumerate(value)]


def _tuple(kinds: Sequence[Any], value: Any, path: str) -> tuple[Any, ...]:
    if not kinds or kinds[-1] is Ellipsis:
        return tuple(_list(kinds[:1], value, path))
    _demanded(isinstance(value, list) and len(value) == len(kinds), value, path, f"a list of {len(kinds)}")
    return tuple(
        read(kind, item, f"{path}[{place}]") for place, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _dict(kinds: Sequence[Any], value: Any, path: str) -> dict[str, Any]:
    _demanded(isinstance(value, dict), value, path, "an object")
    inner = kinds[1] if kinds else Any
    return {name: read(inner, item, f"{path}.{name}") for name, item in value.items()}


_READERS: dict[Any, Callable[[Sequence[Any], Any, str], Any]] = {
    list: _list,
    Sequence: _list,
    tuple: _tuple,
    set: lambda kinds, value, path: set(_list(kinds, value, path)),
    dict: _dict,
    Mapping: _dict,
}


def _object(kind: Any, value: Any, path: str) -> Any:
    """A dataclass, or a TypedDict."""
    fields = _fields_of(kind) or {}
    _demanded(isinstance(value, dict), value, path, f"an object ({kind.__name__})")
    for name, (_, is_needed) in fields.items():
        if is_needed and name not in value:
            raise ValueError(f"{path} has no field {name!r}, which {kind.__name__} needs")
    given = {name: read(inner, value[name], f"{path}.{name}") for name, (inner, _) in fields.items() if name in value}
    return kind(**given)


@functools.cache
def _fields_of(kind: Any) -> dict[str, tuple[Any, bool]] | None:
    """The type of each field, and whether it is needed. None: the type has no fields."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        missing = dataclasses.MISSING
        return {
            field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(kind)
            if field.init
        }
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        return {name: (_bare(inner), name in kind.__required_keys__) for name, inner in hints.items()}
    return None


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) in (NotRequired, Required) else kind
