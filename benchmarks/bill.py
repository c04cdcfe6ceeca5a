"""The bill of a million messages, and of a month at a rate, beside other services.

`traffic` counts the units of a message; the time of functions is computed, and the rest are list prices (`prices`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import prices
from benchmarks.operations import Case
from benchmarks.progress import shown
from benchmarks.report import Cell, size_name, table
from benchmarks.traffic import Share, Traffic, traffic

CASES = tuple(Case(size, batch) for size in (200, 1_000) for batch in (1, 10, 100))
RATES = (1_000, 10_000, 100_000, 1_000_000)
GROUPS = 5
"""Compared with one group."""
MILLION = 1_000_000

ROUND_TRIP_MS = 5
"""A round trip to DynamoDB, in one region."""
PROCESSORS, GB = 0.29, 0.5
"""The share of a processor that a function of 512 MB has."""
CALL_CPU_MS, MESSAGE_CPU_MS = 1.0, 0.025
"""Processor time of a call, and of each further message in it: between those of produces and pops in README.md (a)."""
LAMBDA_LINE_BYTES = 500
"""The size of the two lines that Lambda writes for an invocation; not measured."""
CALLS_MAX = 10
"""Requests a second that Lambda lets one instance answer."""
NEW_TABLE, TABLE_QUOTA = (4_000, 12_000), (40_000, 40_000)
"""Write and read units a second."""
INSTANCES_QUOTA, REST_STAGE, REST_QUOTA = 1_000, 2_000, 10_000
"""The instances that AWS gives an account; requests a second of the REST API, in our template and in an account."""
SQS_BATCH, SQS_REQUESTS = 10, 3
"""A message is sent, received and deleted."""

_MESSAGE_HEADERS = ("message", "batch", "write units: produce, pop, trim", "read units", "GB-s a million")
_MILLION_HEADERS = ("DynamoDB", "Lambda", "log lines", "in all", "a further group", "by REST API", "SQS", "FIFO")
_LIMIT_HEADERS = ("messages/s within", "batch 1", "batch 10", "batch 100")
_LOAD_HEADERS = ("messages/s", "batch", "write, read units/s", "calls/s", "instances")
_MONTH_HEADERS = (f"{GROUPS} groups", "SQS", "Kinesis", "Kinesis, aggregated", "MSK")


@dataclass(frozen=True, slots=True)
class Use:
    """The resources of AWS that some messages use."""

    writes: float
    reads: float
    calls: float
    seconds: float
    """The run time of functions."""
    log_bytes: float

    def __add__(self, other: Use) -> Use:
        return Use(
            self.writes + other.writes,
            self.reads + other.reads,
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.log_bytes + other.log_bytes,
        )

    def __mul__(self, times: float) -> Use:
        return Use(
            self.writes * times, self.reads * times, self.calls * times, self.seconds * times, self.log_bytes * times
        )

    @property
    def dynamodb(self) -> float:
        return self.writes * prices.WRITE_UNIT + self.reads * prices.READ_UNIT

    @property
    def functions(self) -> float:
        return self.calls * prices.INVOCATION + prices.tiered(self.seconds * GB, prices.GB_SECOND)

    @property
    def logs(self) -> float:
        return prices.tiered(self.log_bytes, prices.LOGGED_BYTE)

    @property
    def dollars(self) -> float:
        return self.dynamodb + self.functions + self.logs


def message(found: Traffic, batch: int, groups: int = 1) -> Use:
    """The use of one message by function URL, from its produce to its trim."""
    trim = Use(found.trim_writes, 0, 0, 0, 0)
    return _call(found.produced, found, batch) + trim + _call(found.popped, found, batch) * groups


def _call(share: Share, found: Traffic, batch: int) -> Use:
    """The share of one message in a call of its batch."""
    ms = share.round_trips * ROUND_TRIP_MS + (CALL_CPU_MS / batch + MESSAGE_CPU_MS) / PROCESSORS
    log_bytes = (found.line_bytes + LAMBDA_LINE_BYTES) / batch
    return Use(share.writes, share.reads, 1 / batch, ms / 1_000, log_bytes)


def instances(a_second: Use) -> float:
    """The instances that a second's use occupies: by their time, or by how many calls one may answer."""
    return max(a_second.seconds, a_second.calls / CALLS_MAX)


# -- other services, dollars a month ----------------------------------------------------------------------------------


def sqs(messages: float, batch: int, tiers: prices.Tiers = prices.SQS_REQUEST) -> float:
    return prices.tiered(messages * SQS_REQUESTS / min(batch, SQS_BATCH), tiers)


def kinesis(rate: float, size: int, is_aggregated: bool) -> float:
    """With shards. Aggregated: the producer fills records of one PUT unit."""
    records = rate / (prices.PUT_BYTES // size if is_aggregated else 1)
    shards = max(1.0, records / prices.SHARD_RECORDS, rate * size / prices.SHARD_BYTES)
    return shards * prices.SHARD_HOUR * prices.HOURS + records * prices.SECONDS * prices.PUT_UNIT


def msk(rate: float, size: int) -> float:
    """With clients that send batches."""
    brokers = max(prices.BROKERS_MIN, -(-rate * size // prices.BROKER_BYTES))
    return brokers * prices.BROKER_HOUR * prices.HOURS + rate * size * prices.SECONDS * prices.WRITTEN_BYTE


# -- tables -----------------------------------------------------------------------------------------------------------


def bill() -> str:
    return "\n".join(tables())


def tables(cases: Sequence[Case] = CASES) -> Iterator[str]:
    """Tables for a message, for a million of them, and for loads of the smallest."""
    counted = {case: traffic(case) for case in shown(cases, len(cases), "what a message takes")}
    yield table("(n) Of a message", _MESSAGE_HEADERS, [_of_message(*each) for each in counted.items()])
    rows = [_of_million(*each) for each in counted.items()]
    yield table("(n) Dollars of a million messages", ("message", "batch", *_MILLION_HEADERS), rows)
    smallest = {case: found for case, found in counted.items() if case.size == cases[0].size}
    yield table("(n) What limits allow", _LIMIT_HEADERS, [*_of_limits(smallest)])
    loads = [(rate, case, found) for rate in RATES for case, found in smallest.items()]
    rows = [_of_load(*each) for each in loads if each[0] == RATES[0]]  # others take as many times more
    yield table("(n) What a load takes", _LOAD_HEADERS, rows)
    rows = [_of_month(*each) for each in loads]
    yield table("(n) Dollars of a month", ("messages/s", "batch", "Decant, 1 group", *_MONTH_HEADERS), rows)


def _of_message(case: Case, found: Traffic) -> list[Cell]:
    writes = (found.produced.writes, found.popped.writes, found.trim_writes)
    seconds = message(found, case.batch).seconds * MILLION * GB
    units = ", ".join(_few(each) for each in writes)
    return [size_name(case.size), case.batch, units, _few(found.popped.reads), _money(seconds)]


def _of_million(case: Case, found: Traffic) -> list[Cell]:
    one, batch = message(found, case.batch) * MILLION, case.batch
    further = message(found, batch, 2) * MILLION
    rest = prices.REST_REQUEST[0][1] * one.calls
    whole = [one.dynamodb, one.functions, one.logs, one.dollars, further.dollars - one.dollars, one.dollars + rest]
    others = [sqs(MILLION, batch), sqs(MILLION, batch, prices.FIFO_REQUEST)]
    return [size_name(case.size), batch, *(f"{each:.2f}" for each in (*whole, *others))]


def _of_limits(counted: dict[Case, Traffic]) -> Iterator[list[Cell]]:
    """How many messages a second each limit allows, for each batch."""
    uses = [message(found, case.batch) for case, found in counted.items()]
    for name, units in (("a new table", NEW_TABLE), ("the quota of a table", TABLE_QUOTA)):
        yield [name, *(_money(min(units[0] / use.writes, units[1] / use.reads)) for use in uses)]
    yield [f"{INSTANCES_QUOTA:,} instances", *(_money(INSTANCES_QUOTA / instances(use)) for use in uses)]
    for name, most in (("the REST API of the stage", REST_STAGE), ("API Gateway's quota", REST_QUOTA)):
        yield [name, *(_money(most / use.calls) for use in uses)]


def _of_load(rate: int, case: Case, found: Traffic) -> list[Cell]:
    use = message(found, case.batch) * rate
    units = f"{_money(use.writes)}, {_money(use.reads)}"
    return [f"{rate:,}", case.batch, units, _money(use.calls), _money(instances(use))]


def _of_month(rate: int, case: Case, found: Traffic) -> list[Cell]:
    messages, size, batch = rate * prices.SECONDS, case.size, case.batch
    decant = [(message(found, batch, groups) * messages).dollars for groups in (1, GROUPS)]
    others = [sqs(messages, batch), kinesis(rate, size, False), kinesis(rate, size, True), msk(rate, size)]
    return [f"{rate:,}", batch, *map(_money, (*decant, *others))]


def _money(amount: float) -> str:
    """Rounds to two figures: more would pretend."""
    digits = max(0, len(str(int(amount))) - 2)
    return f"{round(amount, -digits):,.0f}"


def _few(units: float) -> str:
    return f"{units:.2g}" if units < 1 else f"{units:.2f}".rstrip("0").rstrip(".")
