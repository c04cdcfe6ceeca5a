"""List prices of AWS in dollars, of us-east-1 in November 2026, without free tiers, storage and traffic. Their pages:

<https://aws.amazon.com/dynamodb/pricing/on-demand/>  <https://aws.amazon.com/lambda/pricing/>
<https://aws.amazon.com/api-gateway/pricing/>  <https://aws.amazon.com/cloudwatch/pricing/>
<https://aws.amazon.com/sqs/pricing/>  <https://aws.amazon.com/kinesis/data-streams/pricing/>
<https://aws.amazon.com/msk/pricing/>  <https://docs.aws.amazon.com/msk/latest/developerguide/limits.html>
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

Tiers = Sequence[tuple[float, float]]
"""Tiers of a month's use, with their prices: each begins where the one before it ends."""

WRITE_UNIT, READ_UNIT = 0.625e-6, 0.125e-6
INVOCATION = 0.20e-6
GB_SECOND: Tiers = ((6e9, 16.6667e-6), (9e9, 15.0e-6), (inf, 13.3334e-6))
"""The prices of Lambda on x86."""
REST_REQUEST: Tiers = ((333e6, 3.50e-6), (667e6, 2.80e-6), (19e9, 2.38e-6), (inf, 1.51e-6))
LOGGED_BYTE: Tiers = ((10e12, 0.50e-9), (20e12, 0.25e-9), (20e12, 0.10e-9), (inf, 0.05e-9))
"""Log lines of functions in CloudWatch Logs."""

SQS_REQUEST: Tiers = ((100e9, 0.40e-6), (100e9, 0.30e-6), (inf, 0.24e-6))
FIFO_REQUEST: Tiers = ((100e9, 0.50e-6), (100e9, 0.40e-6), (inf, 0.35e-6))

SHARD_HOUR, PUT_UNIT = 0.015, 0.014e-6
PUT_BYTES, SHARD_BYTES, SHARD_RECORDS = 25_000, 1e6, 1_000
"""Kinesis: the size of a PUT unit, and the load that a shard takes a second."""

BROKER_HOUR, BROKER_BYTES, BROKERS_MIN, WRITTEN_BYTE = 0.408, 15.6e6, 3, 0.01e-9
"""MSK: an express.m7g.large, the load that it takes a second, and the bytes written."""

HOURS, SECONDS = 720, 30 * 86_400
"""The length of a month."""


def tiered(amount: float, tiers: Tiers) -> float:
    """The dollars of a month's use."""
    dollars = 0.0
    for most, price in tiers:
        dollars += min(amount, most) * price
        amount -= min(amount, most)
    return dollars
