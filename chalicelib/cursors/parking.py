"""Leases that nobody holds: their messages come again when they are due."""

from __future__ import annotations

from chalicelib.base.runtime import Runtime
from chalicelib.cursors.lease import PARKED, SPLIT_CHARS, TOKEN_CHARS, Lease


def parked(runtime: Runtime, offsets: range, due: int, attempt: int) -> Lease:
    """`attempt`: the deliveries so far. The token is one that was never used."""
    token = PARKED + runtime.name(TOKEN_CHARS + SPLIT_CHARS - 1)
    return Lease(token, offsets.start, len(offsets), due, attempt)
