"""The queue of a key: Jump Consistent Hash (J. Lamping, E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm",
2014, https://arxiv.org/abs/1406.2294).

When a topic grows from m to n queues, the share (n - m) / n of the keys moves, which is the least that balances them,
and all of these move to new queues. When it shrinks, only the keys of the queues that leave move."""

from __future__ import annotations

import hashlib

_HASH_BYTES = 8
_STATES = 2 ** (8 * _HASH_BYTES)
_MULTIPLIER = 2_862_933_555_777_941_757
"""Of the paper's linear congruential generator."""
_DRAWN_BITS = 31
_UNDRAWN_BITS = 8 * _HASH_BYTES - _DRAWN_BITS


def queue_of_key(key: str, queues: int) -> int:
    """The same in every process and version, unlike Python's own hash."""
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=_HASH_BYTES).digest(), "big")
    queue, jump = 0, 0
    while jump < queues:
        queue = jump
        state = (state * _MULTIPLIER + 1) % _STATES
        drawn = (state >> _UNDRAWN_BITS) + 1
        jump = ((queue + 1) << _DRAWN_BITS) // drawn
    return queue
