"""Two instances of the service over one store do what a plain model of the contract does."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.model.machine import Machine

TestTheServiceAgreesWithTheModel = Machine.TestCase
TestTheServiceAgreesWithTheModel.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
