"""Bugs planted into the protocol, one at a time, to see that the checker finds each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from chalicelib.core.base import message
from chalicelib.core.consuming import claim, claim_plan, receipt_batch, settle
from chalicelib.core.cursors import broadcast, cursor, cursor_writes, lease, receipt, retries
from chalicelib.core.cursors.cursor_writes import Change
from chalicelib.core.dead_letters import bury, dead_letter, redrive
from chalicelib.core.dead_letters.dead_letter import DeadLetter
from chalicelib.core.log import payloads, segment, tails, writer
from chalicelib.core.log.segment import SEGMENT_FULL_BYTES
from chalicelib.core.producing import produce
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Add, AtMost, Equals, Exists, Lacks, Refused, Set, SizeIs, Write, never_landed

Mutant = Callable[[], AbstractContextManager[Any]]

MUTANTS: dict[str, Mutant] = {}
"""By name; each plants its bug for as long as its context lasts."""


def planted(plant: Mutant) -> Mutant:
    MUTANTS[plant.__name__] = plant
    return plant


def without(guarded: Any, *kinds: type) -> Any:
    """The write or change without its guards of these kinds."""
    return dataclasses.replace(guarded, guards=tuple(each for each in guarded.guards if not isinstance(each, kinds)))


def calling(caller: Any, **steps: Any) -> Any:
    """For as long as its context lasts, `caller` writes cursors with these steps; all other modules write the true
    ones."""
    return replaced(caller, "cursor_writes", **steps)


def replaced(caller: Any, module: str, **steps: Any) -> Any:
    """The same for another module that the caller uses by its name."""
    return patch.object(caller, module, SimpleNamespace(**{**vars(getattr(caller, module)), **steps}))


class _OneByOne:
    """The store, in which what belongs together is written by one request after another."""

    def __init__(self, store: Any, write: Callable[[Any, Write], object]) -> None:
        self._store, self._write = store, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write_together(self, writes: Any) -> None:
        for each in writes:
            self._write(self._store, each)


def writing_one_by_one(caller: Any, method: str, write: Callable[[Any, Write], object]) -> Any:
    """For as long as its context lasts, this method sends each write of a transaction alone, by `write`."""
    true = getattr(caller, method)

    def called(self: Any, *args: Any) -> Any:
        store, self._store = self._store, _OneByOne(self._store, write)
        try:
            return true(self, *args)
        finally:
            self._store = store

    return patch.object(caller, method, called)


# -- the log ----------------------------------------------------------------------------------------------------------


@planted
def appends_without_dedup() -> Any:
    """A repeated append lands twice."""

    def append(*args: Any) -> Any:
        return dataclasses.replace(without(segment.append(*args), Lacks), landed=never_landed)

    return patch.object(writer, "append", append)


@planted
def appends_that_trust_the_tail() -> Any:
    """After a full segment the writer goes on at an offset of its own making."""
    true = tails.Tails.of

    def of(self: Any, topic: Any, logs: Any) -> Any:
        known = true(self, topic, logs)
        beyond = {log: dataclasses.replace(tail, base=tail.base + 1) for log, tail in known.items() if tail.base}
        return {log: beyond.get(log, tail) if tail.may_create else tail for log, tail in known.items()}

    return patch.object(tails.Tails, "of", of)


@planted
def fullness_that_depends_on_the_entry() -> Any:
    """A segment is full for a large entry, whose writer makes the next one, and not for a small one."""

    def append(name: str, base: int, entry: Any, may_create: bool) -> Write:
        made = segment.append(name, base, entry, may_create)
        room = AtMost(("bytes",), SEGMENT_FULL_BYTES - entry.size)
        guards = [
            dataclasses.replace(guard, second=room) if guard == segment.HAS_ROOM else guard for guard in made.guards
        ]
        return dataclasses.replace(made, guards=tuple(guards))

    def is_sealed(self: segment.Segment) -> bool:
        return not self.is_closed and self.filled_bytes >= SEGMENT_FULL_BYTES // 2

    return together(
        patch.object(writer, "append", append), patch.object(segment.Segment, "is_sealed", property(is_sealed))
    )


@planted
def open_segments_that_expire() -> Any:
    """An open segment has a TTL: it goes while it is still the end of its log."""
    true = tails.Tails.of

    def of(self: Any, topic: Any, logs: Any) -> Any:
        known = true(self, topic, logs)
        for log, tail in known.items():
            if not tail.may_create and self._runtime.now() - tail.seen_at_ms > 200:
                self._store.remove_all([keys.segment(log, tail.base)])
        return known

    return patch.object(tails.Tails, "of", of)


@planted
def payloads_after_their_pointers() -> Any:
    """The entry is in the log before what it points to is stored."""
    spill, append = payloads.Payloads.spill, writer.LogWriter.append
    late: list[Any] = []

    def spill_later(self: Any, topic_id: str, entries: Any, ttl: int) -> Any:
        late.append(lambda: spill(self, topic_id, entries, ttl))
        return [
            entry.pointing(len(segment.pieces_of(entry.data))) if entry.data and entry.size > bytes_max else entry
            for entry, bytes_max in entries
        ]

    def append_first(self: Any, *args: Any) -> Any:
        done = append(self, *args)
        while late:
            late.pop()()
        return done

    return together(
        patch.object(payloads.Payloads, "spill", spill_later), patch.object(writer.LogWriter, "append", append_first)
    )


@planted
def keys_that_wander() -> Any:
    """The queue of a key depends on more than the key."""
    turns = iter(range(10**9))
    return patch.object(produce, "queue_of_key", lambda _key, queues: next(turns) % queues)


# -- the claim --------------------------------------------------------------------------------------------------------


@planted
def claims_past_the_end() -> Any:
    """A claim may pass the end that the claimer has seen."""

    return calling(claim_plan, not_beyond=lambda _: Change())


@planted
def claims_that_pass_what_others_sifted() -> Any:
    """What a filter passes is counted from wherever the cursor stands by then."""
    return calling(claim_plan, stays_at=lambda _: Change())


@planted
def ordered_queues_that_do_not_wait() -> Any:
    """Messages of an ordered group are given out while others before them are held."""
    return patch.object(claim_plan, "is_held", lambda *_: False)


@planted
def ordered_claims_that_race() -> Any:
    """Two claims of an ordered queue may both win, after looks that found it free."""
    true = claim_plan.take
    return patch.object(claim, "take", lambda *args: true(*[*args[:-2], False, args[-1]]))


@planted
def claims_that_forget_the_cap() -> Any:
    """What others have claimed since does not count against the cap."""
    true = claim_plan.pick

    def pick(seen: Any, group: Any, end: int, *args: Any) -> Any:
        picked = true(seen, group, end, *args)
        return dataclasses.replace(picked, next_at_most=end - picked.fresh, is_capped_closely=False)

    return patch.object(claim, "pick", pick)


@planted
def takeovers_without_a_fence() -> Any:
    """A lease is taken over although it was acked, or taken over, since it was seen."""
    return calling(claim_plan, move=lambda *args: without(cursor_writes.move(*args), SizeIs))


@planted
def early_takeovers() -> Any:
    """A lease counts as run out a while before it has."""
    return patch.object(lease.Lease, "is_due", lambda self, now: self.deadline - 900 <= now and bool(self.owed))


@planted
def takeovers_that_are_a_little_early() -> Any:
    """By less than clocks may differ: this shows where they do not."""
    return patch.object(lease.Lease, "is_due", lambda self, now: self.deadline - 300 <= now and bool(self.owed))


@planted
def claims_that_what_is_redriven_passes() -> Any:
    """What comes back from the dead meanwhile does not count against the cap."""
    return calling(claim_plan, no_redrive_since=lambda _: Change())


@planted
def acks_that_a_takeover_forgets() -> Any:
    """A takeover delivers what was acked of the lease."""
    return patch.object(claim_plan, "runs", lambda indexes: lease.runs(range(max(indexes) + 1) if indexes else []))


@planted
def attempts_that_begin_anew() -> Any:
    """A message that is taken over is at its first attempt again."""
    true = claim_plan.take

    def take(*args: Any) -> Change:
        made = true(*args)
        for effect in made.effects:
            if isinstance(effect, Set) and isinstance(effect.value, list) and len(effect.value) >= 4:
                effect.value[3] = 1
        return made

    return patch.object(claim, "take", take)


# -- settling ---------------------------------------------------------------------------------------------------------


@planted
def moves_without_a_fence() -> Any:
    """A message is nacked or extended although its lease has lost it since."""
    return calling(receipt_batch, move=lambda *args: without(cursor_writes.move(*args), SizeIs))


@planted
def acks_of_a_whole_lease_without_its_size() -> Any:
    """The last ack removes the lease although others have marked it since."""
    return calling(receipt_batch, ack=lambda *args: without(cursor_writes.ack(*args), SizeIs))


@planted
def acks_by_offset() -> Any:
    """An ack counts for whoever holds the message now."""

    def standing(self: Any, shown: Any) -> Any:
        holder = next((each for each in self.cursor.owing if each.owes(shown.offset)), None)
        return cursor.Standing.ACKED if holder is None else cursor.Standing.OWED

    def acks(self: Any) -> Any:
        change: Any = Change()
        for _, shown in self.receipts:
            for each in self.cursor.owing:
                if each.owes(shown.offset) and each.path not in [effect.path for effect in change.effects]:
                    change += cursor_writes.ack(each, [shown.offset - each.start])
        return receipt_batch.Plan(change, self.tokens)

    return together(
        patch.object(receipt_batch.ReceiptBatch, "standing", standing),
        patch.object(receipt_batch.ReceiptBatch, "acks", acks),
    )


@planted
def beliefs_taken_for_truth() -> Any:
    """What an instance remembers of a cursor decides what a receipt is worth."""
    return patch.object(receipt_batch.ReceiptBatch, "is_seen", property(lambda _: True))


@planted
def verdicts_from_the_past() -> Any:
    """What a receipt is worth is told from a read that may be stale."""

    def read_stale(store: Any, wanted: Any) -> Any:
        return [
            cursor.Cursor.or_none(items[0] if items else None) for items in store.read([Keys([key]) for key in wanted])
        ]

    return patch.object(settle, "read_again", read_stale)


@planted
def nacks_that_settle() -> Any:
    """A nacked message leaves its lease and goes nowhere."""

    def move(old: Any, indexes: Any, new: Any, *more: Any) -> Change:
        return cursor_writes.move(old, indexes, [] if any(each.parked for each in new) else new, *more)

    return calling(receipt_batch, move=move)


@planted
def nacks_that_come_back_at_once() -> Any:
    """The delay of a nack is forgotten."""
    return patch.object(settle, "parked", lambda *args: dataclasses.replace(lease.parked(*args), deadline=0))


@planted
def receipts_of_the_message_before() -> Any:
    """The index in a receipt is off by one."""
    true = receipt.read

    def read(text: str, key: bytes) -> Any:
        found = true(text, key)
        return found and dataclasses.replace(
            found, index=max(0, found.index - 1), offset=found.offset - (1 if found.index else 0)
        )

    return patch.object(receipt, "read", read)


@planted
def receipts_without_a_group() -> Any:
    """A receipt is taken for one of the group that it is shown to."""
    true = settle.Settler.open

    def opened(self: Any, topic: Any, group: str, texts: Any) -> Any:
        own = self._catalogue.group(topic, group).id
        read_each = self._receipts.read_each

        def read(*args: Any) -> list[Any]:
            return [found and dataclasses.replace(found, group_id=own) for found in read_each(*args)]

        with patch.object(self._receipts, "read_each", read):
            return true(self, topic, group, texts)

    return patch.object(settle.Settler, "open", opened)


@planted
def tidying_that_forgets_what_moved() -> Any:
    """Marks are put together without those of what was moved."""
    true = lease.Lease.compacted

    def compacted(self: Any) -> Any:
        made = true(self)
        return dataclasses.replace(made, marks=(made.marks[0], lease.mark(lease.ACKED, ()), *made.marks[2:]))

    return together(patch.object(lease.Lease, "compacted", compacted), patch.object(lease, "MARKS_MAX", 1))


@planted
def pruning_of_what_has_run_out() -> Any:
    """A lease is forgotten when its time is over, whatever it owes."""
    true = vars(cursor.Cursor)["inert"]

    def inert(self: Any) -> Any:
        over = [each for each in self.owing if self.last_pop_at_ms and each.deadline + 500 < self.last_pop_at_ms]
        return [each for each in (*true.fget(self), *over) if not each.is_witness]  # few of these are not removed

    return together(
        patch.object(cursor.Cursor, "inert", property(inert)),
        calling(claim, INERT_MAX=0),
        calling(receipt_batch, INERT_MAX=0),
    )


# -- resets and dead letters ------------------------------------------------------------------------------------------


@planted
def epochs_that_nobody_looks_at() -> Any:
    """What is from before a reset still counts."""
    true = cursor_writes.write

    def write(*args: Any) -> Write:
        made = true(*args)
        return dataclasses.replace(
            made,
            guards=tuple(each for each in made.guards if not (isinstance(each, Equals) and each.path == ("epoch",))),
        )

    def standing(self: Any, shown: Any) -> Any:
        return self.cursor.standing(shown.token, shown.start, shown.offset)

    return together(
        patch.object(settle, "write", write),
        calling(claim, write=write),
        patch.object(receipt_batch.ReceiptBatch, "standing", standing),
    )


@planted
def resets_that_keep_leases() -> Any:
    """A reset moves the cursor, and leases from before go on."""
    true = cursor_writes.reset

    def reset(*args: Any) -> Any:
        made: Any = true(*args)
        return dataclasses.replace(
            made, effects=tuple(each for each in made.effects if each.path not in (("leases",), ("epoch",)))
        )

    return patch.object(broadcast, "reset", reset)


@planted
def receipts_refused_while_they_live() -> Any:
    """An ack of a message that is owed is refused."""

    def acknowledge(self: Any, topic: Any, group: str, settlements: Any) -> list[Any]:
        texts = [text for each in settlements for text, _ in each.receipts]
        return [receipt_batch.Failure(text, receipt_batch.LEASE_LOST) for text in texts]

    return patch.object(settle.Settler, "acknowledge", acknowledge)


@planted
def extensions_that_are_short() -> Any:
    """An extended lease ends a second before it was asked to."""
    true = settle.Settler.extend
    return patch.object(settle.Settler, "extend", lambda *args: true(*[*args[:-1], args[-1] - 1_000]))


@planted
def resets_that_do_nothing() -> Any:
    """A reset is answered, and the cursor stays where it was."""
    return patch.object(broadcast.Consumers, "move", lambda *_: None)


@planted
def burials_in_two_writes() -> Any:
    """A message leaves the cursor, and its dead letter comes after."""

    def bury_in_two(self: Any, group: Any, seen: Any, exhausted: Any, reason: str) -> Any:
        chosen = bury.together(exhausted)
        now = self._runtime.now()
        try:
            self._store.write(
                cursor_writes.write(seen, cursor_writes.bury(chosen, sum(len(each) for _, each in chosen)))
            )
            for old, indexes in chosen:
                for index in indexes:
                    place = (group, seen, old.start + index, old.attempt, reason, now)
                    letter = DeadLetter.new(*place)
                    self._store.write(dead_letter.put(letter, letter.key in self._there(seen, [letter])))
        except Refused:
            chosen = []
        found = self._store.read([Keys([seen.key], strong=True)])[0]
        return (cursor.Cursor.of(found[0]) if found else None), chosen

    return patch.object(bury.Burial, "bury", bury_in_two)


@planted
def burials_without_a_fence() -> Any:
    """A message is buried although it was acked since its lease was seen."""

    def buried(*args: Any) -> Any:
        return without(cursor_writes.bury(*args), SizeIs)

    return patch.object(bury, "bury", buried)


@planted
def one_attempt_too_many() -> Any:
    """A message that was delivered often enough is delivered once more."""
    true = bury.Burial.bury_exhausted

    def bury_exhausted(self: Any, group: Any, *args: Any) -> Any:
        return true(self, dataclasses.replace(group, max_attempts=group.max_attempts + 1), *args)

    return patch.object(bury.Burial, "bury_exhausted", bury_exhausted)


@planted
def redrives_of_what_is_alive() -> Any:
    """A message that a reset has made ready is parked all the same when its letter goes."""
    true = redrive.choose

    def choose(seen: Any, letters: Any, paged: Any = ()) -> Any:
        return true(dataclasses.replace(seen, leases={}, next=10**9), letters)

    return patch.object(redrive, "choose", choose)


@planted
def redrives_that_keep_the_letter() -> Any:
    """What is redriven is dead still."""
    return patch.object(dead_letter, "remove", lambda letter: Write(letter.key, (), (Add(("again",), 1),)))


@planted
def deaths_that_count_twice() -> Any:
    """A letter that takes the place of an older one counts again."""
    return patch.object(
        bury, "bury", lambda chosen, _: cursor_writes.bury(chosen, sum(len(each[1]) for each in chosen))
    )


# -- retry pages ------------------------------------------------------------------------------------------------------


@planted
def pages_that_nobody_notes() -> Any:
    """Retries go into a page, and the cursor does not know of it."""

    true = retries.put_away

    def put_away(*args: Any) -> list[Write]:
        of_cursor, of_page = true(*args)
        return [dataclasses.replace(of_cursor, effects=of_cursor.effects[1:]), of_page]

    return patch.object(retries, "put_away", put_away)


@planted
def pages_that_come_back_twice() -> Any:
    """Two pops at once bring back one page."""
    true = retries.bring_back
    return patch.object(retries, "bring_back", lambda *args: [without(made, Exists) for made in true(*args)])


# -- reading ----------------------------------------------------------------------------------------------------------


@planted
def ids_from_the_clock() -> Any:
    """Two entries get one id."""
    true = segment.Entry.packed
    return patch.object(segment.Entry, "packed", lambda _entry_id, *args: true(bytes(message.ENTRY_ID_BYTES), *args))


@contextmanager
def together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """All of these at once."""
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield
