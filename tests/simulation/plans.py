"""Plans of simulated histories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from chalicelib.core.base.limits import SET_ASIDE_MAX
from chalicelib.core.catalogue.group import BY_KEY
from tests.history.history import SKEW_MS
from tests.simulation.expiry import RETENTION_MS
from tests.simulation.faulty_store import ALL, NONE, Faults

EXPIRING: dict[str, Any] = {"retention_ms": RETENTION_MS, "messages": 42, "pops": 7, "dedup_ms": 2_000}
"""No dedup id is valid for longer than its stored message exists."""
RESIZED: dict[str, Any] = {
    "resizes": 5,
    "keys": (None, "b", "h"),
    "pace": 6,
    "messages": 40,
    "pops": 12,
    "leases_ms": (200, 200, 1_000),
    "dedup_ms": 2_000,
    "resets": 0,
    "late_groups": 0,
}
"""Groups that are made, or reset, when a queue has left do not get its messages. The key `h` moves with each number of
queues."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a history."""

    producers: int = 3
    consumers: int = 3
    messages: int = 20
    pops: int = 3
    """The number of pops of each consumer."""
    leases_ms: tuple[int, ...] = (200, 1_000, 3_000)
    """The lease lengths that consumers ask for."""
    pop_sizes: tuple[int, ...] = (1, 4, 10, 10)
    """The batch sizes that they ask for."""
    fills: float = 0.0
    """The share of pops with `fill`."""
    waits_ms: tuple[int, ...] = (0, 0, 0, 100)
    """How long they wait for messages."""
    sizes: tuple[int, ...] = (0, 0, 150, 2_000)
    """Approximate sizes of messages; the payloads of the largest are stored outside of the log."""
    queues: int = 2
    groups: int = 1
    broadcast_to: tuple[str, ...] = ()
    """The consumers of each group, if it is a broadcast group."""
    late_groups: int = 0
    """Groups made while messages come in."""
    resets: int = 0
    wipes: int = 0
    """How often groups are reset to `now`."""
    ordered: bool | str = False
    aside_max: int = SET_ASIDE_MAX
    """How many messages of a queue may be set aside in a group that is ordered by key."""
    delay_ms: int = 0
    """How long each message waits before a group takes it."""
    rate: int = 0
    """How many messages a second each group takes; 0: any number."""
    keys: tuple[str | None, ...] = (None, "a", "b")
    unwanted_key: str | None = None
    """The key of messages that no group wants."""
    looks: int = 0
    """How often a reader reads messages without leasing them: by place, key or id, or dead ones."""
    sweepers: int = 0
    """Scheduled sweeps that run at once."""
    sweeps: int = 3
    """How often each of them runs."""
    chores: int = 0
    """Pauses, settings changed, throw-away groups made and removed."""
    max_attempts: int = 1_000
    max_in_flight: int = 1_000
    settle_by: str = "receipt"
    """Whether receipts name a lease, a delivery or a message."""
    meddlers: int = 0
    """Callers that settle by receipts of others, and by old ones."""
    notes_first: bool = False
    """Whether pops ask when messages were delivered for the first time."""
    burials: float = 0.03
    """The share of deliveries that consumers bury."""
    redrives: int = 0
    redrives_pause_ms: int = 2_500
    """The longest pause between two redrives."""
    purges: int = 0
    moves_dead: bool = False
    """Whether what dies moves into a topic."""
    removals: int = 0
    """How often that topic is deleted and made again."""
    tasks: int = 0
    """How often each of two callers starts move tasks out of that topic, works on them, or cancels them."""
    dedup_ids: int = 0
    """Producers take their dedup ids from a pool of this size; 0: they use none."""
    dedup_ms: int = 300_000
    """How long a dedup id is valid."""
    delayed: float = 0.0
    """The share of delayed messages."""
    ttls: float = 0.0
    """The share of messages that live for a while only."""
    max_depth: int = 0
    """How many messages may wait in a queue; 0: any number."""
    pushes: bool = False
    """Whether there is a pushed group beside the others."""
    resizes: int = 0
    """How often the number of queues changes."""
    grows: float = 0.0
    """The share of these changes that have the topic choose the number."""
    checks_pause_ms: int = 2_500
    """The longest pause between two runs of the sweep that lets queues leave."""
    pace: int = 1
    """Producers and consumers sleep this many times longer."""
    shared: float = 0.0
    """How likely a caller goes on with an instance that there is, in the place of a fresh one."""
    intrude: float = 0.0
    """How likely somebody else acts just before a request."""
    twins: bool = False
    """Whether there is a second topic, whose queues, groups, keys and dedup ids have the same names."""
    zones: bool = False
    """Whether queues, producers and consumers are in zones."""
    requests: int = 0
    """How many each of two requesters sends."""
    transactions: int = 0
    arbiters: int = 2
    """Callers that ask which transactions are undecided, if there are transactions."""
    cancels: int = 6
    """The number of attempts to cancel one of those."""
    cancels_pause_ms: int = 900
    """The longest pause between two cancels."""
    small_pages: bool = False
    """Retries lie in pages, not in the cursor."""
    narrow_looks: bool = False
    """A pop looks at one queue first, and a page has the cursors of two."""
    small_segments: bool = False
    """A segment of the log is full with an entry or two."""
    alarm_ready: int = 0
    """The number of ready messages that raises the alarm of a group; 0: groups have no alarm."""
    retention_ms: int = 0
    """Messages expire after so long, and are removed; 0: they do not."""
    hasty: float = 0.0
    """How likely a pop with an `attempt_id` is called by two instances at once."""
    losses: int = 0
    """The number of payloads that are removed from messages in the log."""
    queue_calls: int = 0
    """How often each of three clients of SQS makes, changes or deletes queues. Each of three others sends or receives
    twice as often."""
    is_fifo: bool = False
    """Whether these are FIFO queues."""
    over_json: bool = False
    """Whether their topic and their groups are deleted without them."""
    skew_ms: int = SKEW_MS
    """Two processes' clocks differ by at most this."""
    outage_ms: int = 0
    """How long the table refuses everything, or writes, in the middle of the history."""
    key_units: float = 0.0
    """How many write units a second a partition key carries, and three times as many read units; 0: any number."""
    shuts_log: bool = False
    """Whether one log throttles all requests."""
    set_back_ms: int = 0
    """Some clocks are set back by this much while their processes run."""
    faults: Faults = ALL

    @property
    def apart_ms(self) -> int:
        """Two callers' clocks differ by at most this."""
        return self.skew_ms + self.set_back_ms


BROADCAST = Plan(
    broadcast_to=("ann", "bob", "eve"),
    consumers=6,
    pops=8,
    max_attempts=4,
    burials=0.1,
    delayed=0.2,
    meddlers=2,
    sweepers=1,
    small_pages=True,
)
"""For bugs that show where each of several consumers gets every message."""
TWINS = Plan(
    twins=True,
    shared=0.7,
    groups=2,
    consumers=4,
    pops=6,
    delayed=0.3,
    dedup_ids=6,
    resets=1,
    redrives=2,
    max_attempts=4,
    transactions=3,
    requests=2,
    sweepers=1,
)
"""For bugs that show where instances serve topics that are alike."""
RATED = Plan(skew_ms=0, rate=4, consumers=5, pops=10, messages=30, pop_sizes=(1, 4, 10), groups=2)
"""For bugs that show where groups may take few messages a second."""
RATED_APART = replace(RATED, skew_ms=2_000)
"""The same by clocks that are apart: at 2 s a group may take 4 windows within a second, at 10 s 12, which is all."""
SKEWED = Plan(
    skew_ms=10_000,
    groups=2,
    consumers=4,
    pops=6,
    delayed=0.3,
    ttls=0.2,
    dedup_ids=3,
    resets=6,
    wipes=2,
    redrives=2,
    max_attempts=4,
    max_in_flight=6,
    transactions=3,
    requests=3,
    sweepers=1,
    notes_first=True,
)
"""For bugs that show where clocks are far apart."""
AFTERLIFE = Plan(queues=1, consumers=4, pops=6, messages=12, resets=2, redrives=6, max_attempts=2, small_pages=True)
"""For bugs that show where much dies and comes back, which is rare in the plans of all seeds."""
EMPTIED = Plan(
    queues=1,
    delayed=0.6,
    wipes=6,
    messages=40,
    consumers=4,
    pops=10,
    pop_sizes=(1, 1, 4),
    transactions=4,
    faults=replace(NONE, stale=0.4, stale_ms_max=500, latency_ms_max=60),
)
"""For bugs that show where groups are purged while much waits."""
CROWD = Plan(
    queues=1,
    consumers=6,
    pops=10,
    messages=16,
    small_pages=True,
    faults=replace(NONE, stale=0.3, stale_ms_max=500, latency_ms_max=200),
)
"""For bugs that show where many are at one cursor at once, and nothing else happens."""
WAITING = Plan(
    queues=1,
    delayed=0.8,
    cancels=40,
    cancels_pause_ms=150,
    sweepers=2,
    consumers=4,
    pops=6,
    faults=replace(ALL, zombie=0.2, kill=0.02),
)
"""For bugs that show where most messages wait, and many writes come late."""
GRAVES = Plan(queues=1, consumers=4, pops=6, burials=0.25, purges=6)
"""For bugs that show where much is buried."""
NAMED = Plan(queues=1, consumers=4, pops=8, messages=16, meddlers=4, burials=0, max_attempts=4)
"""For bugs that show where old receipts, and those of others, are used, by every rule of what they name."""
MOVED = Plan(queues=1, consumers=4, pops=10, burials=0.25, max_attempts=2, moves_dead=True)
"""For bugs that show where much that is dead moves into a topic."""
RETURNED = replace(MOVED, tasks=14)
"""And where move tasks take it out of there."""
REMOVED = replace(MOVED, messages=40, removals=4, burials=0)
"""The same where the topic comes and goes: nothing is buried, since that is a nack while it is gone."""
RISEN = Plan(
    queues=1,
    consumers=4,
    pops=14,
    messages=40,
    burials=0.25,
    redrives=60,
    redrives_pause_ms=200,
    pop_sizes=(1, 1, 10),
    max_in_flight=3,
    leases_ms=(3_000, 10_000),
    faults=replace(NONE, latency_ms_max=20, stall=0.2, stall_ms=(100, 1_500)),
)
"""For bugs that show where much comes back from the dead while claims are on their way."""
HALVES = Plan(consumers=1, producers=1, transactions=10, arbiters=4, faults=replace(ALL, latency_ms_max=60))
"""For bugs that show where much is decided."""
CALLS = Plan(producers=1, messages=4, consumers=4, pops=8, groups=2, requests=6)
"""For bugs that show where much is asked and replied."""
MOVING = Plan(
    **{**RESIZED, "resizes": 10, "pops": 24, "pace": 4, "leases_ms": (200,), "messages": 60},
    checks_pause_ms=700,
    queues=3,
    producers=6,
    pop_sizes=(10,),
    burials=0,
    faults=replace(NONE, zombie=0.25, latency_ms_max=60),
)
"""For bugs that show where queues come and leave, and writes come late."""
GROWING = Plan(**RESIZED, grows=1.0, ordered=True, queues=1)
"""For bugs that show where a topic chooses the number of its queues."""
FULL = Plan(
    messages=80,
    consumers=6,
    pops=16,
    pop_sizes=(10,),
    leases_ms=(200, 1_000),
    pace=5,
    groups=2,
    max_depth=5,
    faults=replace(NONE, latency_ms_max=20, stale=0.3, stale_ms_max=500),
)
"""For bugs that show where queues are full."""
ZONED = Plan(
    zones=True,
    queues=3,
    groups=2,
    producers=2,
    consumers=6,
    messages=30,
    pops=8,
    fills=0.3,
    pace=20,
    burials=0,
    faults=replace(NONE, latency_ms_max=20, stale=0.3, stale_ms_max=500),
)
"""For bugs that show where consumers of a zone stay away, and come back."""
PUSHED = Plan(consumers=1, pops=1, messages=30, pushes=True, faults=replace(NONE, latency_ms_max=20))
"""For bugs that show where all is answered, and a consumer is called."""
FILLED = Plan(
    queues=3,
    consumers=4,
    pops=8,
    messages=40,
    pop_sizes=(4, 10, 20),
    fills=0.8,
    faults=replace(NONE, lose_reply=0.05, latency_ms_max=20),
)
"""For bugs that show where pops take from several queues."""
KEYED = Plan(
    ordered=BY_KEY,
    keys=(None, "a", "b", "c"),
    queues=1,
    consumers=6,
    messages=40,
    pops=10,
    pop_sizes=(1, 2, 4),
    aside_max=4,
    leases_ms=(1_000, 3_000),
    faults=replace(ALL, stale=0.3, stale_ms_max=500, latency_ms_max=100),
)
"""For bugs that show where messages of a few keys wait for each other."""
MEDDLED = replace(
    KEYED,
    meddlers=6,
    pops=16,
    pop_sizes=(2, 4),
    leases_ms=(3_000,),
    faults=replace(NONE, stale=0.6, stale_ms_max=1_000, latency_ms_max=100),
)
"""For bugs that show where these are extended and given back behind the backs of those who ack them."""
OWNED = Plan(producers=1, consumers=1, messages=1, pops=1, queue_calls=14)
"""For bugs that show where queues of SQS clients come and go."""
PUNCTUAL = Plan(queues=1, consumers=4, pops=6, skew_ms=0)
"""For bugs that clocks which differ would hide."""
SET_BACK = Plan(
    queues=1,
    pops=8,
    messages=12,
    waits_ms=(0, 1_000, 3_000),
    set_back_ms=20_000,
    faults=replace(NONE, latency_ms_max=20),
)
"""For bugs that show where clocks are set back."""
UNREADABLE = Plan(
    queues=1,
    consumers=5,
    pops=6,
    sizes=(2_000, 3_000),
    max_attempts=2,
    faults=replace(NONE, unreadable=0.3, latency_ms_max=10),
)
"""For bugs that show where all is answered but for reads of payloads."""
HASTY = replace(UNREADABLE, hasty=0.5)
"""The same, and consumers that lose patience call another instance beside the first."""
LOSSES = Plan(consumers=4, pops=6, sizes=(0, 2_000, 3_000), losses=4, unwanted_key="b")
"""For bugs that show where payloads are gone."""
SIFTED = Plan(
    queues=1,
    consumers=6,
    pops=8,
    messages=30,
    unwanted_key="b",
    faults=replace(NONE, stale=0.5, stale_ms_max=500, latency_ms_max=100),
)
"""For bugs that show where many sift one queue at once."""
STALLED = Plan(
    consumers=4,
    pops=6,
    delayed=0.3,
    dedup_ids=3,
    resets=1,
    redrives=2,
    max_attempts=4,
    transactions=3,
    sweepers=1,
    faults=replace(ALL, stall=0.03, stall_ms=(2_000, 120_000)),
)
"""For bugs that show where callers sleep for minutes before a request."""
OUTAGE = Plan(
    outage_ms=60_000,
    groups=2,
    consumers=4,
    messages=60,
    pops=18,
    pace=8,
    waits_ms=(0, 100, 3_000),
    delayed=0.3,
    dedup_ids=6,
    resets=1,
    redrives=2,
    max_attempts=4,
    transactions=4,
    sweepers=1,
    sweeps=9,
    faults=replace(NONE, latency_ms_max=20),
)
"""For bugs that show where the table refuses for a minute, and nothing else goes wrong."""
THROTTLED = Plan(
    queues=3,
    groups=2,
    consumers=4,
    messages=60,
    pops=12,
    delayed=0.2,
    dedup_ids=6,
    redrives=2,
    max_attempts=4,
    sweepers=1,
    pace=0,
    key_units=1.0,
    faults=replace(NONE, latency_ms_max=20, stale=0.2),
)
"""For bugs that show where each partition key carries a few requests a second."""
SHUT = Plan(
    queues=3,
    consumers=4,
    messages=30,
    pops=6,
    keys=(None,),
    shuts_log=True,
    faults=replace(NONE, latency_ms_max=20),
)
"""For bugs that show where one log of three throttles all requests, and nothing else goes wrong."""
TORN = Plan(
    queues=1,
    consumers=4,
    pops=8,
    messages=30,
    pop_sizes=(1, 4),
    leases_ms=(200, 1_000),
    settle_by="delivery",
    delayed=0.3,
    dedup_ids=3,
    burials=0,
    meddlers=4,
    redrives=8,
    redrives_pause_ms=400,
    max_attempts=2,
    requests=2,
    small_pages=True,
    sweepers=1,
    faults=replace(ALL, torn=0.7, latency_ms_max=100),
)
"""For bugs that show where a read of several items shows each of them at another instant."""
SWEPT = Plan(
    producers=2,
    consumers=3,
    messages=30,
    pops=6,
    pace=12,
    delayed=0.6,
    max_attempts=2,
    leases_ms=(200, 3_000, 6_000),
    burials=0,
    sweepers=2,
    sweeps=24,
    skew_ms=0,
)
"""For bugs that show where sweeps run all the time."""
