"""Counts the units a store would be billed for, and the round trips a caller waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meter:
    write_units: float = 0
    read_units: float = 0
    requests: int = 0
    round_trips: int = 0

    def since(self, earlier: Meter) -> Meter:
        return Meter(
            self.write_units - earlier.write_units,
            self.read_units - earlier.read_units,
            self.requests - earlier.requests,
            self.round_trips - earlier.round_trips,
        )

    def copy(self) -> Meter:
        return self.since(Meter())
