"""Pages through a partition sorted by name. The token `next` says where to continue and is opaque to clients."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import base64url, of_base64url, shown
from chalicelib.core.base.limits import NAME_PATTERN
from chalicelib.core.store import Range, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item


def page(
    store: Store, pk: str, limit: int, token: str | None, pattern: str = NAME_PATTERN
) -> tuple[list[Item], str | None]:
    """Up to `limit` items after the one the token names, and the token of the next page (None: no more items).
    `pattern`: that of the sort keys.

    The token is a position in the order, not a count, so creating or deleting items meanwhile repeats and skips
    nothing."""
    after = after_place(token, pattern)
    items = store.read([Range(pk, after, keys.LAST, limit=limit + 1, strong=True)])[0]
    if len(items) <= limit:
        return items, None
    return items[:limit], token_of(items[limit - 1]["sk"])


def after_place(token: str | None, pattern: str) -> str:
    """Sorts directly after the sort key that the token names; without a token, before all."""
    return keys.FIRST if token is None else f"{place_of(token, pattern)}{keys.AFTER}"


def token_of(place: str) -> str:
    return base64url(place.encode())


def place_of(token: str, pattern: str) -> str:
    """The position the token names. Raises InvalidField if the token is not from a page."""
    place = (of_base64url(token) or b"").decode(errors="replace")
    if not re.fullmatch(pattern, place):
        raise _forged(token)
    return place


def positions_token(positions: Mapping[int, int]) -> str:
    """Offsets in queues as a token."""
    return token_of(",".join(f"{queue}:{offset}" for queue, offset in sorted(positions.items())))


def positions_of(token: str, queues: int) -> dict[int, int]:
    """Queue -> offset. Raises InvalidField if the token is not from a page of a topic with this many queues."""
    pairs = place_of(token, "[0-9]{1,3}:[0-9]{1,15}(,[0-9]{1,3}:[0-9]{1,15})*").split(",")
    positions = {int(queue): int(offset) for queue, _, offset in (pair.partition(":") for pair in pairs)}
    if max(positions) >= queues or positions_token(positions) != token:
        raise _forged(token)
    return positions


def _forged(token: str) -> InvalidField:
    return InvalidField(f"parameter 'next' must be a token from a previous page; it is {shown(token)}")
