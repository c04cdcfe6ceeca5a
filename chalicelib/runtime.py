"""What the core takes from the world: time and chance. Injected, so that the whole core runs in a simulation."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Runtime:
    """`now`: ms since the epoch. `sleep`: takes ms. `entropy`: n bytes nobody can guess."""

    now: Callable[[], int]
    sleep: Callable[[int], None]
    entropy: Callable[[int], bytes]

    def name(self, chars: int) -> str:
        """A random name of letters, digits, `-` and `_`: 6 bits a character."""
        return base64.urlsafe_b64encode(self.entropy(-(-chars * 6 // 8))).decode()[:chars]

    def choice(self, options: Sequence[T]) -> T:
        return options[int.from_bytes(self.entropy(4), "big") % len(options)]


def system() -> Runtime:
    return Runtime(
        now=lambda: time.time_ns() // 1_000_000,
        sleep=lambda ms: time.sleep(ms / 1_000),
        entropy=os.urandom,
    )
