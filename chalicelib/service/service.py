"""All parts of the service, put together over one store."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.runtime import Runtime
from chalicelib.service.alarms import Alarms
from chalicelib.service.beliefs import Beliefs
from chalicelib.service.burial import Burial
from chalicelib.service.catalogue import Catalogue
from chalicelib.service.claimer import Claimer
from chalicelib.service.consumer import Consumer
from chalicelib.service.consumers import Consumers
from chalicelib.service.decisions import Decisions
from chalicelib.service.deduplication import Deduplication
from chalicelib.service.delayed import Delayed
from chalicelib.service.delays import Delays
from chalicelib.service.delivery import Deliverer
from chalicelib.service.expiry import Expiry
from chalicelib.service.groups import Groups
from chalicelib.service.hooks import SendHooks
from chalicelib.service.key_index import KeyIndex
from chalicelib.service.key_lookup import KeyLookup
from chalicelib.service.letters import Letters
from chalicelib.service.log_joiner import LogJoiner
from chalicelib.service.log_reader import LogReader
from chalicelib.service.log_writer import LogWriter
from chalicelib.service.looking import Looker
from chalicelib.service.lookup import Lookup
from chalicelib.service.payloads import Payloads
from chalicelib.service.producer import Producer
from chalicelib.service.promoter import Promoter
from chalicelib.service.purge import Purge
from chalicelib.service.rearming import Rearming
from chalicelib.service.receipts import Receipts
from chalicelib.service.redrive import Redrive
from chalicelib.service.retries import Retries
from chalicelib.service.rounds import Rounds
from chalicelib.service.settler import Settler
from chalicelib.service.sieve import Sieve
from chalicelib.service.sweeps import Sweeps
from chalicelib.service.throttle import Throttle
from chalicelib.service.timeline import Timeline
from chalicelib.service.topics import Topics
from chalicelib.store import Store


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
    letters: Letters
    redrive: Redrive
    sweeps: Sweeps
    delays: Delays
    delayed: Delayed
    promoter: Promoter
    key_lookup: KeyLookup
    hooks: SendHooks


def build(store: Store, runtime: Runtime, signing_key: bytes | None = None, hooks: SendHooks | None = None) -> Service:
    """One instance of the service: its caches are its own, everything else is in the store."""
    payloads, reader, writer, joiner, index = _log(store, runtime)
    beliefs = Beliefs()
    catalogue = Catalogue(store, runtime)
    receipts = Receipts(store, runtime, signing_key)
    burial = Burial(store, runtime)
    retries = Retries(store, runtime)
    settler = Settler(store, runtime, catalogue, receipts, beliefs, burial, retries)
    decisions = Decisions(store, joiner, payloads)
    promoter = Promoter(store, runtime, decisions, writer, payloads, index)
    delays = Delays(store, runtime, catalogue, payloads)
    deduplication = Deduplication(store, runtime, writer, joiner, payloads, index, delays)
    delayed = Delayed(store, runtime, payloads, decisions, joiner)
    consumers = Consumers(store, runtime, retries)
    looker = Looker(store, runtime, catalogue, reader, beliefs, promoter, consumers)
    timeline = Timeline(store, reader)
    claimer = Claimer(store, runtime, reader, Sieve(runtime, reader, timeline), beliefs, burial, retries)
    deliverer = Deliverer(runtime, catalogue, reader, claimer, settler, receipts)
    purge = Purge(store, runtime)
    topics = Topics(store, runtime, catalogue, timeline, purge)
    groups = Groups(store, runtime, catalogue, reader, timeline, purge, retries, consumers)
    alarms = Alarms(store, runtime, catalogue, topics, groups, delays, promoter)
    letters = Letters(store, runtime, catalogue, reader, delayed)
    expiry = Expiry(store, runtime, catalogue, promoter, letters, Rearming(store, runtime, payloads, index))
    return Service(
        runtime,
        store,
        catalogue,
        topics,
        groups,
        Producer(runtime, writer, index, deduplication, delays),
        consumers,
        Consumer(runtime, catalogue, promoter, looker, claimer, deliverer, settler, Throttle(store, runtime)),
        settler,
        Lookup(runtime, reader, timeline, delayed),
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
