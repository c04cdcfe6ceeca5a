"""The schedule of the deployed functions. It runs each minute: other files come first, and this one need not wait."""

from __future__ import annotations

import time

from tests.support.deployment import Deployment

SCHEDULE_SECONDS = 90
"""A minute, and a sweep on a busy machine."""


def test_the_schedule_delivers_what_is_due(deployed: Deployment, delayed: str) -> None:
    """Without a pop only the sweep delivers the message; looking does not."""
    give_up_at = time.monotonic() + SCHEDULE_SECONDS
    while (status := deployed.call("GET", f"/topics/later/messages/{delayed}")[0]) != 200:
        assert status == 404
        assert time.monotonic() < give_up_at, "no sweep has delivered it"
        time.sleep(1)
