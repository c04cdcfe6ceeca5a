"""A consumer group: its settings, and the writes that make, change and remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.base.errors import InvalidField
from chalicelib.base.fields import Fields, shown
from chalicelib.base.limits import (
    ATTEMPTS_DEFAULT,
    ATTEMPTS_MAX,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    INSTANT_MS_MAX,
    INVISIBLE_MS_DEFAULT,
    INVISIBLE_MS_MAX,
)
from chalicelib.catalogue import alarm, backoff, filters, rate
from chalicelib.catalogue.alarm import Alarm
from chalicelib.catalogue.backoff import Backoff
from chalicelib.catalogue.filters import Filter
from chalicelib.catalogue.rate import Rate
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Equals, Item, Key, RemoveItem, Set, Write

CLUSTERING, BROADCAST = "clustering", "broadcast"

DEFAULTS: dict[str, Any] = {
    "start": "earliest",
    "mode": CLUSTERING,
    "invisible_ms": INVISIBLE_MS_DEFAULT,
    "max_attempts": ATTEMPTS_DEFAULT,
    "max_in_flight": IN_FLIGHT_DEFAULT,
    "backoff_ms": backoff.DEFAULT,
    "paused": False,
    "ordered": False,
    "rate_limit": None,
    "filter": None,
    "alarm": None,
}
FIELDS = frozenset(DEFAULTS)
FIXED = frozenset({"mode", "ordered"})
"""What stays as it was at creation; asking for something else is refused."""

_TEXTS: dict[str, type[Backoff | Filter | Rate | Alarm]] = {
    "backoff_ms": Backoff,
    "rate_limit": Rate,
    "filter": Filter,
    "alarm": Alarm,
}
"""Settings that are stored as JSON text, as the client wrote them; one that is None is not stored."""


@dataclass(frozen=True, slots=True)
class Group:
    """`id`: the incarnation, which its cursors' keys carry. `starts`: where a cursor begins that is not there yet.
    `version` counts changes."""

    topic_id: str
    name: str
    id: str
    starts: list[int]
    start: str | int
    invisible_ms: int
    max_attempts: int
    max_in_flight: int
    backoff_ms: Backoff
    paused: bool
    created_at_ms: int
    version: int = 0
    filter: Filter | None = None
    ordered: bool = False
    rate_limit: Rate | None = None
    mode: str = CLUSTERING
    alarm: Alarm | None = None

    @classmethod
    def of(cls, topic_id: str, name: str, item: Item) -> Group:
        settings: dict[str, Any] = {field: item.get(field, DEFAULTS[field]) for field in FIELDS - _TEXTS.keys()}
        settings |= {field: noun.of(item[field]) if field in item else None for field, noun in _TEXTS.items()}
        made = (topic_id, name, item["id"], item["starts"])
        return cls(*made, created_at_ms=item["created_at_ms"], version=item["version"], **settings)

    @classmethod
    def new(
        cls, topic_id: str, name: str, group_id: str, starts: list[int], now: int, given: Mapping[str, Any]
    ) -> Group:
        return cls(topic_id, name, group_id, starts, created_at_ms=now, **{**DEFAULTS, **given})

    def as_json(self) -> dict[str, Any]:
        settings: dict[str, Any] = {field: getattr(self, field) for field in DEFAULTS}
        settings |= {field: settings[field] and settings[field].given for field in _TEXTS}
        return {"group": self.name, **settings, "created_at_ms": self.created_at_ms}

    @property
    def window_key(self) -> Key:
        return keys.window(self.topic_id, self.name, self.id)

    @property
    def alarm_key(self) -> Key:
        return keys.alarm(self.topic_id, self.name, self.id)

    @property
    def is_broadcast(self) -> bool:
        """Whether every consumer gets every message, and has cursors of its own."""
        return self.mode == BROADCAST

    @property
    def has_alarm(self) -> bool:
        return self.alarm is not None and self.alarm.given is not None

    def cursor_key(self, queue: int, consumer: str = "") -> Key:
        return keys.cursor(self.topic_id, self.name, self.id, queue, consumer)

    def start_of(self, queue: int) -> int:
        """A queue that came after the group is read from its beginning."""
        return self.starts[queue] if queue < len(self.starts) else 0


def parse_settings(data: object) -> dict[str, Any]:
    """The settings given, checked; those not given are left out."""
    fields = Fields(data, FIELDS)
    parsed = {
        "start": _start(fields),
        "mode": _mode(fields),
        "invisible_ms": fields.integer("invisible_ms", 1, INVISIBLE_MS_MAX),
        "max_attempts": fields.integer("max_attempts", 1, ATTEMPTS_MAX),
        "max_in_flight": fields.integer("max_in_flight", 1, IN_FLIGHT_MAX),
        "backoff_ms": backoff.parse(fields.raw("backoff_ms")) if fields.given("backoff_ms") else None,
        "paused": fields.flag("paused"),
        "ordered": fields.flag("ordered"),
        "rate_limit": rate.parse(fields.raw("rate_limit")) if fields.given("rate_limit") else None,
        "filter": filters.parse(fields.raw("filter")) if fields.given("filter") else None,
        "alarm": alarm.parse(fields.raw("alarm")) if fields.given("alarm") else None,
    }
    return {name: value for name, value in parsed.items() if value is not None}


def _start(fields: Fields) -> str | int | None:
    start = fields.raw("start")
    if start is None or start in ("earliest", "latest"):
        return start  # type: ignore[no-any-return]
    if type(start) is not int or not 0 <= start <= INSTANT_MS_MAX:
        raise fields.wrong("start", f'"earliest", "latest" or an instant in ms from 0 to {INSTANT_MS_MAX}')
    return start


def _mode(fields: Fields) -> str | None:
    mode = fields.raw("mode")
    if mode is not None and mode not in (CLUSTERING, BROADCAST):
        raise fields.wrong("mode", f'"{CLUSTERING}" or "{BROADCAST}"')
    return mode  # type: ignore[no-any-return]


def create(group: Group) -> list[Write]:
    """Makes the group, and lists it in the topic's directory, if there is none of this name; refused, it shows the one
    there is. A transaction."""
    settings = {field: getattr(group, field) for field in ("id", "starts", "created_at_ms", "version", *DEFAULTS)}
    making = Write(
        keys.group(group.topic_id, group.name),
        (Absent(("id",)),),
        _set(settings),
        landed=lambda before: before is not None and before["id"] == group.id,
    )
    return [making, Write(keys.directory(group.topic_id, group.name), (), (Set(("listed",), group.id),))]


def demand_unchanged(group: Group, given: Mapping[str, Any]) -> None:
    """Raises InvalidField for what cannot be changed later: leases are out that were made under it."""
    for field in FIXED & given.keys():
        now, wanted = shown(getattr(group, field)), shown(given[field])
        if now != wanted:
            fixed = f"is {now} and cannot be changed to {wanted} once the group exists"
            raise InvalidField(f"field '{field}' of group {group.name!r} {fixed}")


def change(group: Group, given: Mapping[str, Any]) -> Write:
    """Changes the settings given, if nobody has changed any since: one that arrives late must not undo what came
    after it. `start` counts at creation only."""
    new = {field: value for field, value in given.items() if field != "start"} | {"version": group.version + 1}
    return Write(
        keys.group(group.topic_id, group.name),
        (Equals(("id",), group.id), Equals(("version",), group.version)),
        _set(new),
        landed=lambda before: before is not None and _stored(new).items() <= before.items(),
    )


def _set(settings: Mapping[str, Any]) -> tuple[Set, ...]:
    return tuple(Set((field,), value) for field, value in _stored(settings).items())


def _stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field: value.text if isinstance(value, Backoff | Filter | Rate | Alarm) else value
        for field, value in settings.items()
        if value is not None
    }


def remove(group: Group) -> list[Write]:
    """Takes the group away, and off the directory. A transaction."""
    gone = Write(
        keys.group(group.topic_id, group.name),
        (Equals(("id",), group.id),),
        (RemoveItem(),),
        landed=lambda before: before is None,
    )
    return [gone, Write(keys.directory(group.topic_id, group.name), (), (RemoveItem(),))]
