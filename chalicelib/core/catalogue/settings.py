"""The settings of topics and groups as item attributes, and the writes that create, change and delete the items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import orjson

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import shown
from chalicelib.core.base.records import record
from chalicelib.core.table.writes import Absent, Equals, Key, RemoveItem, Write, sets


@record
class AsGiven:
    """A setting of several forms or values, stored as JSON text. `given`: as the client wrote it."""

    given: Any

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(orjson.loads(text))

    @property
    def text(self) -> str:
        return orjson.dumps(self.given).decode()

    def _text(self, name: str) -> str | None:
        text: str | None = self.given.get(name)
        return text


def create(key: Key, incarnation: str, settings: Mapping[str, Any]) -> Write:
    """Creates the item, unless one of this name exists: then the rejected write returns that. Send it as a transaction;
    otherwise a late repeat could restore a deleted topic or group under its old id."""
    return Write(
        key,
        (Absent(("id",)),),
        sets({"id": incarnation, **stored(settings)}),
        landed=lambda before: before["id"] == incarnation,
    )


def change(key: Key, incarnation: str, version: int, settings: Mapping[str, Any]) -> Write:
    """Changes these settings if none has changed since: a late write must not undo a newer one."""
    new = {"version": version + 1, **stored(settings)}
    return Write(
        key,
        (Equals(("id",), incarnation), Equals(("version",), version)),
        sets(new),
        landed=lambda before: before.get("id") == incarnation and new.items() <= before.items(),
    )


def demand_unchanged(kind: str, name: str, fixed: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises InvalidField for a given value that differs from that of a fixed setting."""
    for field, value in fixed.items():
        wanted = given.get(field, value)
        if wanted != value:
            change = f"is {shown(value)} and cannot be changed to {shown(wanted)}"
            raise InvalidField(f"field '{field}' of {kind} {name!r} {change} once the {kind} exists")


def remove(key: Key, incarnation: str) -> Write:
    """Deletes this incarnation: everything that carries its id becomes unreachable."""
    return Write(key, (Equals(("id",), incarnation),), (RemoveItem(),))


def stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as an item holds them; None is not stored."""
    values = {name: value for name, value in settings.items() if value is not None}
    return {name: value.text if isinstance(value, AsGiven) else value for name, value in values.items()}
