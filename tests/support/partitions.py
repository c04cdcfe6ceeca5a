"""The load that DynamoDB lets one partition key carry: a share of units a second, savings of unused units, and splits
for heat."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from dataclasses import dataclass

from chalicelib.core.table.writes import Key

WRITE_UNITS, READ_UNITS = 1_000, 3_000
"""A second."""
SAVED_S = 300
"""Seconds for which a partition keeps unused units."""
HOT_MS = 300_000
"""A partition that throttles for this long splits, where its sort keys allow that."""
CALM_MS = 60_000
"""A partition that has not throttled for this long is no longer hot. It is forgotten once all its units are saved."""

_TOUCHED = 64
"""How many sort keys of the last requests count: a split finds the middle of the different ones. At the end of a log
they are the last segments, and all later ones lie on one side, so that the split helps nobody."""


@dataclass(frozen=True, slots=True)
class Limits:
    write_units: float = WRITE_UNITS
    read_units: float = READ_UNITS
    saved_s: float = SAVED_S
    hot_ms: int = HOT_MS

    def scaled(self, by: float) -> Limits:
        return Limits(self.write_units / by, self.read_units / by, self.saved_s, self.hot_ms)


class Partitions:
    """The partitions of one table, by key. `throttled` counts requests, by kind of key and verb: "log write". Keys that
    begin with one of `shut` throttle all requests."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.throttled: Counter[str] = Counter()
        self.shut: tuple[str, ...] = ()
        self._keys: dict[str, _Splits] = {}
        self._tidied_ms = 0

    def admits(self, key: Key, is_write: bool, now: int) -> bool:
        """Whether the request passes; then `charge` takes the units. The cost of a request is not known before, so the
        last one leaves a debt."""
        self._tidy(now)
        splits = self._of(key.pk, now)
        partition = splits.at(key.sk)
        is_shut = bool(self.shut) and key.pk.startswith(self.shut)
        if not is_shut and partition.bucket(is_write).left(now) > 0:
            partition.touched.append(key.sk)
            return True
        kind, verb = key.pk.partition("#")[0], "write" if is_write else "read"
        self.throttled[f"{kind} {verb}"] += 1
        splits.heat(key.sk, now)
        return False

    def charge(self, key: Key, is_write: bool, now: int, units: float) -> None:
        self._of(key.pk, now).at(key.sk).bucket(is_write).units -= units

    def _of(self, pk: str, now: int) -> _Splits:
        return self._keys.get(pk) or self._keys.setdefault(pk, _Splits(self.limits, now))

    def _tidy(self, now: int) -> None:
        """Forgets calm keys: a table has a key for each payload."""
        if now - self._tidied_ms >= CALM_MS:
            self._tidied_ms = now
            self._keys = {pk: splits for pk, splits in self._keys.items() if not splits.is_as_new(now)}


class _Bucket:
    def __init__(self, per_second: float, saved_s: float, now: int) -> None:
        self._per_second, self._most, self._at_ms = per_second, per_second * saved_s, now
        self.units = self._most

    def left(self, now: int) -> float:
        self.units = min(self._most, self.units + (now - self._at_ms) * self._per_second / 1_000)
        self._at_ms = now
        return self.units

    def is_full(self, now: int) -> bool:
        return self.left(now) >= self._most

    def spend_savings(self) -> None:
        self.units = self._per_second


class _Partition:
    def __init__(self, limits: Limits, now: int) -> None:
        self._writes = _Bucket(limits.write_units, limits.saved_s, now)
        self._reads = _Bucket(limits.read_units, limits.saved_s, now)
        self.touched: deque[str] = deque(maxlen=_TOUCHED)
        self.hot_from_ms = self.hot_until_ms = now

    def bucket(self, is_write: bool) -> _Bucket:
        return self._writes if is_write else self._reads

    def is_as_new(self, now: int) -> bool:
        return self._writes.is_full(now) and self._reads.is_full(now)

    def halves(self, limits: Limits, now: int) -> list[_Partition]:
        """The partition after a split, without savings."""
        halves = [_Partition(limits, now) for _ in range(2)]
        for half in halves:
            half._writes.spend_savings()
            half._reads.spend_savings()
        return halves


class _Splits:
    """The partitions that share a key: each holds the sort keys from a bound on."""

    def __init__(self, limits: Limits, now: int) -> None:
        self._limits = limits
        self._bounds: list[str] = []
        self._partitions = [_Partition(limits, now)]

    def at(self, sk: str) -> _Partition:
        return self._partitions[bisect_right(self._bounds, sk)]

    def heat(self, sk: str, now: int) -> None:
        """It has throttled a request."""
        hot = self.at(sk)
        if now > hot.hot_until_ms:
            hot.hot_from_ms = now
        hot.hot_until_ms = now + CALM_MS
        touched = sorted({*hot.touched})
        if now - hot.hot_from_ms >= self._limits.hot_ms and len(touched) > 1:
            place = bisect_right(self._bounds, sk)
            insort(self._bounds, touched[len(touched) // 2])
            self._partitions[place : place + 1] = hot.halves(self._limits, now)

    def is_as_new(self, now: int) -> bool:
        return not self._bounds and self._partitions[0].is_as_new(now)
