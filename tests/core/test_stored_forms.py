"""Later versions read what tables and clients hold: each form is as it always was, and each write lands only in the
states that it demands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.core.base.limits import DEDUP_MS
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays import decision as delays
from chalicelib.core.delays.decision import Decision, Slot
from chalicelib.core.log import segment
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.producing import dedup
from chalicelib.core.producing.produce import queue_of_key
from chalicelib.core.requests import correlation
from chalicelib.core.requests.correlation import Correlation
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write
from chalicelib.core.transactions.half import COMMITTED, ROLLED_BACK, Decided, TransactionId, Undecided
from chalicelib.push import slots
from local.memory.evaluate import after, allows
from tests.core.test_correlation import CORRELATIONS

NOW = 1_800_000_000_000
DAY_S = 86_400
TOPIC = Topic("orders", "tid", 0, retention_ms=3_600_000)
ENTRY = Entry(b"entry-id", 2, NOW, "json", 30, b"data", 0, 700, NOW - 5)
STORED = {"i": b"entry-id", "n": 2, "at": NOW, "c": "json", "w": 30, "d": b"data", "l": 700, "s": NOW - 5}
POINTER = b"entry-id" + bytes.fromhex("0002 01a3185c5000 0000001e 03 06 0000000002bc 01a3185c4ffb")
PLAIN = Entry(b"entry-id", 2, NOW, "json", 30, b"data")
SLOTS = (Slot(NOW, b"message1"), Slot(NOW + 1, b"message2"))
PACKED = bytes.fromhex("01a3185c5000") + b"message1" + bytes.fromhex("01a3185c5001") + b"message2"
RECORD = dedup.DedupRecord(NOW, ENTRY, 1, 2, 40, True, NOW + 9)
UNDECIDED = Undecided(PLAIN, (None, 3), 1_000, NOW + 60_000, NOW + 1_000, 0)
REQUEST = Correlation("topic-id", "orders", NOW, 3_000, b"12345678")
SLOT = slots.PushSlot(keys.push_slot("tid", "gid", 1), 1, "token", NOW + 5_000)
PAUSE = slots.PushPause(keys.push_pause("tid", "gid"), 2, NOW)
REPLIER = correlation.Replier("workers", 1, 2, 3, NOW - 4)
KIB_FULL = 700


def made(write: Write, before: Item | None = None) -> dict[str, Any] | None:
    """The attributes of the item after the write."""
    assert allows(write, before)
    item = after(before, write)
    assert float not in map(type, (item or {}).values())
    return None if item is None else {name: value for name, value in item.items() if name not in ("pk", "sk")}


def test_entries() -> None:
    assert (ENTRY.as_value(), ENTRY.pointing(3).as_value()) == (STORED, POINTER)
    assert (Entry.of(STORED), Entry.of(POINTER)) == (ENTRY, ENTRY.pointing(3))
    common = {"i": b"entry-id", "n": 2, "at": NOW, "c": "json", "w": 30, "d": b"data"}
    assert (PLAIN.as_value(), Entry.of(common)) == (common, PLAIN)
    rare: dict[str, dict[str, Any]] = {"01": {"codec": "zstd"}, "02 0000000002bc": {"least_ttl_ms": 700}}
    for flags, changed in {"00": {}, "04 000000000005": {"first_sent_at_ms": 5}, **rare}.items():
        stored, entry = POINTER[:21] + bytes.fromhex(flags), replace(PLAIN.pointing(3), **changed)
        assert (entry.as_value(), Entry.of(stored)) == (stored, entry)


def test_an_entry_knows_its_shortest_life_and_what_was_sent_first() -> None:
    messages = [
        Message("a", None, None, None, {}, ttl_ms=900, sent_at_ms=NOW - 3),
        Message("b", None, None, None, {}, ttl_ms=700, sent_at_ms=NOW - 5),
        Message("c", None, None, None, {}),
    ]
    entry = Entry.packed(b"entry-id", messages, NOW)
    assert (entry.count, entry.stored_at_ms, entry.data, entry.pieces) == (3, NOW, segment.pack(messages)[1], 0)
    assert (entry.least_ttl_ms, entry.first_sent_at_ms) == (700, NOW - 5)
    last = Entry.packed(b"entry-id", messages[2:], NOW)
    assert (last.least_ttl_ms, last.first_sent_at_ms) == (None, None)
    assert [entry.may_have_expired(at) for at in (NOW + 699, NOW + 700)] == [False, True]
    assert [entry.may_be_purged(at) for at in (None, NOW - 6, NOW - 5)] == [False, False, True]
    assert not last.may_have_expired(NOW * 2)
    assert not last.may_be_purged(NOW * 2)


def test_packed_messages() -> None:
    rare: dict[str, Any] = {"delayed_id": "id", "ttl_ms": 7, "correlation_id": "cid", "reply_by_ms": NOW}
    full = Message(None, b"b", "key", "tag", {"n": "v"}, sent_at_ms=5, **rare)
    messages = [Message("a", None, None, None, {}), full]
    line = b'{"B":"Yg==","k":"key","t":"tag","p":{"n":"v"},"i":"id","s":5,"l":7,"q":"cid","u":1800000000000}'
    lines = b'{"b":"a"}\n' + line
    assert segment.unpack("json", lines) == messages
    codec, data, wire_bytes = segment.pack(messages)
    assert (segment.unpack(codec, data), wire_bytes) == (messages, len(lines) + lines.count(b'"'))
    assert segment.pack(messages[:1])[:2] == ("json", lines[:9])


def test_segments() -> None:
    first = segment.append("log", 40, ENTRY, may_create=True)
    one = {"end": 42, "entries": [STORED], "bytes": ENTRY.size}
    assert (first.key, made(first)) == (("log", "000000000000040"), one)
    item = after(None, first)
    other = Entry(b"another.", 3, NOW, "json", 1, b"x")
    two = {"end": 45, "entries": [STORED, other.as_value()], "bytes": ENTRY.size + other.size}
    assert made(segment.append("log", 40, other, may_create=False), item) == two
    read = Segment.of(item or {})
    assert read == Segment("log", 40, 42, ENTRY.size, (ENTRY,))
    empty = {"end": 40, "entries": [], "bytes": KIB_FULL, "closed": True}
    assert made(segment.close("log", 40, 99)) == {**empty, "ttl": 99}
    assert made(segment.leave("log", None, 7)) == {**empty, "end": 0, "left": 7}
    closed = {"end": 42, "entries": [STORED], "bytes": ENTRY.size + KIB_FULL, "closed": True}
    assert made(segment.close("log", 40, 99), item) == {**closed, "ttl": 99}
    assert made(segment.leave("log", read, 7), item) == {**closed, "left": 7}
    gone = after(item, segment.leave("log", read, 7)) or {}
    assert made(segment.reopen(Segment.of(gone)), gone) == {**one, "bytes": ENTRY.size + KIB_FULL}
    assert made(segment.close_left(Segment.of(gone), 99), gone) == {**closed, "ttl": 99}
    assert made(segment.empty(read, 99), item) == {"end": 42, "entries": [], "bytes": KIB_FULL, "ttl": 99}
    assert made(segment.leave("log", Segment.of(gone), 9), gone) == {**closed, "left": 9}
    full = replace(read, filled_bytes=KIB_FULL)
    assert made(segment.leave("log", full, 7)) == {**empty, "end": 42, "left": 7}
    bare = after(None, segment.leave("log", None, 7)) or {}
    assert made(segment.reopen(Segment.of(bare)), bare) == {"end": 0, "entries": [], "bytes": 0}


def test_records_of_dedup_ids() -> None:
    claim = dedup.claim("tid", "order-1", RECORD)
    about = {"at": NOW, "ttl": 1_800_000_000 + 300 + DAY_S, "entry": STORED, "index": 1, "due": NOW + 9}
    assert made(claim) == {**about, "queue": 2, "base": 40, "create": True}
    assert dedup.DedupRecord.of(after(None, claim) or {}) == RECORD
    assert [allows(claim, {"at": at}) for at in (NOW - DEDUP_MS, NOW - DEDUP_MS + 1)] == [True, False]
    assert [RECORD.stands(NOW + ms) for ms in (DEDUP_MS - 1, DEDUP_MS)] == [True, False]
    assert all(claim.landed({"entry": entry}) for entry in (STORED, POINTER))
    assert not claim.landed({"entry": {**STORED, "i": b"another."}})


def test_delayed_messages_and_decisions_about_them() -> None:
    waiting = delays.wait("tid", 3, NOW, PLAIN)
    item: Item = {"entry": PLAIN.as_value()}
    assert (waiting.key, made(waiting)) == (("delay#tid#3", f"00{NOW}#{b'entry-id'.hex()}"), item)
    mark = delays.mark_cancelled("tid", 3, Slot(NOW, b"entry-id"))
    assert made(mark, after(None, waiting)) == {**item, "x": True}
    assert not allows(mark, None)
    decision = Decision(4, NOW, b"decider.", SLOTS, ENTRY, 40)
    item = {"at": NOW, "by": b"decider.", "s": PACKED, "e": STORED, "b": 40}
    write = decision.write("tid", 3)
    assert (write.key, made(write)) == (("promotions#tid#3", "000000000000004"), item)
    assert (Decision.of(after(None, write) or {}), decision.last) == (decision, SLOTS[1])
    assert [write.landed({"by": by}) for by in (b"decider.", b"another.")] == [True, False]
    assert not allows(write, item)
    cancel = Decision(4, NOW, b"decider.", SLOTS[:1])
    item = {"at": NOW, "by": b"decider.", "s": PACKED[:14]}
    assert made(cancel.write("tid", 3)) == item
    assert (Decision.of({**item, "sk": "4"}), cancel.last) == (cancel, None)
    late = replace(decision, reached_ms=NOW + 2, late=1)
    item = {"at": NOW, "by": b"decider.", "s": PACKED, "e": STORED, "b": 40, "r": NOW + 2, "l": 1}
    assert made(late.write("tid", 3)) == item
    assert Decision.of(after(None, late.write("tid", 3)) or {}) == late
    place = {"pk": f"late#tid#3#{b'message1'.hex()}", "sk": f"00{NOW}"}
    assert late.late_items(TOPIC, 3) == [{**place, "n": 4, "ttl": TOPIC.ttl(NOW)}]


def test_transactions() -> None:
    begin = UNDECIDED.begin(TOPIC)
    until = {"after": 1_000, "until": NOW + 60_000, "check": NOW + 1_000, "checks": 0}
    item = {"entry": PLAIN.as_value(), **until, "q": [-1, 3], "ttl": TOPIC.ttl(NOW + 60_000)}
    assert (begin.key, made(begin)) == (("transactions#tid", f"00{NOW}#{b'entry-id'.hex()}"), item)
    assert not allows(begin, item)
    assert Undecided.of(item) == UNDECIDED
    unasked = Undecided(PLAIN, (None, None), 1_000, NOW + 60_000, NOW + 1_000, 0)
    assert "q" not in (made(unasked.begin(TOPIC)) or {})
    assert Undecided.of({name: item[name] for name in item.keys() - {"q"}}) == unasked
    check = UNDECIDED.check("tid", NOW + 500, b"checker")
    assert made(check, item) == {**item, "check": NOW + 1_500, "checks": 1, "by": b"checker"}
    assert not allows(check, {**item, "checks": 1})
    assert [check.landed(seen) for seen in ({}, {"by": b"other"}, {"by": b"checker"})] == [False, False, True]
    assert made(UNDECIDED.remove("tid"), item) is None
    assert not allows(UNDECIDED.remove("tid"), None)
    assert [UNDECIDED.is_open(NOW + ms) for ms in (59_999, 60_000)] == [True, False]


def test_decided_transactions() -> None:
    decided = Decided(COMMITTED, NOW, ((0, b"message1"), (127, b"message2")))
    write = decided.record(TOPIC, UNDECIDED.id)
    item = {"state": "committed", "at": NOW, "ttl": TOPIC.ttl(NOW), "m": b"\0message1\x7fmessage2"}
    begun = f"{UNDECIDED.entry.stored_at_ms:x}"
    assert (write.key, made(write)) == ((f"decided#tid#{b'entry-id'.hex()}", begun), item)
    assert not allows(write, item)
    assert (Decided.of(item), Decided.of({"state": "rolled_back", "at": 1})) == (decided, Decided(ROLLED_BACK, 1))
    assert decided.slots() == [(0, Slot(NOW, b"message1")), (127, Slot(NOW, b"message2"))]
    text = f"{b'entry-id'.hex()}b{NOW:x}"
    assert (str(UNDECIDED.id), TransactionId.parse(text)) == (text, UNDECIDED.id)


def test_replies() -> None:
    call = {"asked_at": NOW, "reply_by": NOW + 3_000, "ttl": 1_800_000_003 + 3_600 + DAY_S}
    by = {"group": "workers", "queue": 1, "offset": 2, "attempt": 3, "taken_at": NOW - 4}
    replied = {"at": NOW, "entry": STORED, "content": b"same"}
    write = correlation.store(REQUEST, ENTRY, b"same", REPLIER)
    assert (write.key, made(write)) == ((f"reply#topic-id#{b'12345678'.hex()}", "reply"), {**replied, **by, **call})
    assert made(correlation.store(REQUEST, ENTRY, b"same", None)) == {**replied, **call}
    end = correlation.time_out(REQUEST, NOW + 3_000)
    assert made(end) == {"at": NOW + 3_000, **call}
    assert not allows(end, replied)
    assert not allows(write, {"at": NOW})
    assert not write.landed(replied)  # its caller looks whose reply it is
    assert [correlation.is_reply(item) for item in (replied, {"at": NOW})] == [True, False]
    message = Message("a", None, None, None, {"n": "v"})
    assert correlation.fingerprint(message).hex() == "93bd019f9517e30a142f742ee9cf9f40"


def test_slots_and_pauses() -> None:
    held = {"by": "token", "until": NOW + 5_000, "ttl": 1_800_000_005 + DAY_S}
    assert made(slots.take(SLOT, None)) == made(slots.take(SLOT, {"until": 5}), {"until": 5}) == held
    assert not allows(slots.take(SLOT, None), {"until": 5})
    assert not allows(slots.take(SLOT, {"until": 4}), {"until": 5})
    assert made(slots.hold(SLOT), {**held, "until": 5, "ttl": 5}) == held
    assert not allows(slots.hold(SLOT), {**held, "by": "other"})
    for write in (slots.take(SLOT, None), slots.hold(SLOT)):
        assert [write.landed(item) for item in (held, {**held, "by": "other"}, {**held, "until": 5}, {})] == [
            *(True, False, False, False)
        ]
    failed = {"failures": 3, "until": NOW + 7_000, "ttl": 1_800_000_007 + DAY_S}
    assert made(PAUSE.failed(7_000, NOW), {"failures": 2}) == failed
    assert made(slots.PushPause(PAUSE.key).failed(7_000, NOW)) == {**failed, "failures": 1}
    assert not allows(PAUSE.failed(7_000, NOW), {"failures": 3})
    assert not allows(slots.PushPause(PAUSE.key).failed(7_000, NOW), {"failures": 1})
    assert made(PAUSE.over(), {"failures": 2}) is None
    assert not allows(PAUSE.over(), {"failures": 3})
    assert slots.PushPause.of(PAUSE.key, {"failures": 2, "until": NOW}) == PAUSE
    assert slots.PushPause.of(PAUSE.key, None) == slots.PushPause(PAUSE.key)
    assert [slots.PushPause(PAUSE.key, 1, NOW).holds(NOW - ms) for ms in (0, 1)] == [False, True]


def test_ids_of_requests() -> None:
    text = "MQGjGFxQAAALuDEyMzQ1Njc4dG9waWMtaWQ6b3JkZXJzG58eBT9XD1Z0N0QNB9NbWg"
    assert (CORRELATIONS.sign(REQUEST), CORRELATIONS.read(text)) == (text, REQUEST)


def test_the_queues_of_keys() -> None:
    assert [queue_of_key(key, 128) for key in ("", "a", "customer-42", "ключ", "x" * 256)] == [62, 11, 127, 47, 29]
    assert queue_of_key("customer-42", 2**40) == 540_487_362_159  # after many more draws
