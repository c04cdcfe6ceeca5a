"""What came of writes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.errors import StoreUnavailable
from chalicelib.store import Outcome


def raise_trouble(outcomes: Sequence[Outcome]) -> None:
    """The worst first: what may have landed."""
    troubles = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    if troubles:
        raise max(troubles, key=lambda trouble: trouble.outcome_unknown)
