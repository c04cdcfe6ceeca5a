"""What came of writes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.base.errors import StoreUnavailable
from chalicelib.store import Outcome
from chalicelib.table.writes import Item, Refused


def found_items(outcomes: Sequence[Outcome]) -> list[Item | None]:
    """The item that each write left, or found when it was refused. Raises StoreUnavailable."""
    raise_trouble(outcomes)
    known = [outcome for outcome in outcomes if not isinstance(outcome, StoreUnavailable)]
    return [outcome.before if isinstance(outcome, Refused) else outcome for outcome in known]


def raise_trouble(outcomes: Sequence[Outcome]) -> None:
    """The worst first: what may have landed."""
    troubles = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    if troubles:
        raise max(troubles, key=lambda trouble: trouble.outcome_unknown)
