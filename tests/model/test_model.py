"""Two instances of the service over one store do what a plain model of the contract does."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.model.delaying import DelayingMachine

RANDOM_EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
"""So many random examples, instead of a few that are always the same."""

TestTheServiceAgreesWithTheModel = DelayingMachine.TestCase
TestTheServiceAgreesWithTheModel.settings = settings(
    max_examples=RANDOM_EXAMPLES or 50,
    stateful_step_count=40,
    derandomize=not RANDOM_EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
