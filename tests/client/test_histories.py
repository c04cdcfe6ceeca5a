"""Consumers over a network that drops requests and answers lose, double and reorder nothing."""

from __future__ import annotations

from tests.client.histories import play

RUNS = 2
"""`python -m tests.client.histories` plays more."""


def test_consumers_over_a_failing_network_run_clean() -> None:
    for run, violations in play(RUNS, seed=1_000):
        assert violations == []
        assert {fact.verb for fact in run.history.settled} >= {"ack", "nack", "extend"}
        assert run.did.keys() == {"lose_request", "lose_reply"}
