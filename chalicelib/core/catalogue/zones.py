"""A topic's zones: the queues near each site."""

from __future__ import annotations

import re

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import Label, array, check, mapping, quoted, string
from chalicelib.core.base.limits import NAME_PATTERN, QUEUES_MAX
from chalicelib.core.base.message import QUEUE
from chalicelib.core.catalogue.settings import AsGiven

ZONE = string(pattern=NAME_PATTERN, examples=["zone-a"])
ZONES = mapping(
    propertyNames={"pattern": NAME_PATTERN},
    additionalProperties=array(QUEUE, minItems=1, maxItems=QUEUES_MAX, uniqueItems=True),
    examples=[{"zone-a": [0], "zone-b": [1]}],
)


class Zones(AsGiven):
    """`given`: the queues of each zone, by its name. Empty: no zones."""

    def queues(self, zone: str | None) -> tuple[int, ...]:
        return tuple(self.given.get(zone, ()))

    def zone_of(self, queue: int) -> str | None:
        """None: the queue is near all sites."""
        return next((zone for zone, queues in self.given.items() if queue in queues), None)

    def demand(self, zone: str, label: Label) -> None:
        """Raises InvalidField if there is no such zone."""
        if zone not in self.given:
            known = ", ".join(map(quoted, self.given)) or "none"
            raise label.wrong(f"a zone of the topic, which has {known}", zone)

    def demand_queues(self, count: int) -> None:
        """Raises InvalidField if a zone names a queue that a topic with this many queues lacks."""
        for zone, queues in self.given.items():
            if (queue := max(queues)) >= count:
                raise InvalidField(
                    f"{_label(zone)} names queue {queue}, but field 'queues' is {count}: queues count from 0"
                )


NO_ZONES = Zones({})


def parse(data: object, label: Label) -> Zones:
    """Raises InvalidField."""
    if not isinstance(data, dict):
        raise label.wrong('an object with a list of queues for each zone, as {"zone-a": [0, 1]}', data)
    owners: dict[int, str] = {}
    for zone, queues in data.items():
        if not re.fullmatch(NAME_PATTERN, zone):
            raise InvalidField(f"{label} names zone {quoted(zone)}; a name must match {NAME_PATTERN}")
        if not isinstance(queues, list) or not queues:
            raise _label(zone).wrong("a list of at least one queue", queues)
        for queue in queues:
            check(QUEUE, queue, _label(zone))
            if queue in owners:
                raise InvalidField(
                    f"{_label(zone)} names queue {queue}, which is in zone {quoted(owners[queue])} already"
                )
            owners[queue] = zone
    return Zones(data)


def _label(zone: str) -> Label:
    return Label(f"zones.{zone}")
