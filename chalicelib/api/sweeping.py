"""What is done on a schedule. No call of a client: each request to the store has the store's whole time."""

from __future__ import annotations

from chalicelib.api.operations import Json, Operations


class Sweeping(Operations):
    def revive(self) -> Json:
        """`{"seen": cursors, "done": messages that went to the dead letters}`."""
        return self._service.sweeps.revive().as_json()

    def forward(self) -> Json:
        """`{"seen": queues in which messages may wait, "done": messages that were due, and can now be had}`."""
        return self._service.sweeps.forward().as_json()

    def expire(self) -> Json:
        """`{"seen": deleted topics that had left something, and broadcast groups, "done": topics of which nothing is
        left, and consumers that were forgotten}`."""
        return self._service.sweeps.expire().as_json()

    def check(self) -> Json:
        """`{"seen": groups that have an alarm, "done": alarms that were raised, or cleared}`."""
        return self._service.sweeps.check().as_json()
