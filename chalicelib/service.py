"""All parts of the service, put together over one store."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.admin.deletion import Deletion
from chalicelib.admin.groups import Groups
from chalicelib.admin.topics import Topics
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.catalogue import Catalogue
from chalicelib.consuming.claim import Claimer
from chalicelib.consuming.delivery import Deliverer
from chalicelib.consuming.pop import Consumer
from chalicelib.consuming.settle import Settler
from chalicelib.consuming.skip import Skipper
from chalicelib.consuming.throttle import Throttle
from chalicelib.consuming.view import ViewReader
from chalicelib.cursors.broadcast import Consumers
from chalicelib.cursors.cursor_cache import CursorCache
from chalicelib.cursors.receipt import Receipts
from chalicelib.cursors.retries import Retries
from chalicelib.dead_letters.bury import Burial
from chalicelib.dead_letters.queue import DeadLetterQueue
from chalicelib.dead_letters.redrive import Redrive
from chalicelib.delays.chain import DecisionChain
from chalicelib.delays.delayed_messages import DelayedMessages
from chalicelib.delays.promoter import Promoter
from chalicelib.delays.writer import Delays
from chalicelib.log.joiner import LogJoiner
from chalicelib.log.key_index import KeyIndex
from chalicelib.log.offsets import Offsets
from chalicelib.log.payloads import Payloads
from chalicelib.log.reader import LogReader
from chalicelib.log.writer import LogWriter
from chalicelib.producing.dedup import Deduplication
from chalicelib.producing.hooks import SendHooks
from chalicelib.producing.produce import Producer
from chalicelib.reading.browse import Lookup
from chalicelib.reading.by_key import KeyLookup
from chalicelib.store import Store
from chalicelib.upkeep.alarms import Alarms
from chalicelib.upkeep.expiry import Expiry
from chalicelib.upkeep.sweeps import Rounds, Sweeps


@dataclass(frozen=True, slots=True)
class Service:
    runtime: Runtime
    store: Store
    catalogue: Catalogue
    topics: Topics
    groups: Groups
    producer: Producer
    consumers: Consumers
    consumer: Consumer
    settler: Settler
    lookup: Lookup
    letters: DeadLetterQueue
    redrive: Redrive
    sweeps: Sweeps
    delays: Delays
    delayed: DelayedMessages
    promoter: Promoter
    key_lookup: KeyLookup
    hooks: SendHooks


def build(store: Store, runtime: Runtime, signing_key: bytes | None = None, hooks: SendHooks | None = None) -> Service:
    """One instance of the service: its caches are its own, everything else is in the store."""
    payloads, reader, writer, joiner, index = _log(store, runtime)
    cache = CursorCache()
    catalogue = Catalogue(store, runtime)
    receipts = Receipts(store, runtime, signing_key)
    burial = Burial(store, runtime)
    retries = Retries(store, runtime)
    settler = Settler(store, runtime, catalogue, receipts, cache, burial, retries)
    decisions = DecisionChain(store, joiner, payloads)
    promoter = Promoter(store, runtime, decisions, writer, payloads, index)
    delays = Delays(store, runtime, catalogue, payloads)
    deduplication = Deduplication(store, runtime, writer, joiner, payloads, index, delays)
    delayed = DelayedMessages(store, runtime, payloads, decisions, joiner)
    consumers = Consumers(store, runtime, retries)
    views = ViewReader(store, runtime, catalogue, reader, cache, promoter, consumers)
    log_offsets = Offsets(store, reader)
    claimer = Claimer(store, runtime, reader, Skipper(runtime, reader, log_offsets), cache, burial, retries)
    deliverer = Deliverer(runtime, catalogue, reader, claimer, settler, receipts)
    purge = Deletion(store, runtime)
    topics = Topics(store, runtime, catalogue, log_offsets, purge)
    groups = Groups(store, runtime, catalogue, reader, log_offsets, purge, retries, consumers)
    alarms = Alarms(store, runtime, catalogue, topics, groups, log_offsets, delays, promoter)
    letters = DeadLetterQueue(store, runtime, catalogue, reader, delayed)
    expiry = Expiry(store, runtime, catalogue, promoter, letters)
    return Service(
        runtime,
        store,
        catalogue,
        topics,
        groups,
        Producer(runtime, writer, index, deduplication, delays),
        consumers,
        Consumer(runtime, catalogue, promoter, views, claimer, deliverer, settler, Throttle(store, runtime)),
        settler,
        Lookup(runtime, reader, log_offsets, delayed),
        letters,
        Redrive(store, runtime, catalogue, letters, retries),
        Sweeps(store, runtime, purge, burial, promoter, consumers, alarms, Rounds(store, runtime), expiry),
        delays,
        delayed,
        promoter,
        KeyLookup(store, runtime, reader),
        hooks or SendHooks(),
    )


def _log(store: Store, runtime: Runtime) -> tuple[Payloads, LogReader, LogWriter, LogJoiner, KeyIndex]:
    """What reads and writes logs."""
    payloads = Payloads(store)
    writer = LogWriter(store, runtime, payloads)
    joiner = LogJoiner(store, runtime, writer)
    return payloads, LogReader(store, runtime, payloads), writer, joiner, KeyIndex(store, writer)
