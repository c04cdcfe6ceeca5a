"""Two instances of the service over one store do what a plain model of the contract does."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.model.lifetimes import Lifetimes
from tests.model.operations import Operations
from tests.model.topics import Topics

RANDOM_EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
"""The number of random examples, instead of a few fixed ones."""


def _settings(max_examples: int, steps: int = 40) -> settings:
    return settings(
        max_examples=RANDOM_EXAMPLES or max_examples,
        stateful_step_count=steps,
        derandomize=not RANDOM_EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


TestTopicsAgreeWithTheModel = Topics.TestCase
TestTopicsAgreeWithTheModel.settings = _settings(28, steps=60)

TestOperationsAgreeWithTheModel = Operations.TestCase
TestOperationsAgreeWithTheModel.settings = _settings(12, steps=45)

TestLifetimesAgreeWithTheModel = Lifetimes.TestCase
TestLifetimesAgreeWithTheModel.settings = _settings(20, steps=50)
