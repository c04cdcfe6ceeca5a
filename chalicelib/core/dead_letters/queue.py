"""Lists dead letters with their messages, purges them, and redrives them: their group then delivers them again as if
for the first time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

import orjson

from chalicelib.core.base.errors import GroupNotFound, MessageNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, DEAD_MS, LEASES_MAX, RESPONSE_JSON_BYTES_MAX, TAKEOVERS_MAX
from chalicelib.core.base.message import Space, Stored, carried_bytes, parse_message_id
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import purge, redrive, write
from chalicelib.core.cursors.lease import parked, runs
from chalicelib.core.dead_letters import bury
from chalicelib.core.dead_letters.bury import DeadLetter, RedriveResult
from chalicelib.core.delays.delayed_messages import DelayedMessages
from chalicelib.core.log.reader import LogReader, Want, entry_at, wire_bytes, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Keys, Range, Read, paging
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key, Refused

PURGED_TOGETHER_MAX = 90
"""Dead letters that one transaction removes, beside the cursor that counts them."""


@record
class ListedLetter:
    stored: Stored
    letter: DeadLetter


class DeadLetterQueue:
    def __init__(self, env: Env, reader: LogReader, delayed: DelayedMessages) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._reader, self._delayed = env.catalogue, reader, delayed

    def page(self, topic: Topic, name: str, limit: int, token: str | None) -> tuple[list[ListedLetter], str | None]:
        """Up to `limit` dead messages by queue and offset, and the token of the next page (None: no more). Fewer if a
        response would not hold them; omits letters whose message the log has dropped. Raises GroupNotFound."""
        group = self._catalogue.group(topic, name)
        dead = keys.dead_partition(topic.id, group.id)
        items, rest = paging.page(self._store, dead, limit, token, keys.DEAD_PATTERN)
        letters = [DeadLetter.of(item) for item in items]
        readable, unread = self._messages(topic, letters)
        messages = readable[: _fitting(readable)]
        left = [dead.letter for dead in readable[len(messages) :]] or unread
        return messages, paging.token_of(letters[letters.index(left[0]) - 1].key.sk) if left else rest

    def read(self, group: Group, since: str, limit: int, last: str = keys.LAST) -> list[DeadLetter]:
        """The first letters, by queue and offset, between these sort keys."""
        dead = keys.dead_partition(group.topic_id, group.id)
        items = self._store.read([Range(dead, since, last, limit=limit, strong=True)])[0]
        return [DeadLetter.of(item) for item in items]

    def again(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Those of the letters that still exist, read again."""
        items = self._store.read([Keys([letter.key for letter in letters], strong=True)])[0]
        return [DeadLetter.of(item) for item in items]

    def named(self, topic: Topic, group: Group, message_ids: Sequence[str]) -> list[DeadLetter]:
        """The letters of these messages, each once; in a broadcast group those of all consumers. Raises MessageNotFound
        if a message has none."""
        parsed = {text: parse_message_id(text) or self._delayed.place(topic, text) for text in message_ids}
        places = sorted({place[1:3] for place in parsed.values() if place})
        keyed = [keys.dead(topic.id, group.id, *place) for place in places]
        ranges: list[Read] = [Range(key.pk, key.sk, key.sk + keys.LAST, strong=True) for key in keyed]
        answers = self._store.read(ranges if group.is_broadcast else [Keys(keyed, strong=True)])
        letters = [DeadLetter.of(item) for items in answers for item in items]
        dead = {letter.place for letter in letters}
        chains = self._chains(topic, sorted(dead))
        for text, place in parsed.items():
            entry = entry_at(chains[place[1]], place[2]) if place and place[1:3] in dead else None
            if entry is None or place is None or entry.id != place[0]:
                raise MessageNotFound(f"message {shown(text)} is not among the dead letters of group '{group.name}'")
        return letters

    def purge(self, topic: Topic, name: str) -> int:
        """Removes the letters while there is time, and perhaps some that are written meanwhile. Returns how many.
        Raises GroupNotFound."""
        group = self._catalogue.group(topic, name)
        return self._purge(topic, group, keys.FIRST, keys.LAST, self._runtime.uptime() + DEAD_MS)

    def purge_before(self, topic: Topic, group: Group, queue: int, offset: int, until_ms: int) -> int:
        """Removes the letters of a queue for messages before this offset, while there is time. Returns how many."""
        first, last = (keys.dead(topic.id, group.id, queue, place).sk for place in (0, offset - 1))
        return self._purge(topic, group, first, last + keys.LAST, until_ms)

    def _purge(self, topic: Topic, group: Group, since: str, last: str, until_ms: int) -> int:
        count = 0
        while self._runtime.uptime() <= until_ms:
            letters = self.read(group, since, PURGED_TOGETHER_MAX, last)
            for cursor, own in by_cursor(group, letters).items():
                count += self._purged(topic, group, cursor, own, until_ms)
            if len(letters) < PURGED_TOGETHER_MAX:
                break
        return count

    def _purged(self, topic: Topic, group: Group, cursor: Key, letters: list[DeadLetter], until_ms: int) -> int:
        """Removes these letters, all counted by one cursor. Returns how many."""
        while letters and self._runtime.uptime() <= until_ms:
            try:
                self._store.write_together([purge(cursor, len(letters)), *map(bury.remove, letters)])
                return len(letters)
            except Refused:
                self._catalogue.group(topic, group.name)
                letters = self.again(letters)
        return 0

    def _messages(self, topic: Topic, letters: Sequence[DeadLetter]) -> tuple[list[ListedLetter], Sequence[DeadLetter]]:
        """The readable messages of the first of these letters, and the remaining letters that do not fit a response,
        whose messages it does not read."""
        chains = self._chains(topic, sorted({letter.place for letter in letters}))
        stored: dict[tuple[int, int], Stored] = {}
        left_bytes = RESPONSE_JSON_BYTES_MAX
        unread: Sequence[DeadLetter] = ()
        for queue, chain in chains.items():
            offsets = sorted({letter.offset for letter in letters if letter.queue == queue})
            wanted = [offset for offset in offsets if entry_at(chain, offset)]
            reached = within_reach(chain, wanted, left_bytes)
            for message in self._reader.stored(topic, queue, chain, reached):
                stored[queue, message.offset] = message
            left_bytes -= wire_bytes(chain, reached)
            if len(reached) < len(wanted):
                cut = (queue, wanted[len(reached)])
                unread = [letter for letter in letters if letter.place >= cut]
                break
        placed = ((stored.get(letter.place), letter) for letter in letters)
        return [ListedLetter(message, letter) for message, letter in placed if message], unread

    def _chains(self, topic: Topic, places: Sequence[tuple[int, int]]) -> dict[int, list[Segment]]:
        """By queue, the segments that hold these sorted places, read as ranges with small gaps. It reads places missing
        from a range separately, since an unfinished removal leaves holes in a log."""
        chains: dict[int, list[Segment]] = {queue: [] for queue, _ in places}
        for in_stretches in (True, False):
            missing = [(queue, offset) for queue, offset in places if not entry_at(chains[queue], offset)]
            asked = _stretches(missing) if in_stretches else [(queue, range(at, at + 1)) for queue, at in missing]
            wants = [Want(keys.log(topic.id, queue), stretch.start, len(stretch), None) for queue, stretch in asked]
            for (queue, _), chain in zip(asked, self._reader.chains(wants, strong=True), strict=True):
                known = {segment.base: segment for segment in [*chains[queue], *chain]}
                chains[queue] = [known[base] for base in sorted(known)]
        return chains


def by_cursor(group: Group, letters: Sequence[DeadLetter]) -> dict[Key, list[DeadLetter]]:
    """The letters by the key of the cursor that counts them, in offset order."""
    counted: dict[Key, list[DeadLetter]] = {}
    for letter in sorted(letters, key=lambda letter: (letter.queue, letter.consumer, letter.offset)):
        counted.setdefault(group.cursor_key(letter.queue, letter.consumer), []).append(letter)
    return counted


def _stretches(places: Sequence[tuple[int, int]]) -> list[tuple[int, range]]:
    """Queues and ranges of offsets that cover these sorted places, one range for places with small gaps."""
    stretches: list[tuple[int, range]] = []
    for queue, offset in places:
        last_queue, last = stretches[-1] if stretches else (None, range(0))
        if queue == last_queue and offset - last.stop <= BATCH_MESSAGES_MAX:
            stretches[-1] = (queue, range(last.start, offset + 1))
        else:
            stretches.append((queue, range(offset, offset + 1)))
    return stretches


def _fitting(messages: Sequence[ListedLetter]) -> int:
    """How many of the letters fit a response with their reasons: at least one."""
    reasons_bytes = sum(carried_bytes(orjson.dumps(dead.letter.reason)) for dead in messages)
    space = Space(json_bytes=RESPONSE_JSON_BYTES_MAX - reasons_bytes)
    return max(space.fitting(dead.stored for dead in messages), 1)


# -- redrive ----------------------------------------------------------------------------------------------------------

REDRIVEN_LEASES_MAX = LEASES_MAX // 2
"""The most leases of a cursor that accepts redriven messages: the remaining room is for consumers. Adjacent messages
share a lease."""


class Redrive:
    def __init__(self, env: Env, letters: DeadLetterQueue, cursors: Cursors) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._letters = env.catalogue, env.agenda, letters
        self._retries, self._consumers = cursors.retries, cursors.consumers

    def some(self, topic: Topic, name: str, message_ids: Sequence[str]) -> RedriveResult:
        """Redrives these messages, as many as time and room allow; none unless all of them are dead. Raises
        GroupNotFound, MessageNotFound."""
        group = self._catalogue.group(topic, name)
        until_ms = self._runtime.uptime() + DEAD_MS
        letters = self._letters.named(topic, group, message_ids)
        counted = by_cursor(group, letters).items()
        count = sum(self._own(topic, group, cursor, own, until_ms)[0] for cursor, own in counted)
        return RedriveResult(count, self.remaining(topic, name))

    def all(self, topic: Topic, name: str) -> RedriveResult:
        """Redrives all messages that are dead now, as time and room allow. Raises GroupNotFound."""
        group = self._catalogue.group(topic, name)
        until_ms = self._runtime.uptime() + DEAD_MS
        count, since = 0, keys.FIRST
        stopped: set[Key] = set()
        while letters := self._letters.read(group, since, PURGED_TOGETHER_MAX):
            since = letters[-1].key.sk + keys.AFTER  # messages that die again meanwhile wait for the next call
            for cursor, own in by_cursor(group, letters).items():
                if cursor not in stopped:
                    redriven_here, is_stopped = self._own(topic, group, cursor, own, until_ms)
                    count += redriven_here
                    stopped |= {cursor} if is_stopped else set()
            if self._runtime.uptime() > until_ms:
                break
            if group.cursor_key(letters[-1].queue) in stopped:
                since = keys.dead(topic.id, group.id, letters[-1].queue + 1, 0).sk
        return RedriveResult(count, self.remaining(topic, name))

    def remaining(self, topic: Topic, name: str) -> int:
        """The number of the group's dead messages. Raises GroupNotFound."""
        return sum(cursor.dead for cursor in self._consumers.all(topic, self._catalogue.group(topic, name)))

    def _own(self, topic: Topic, group: Group, key: Key, letters: list[DeadLetter], until_ms: int) -> tuple[int, bool]:
        """Redrives letters, all counted by the cursor of this key, while there is time. Returns how many, and whether
        room ran out."""
        count = 0
        while letters and self._runtime.uptime() <= until_ms:
            [cursor] = read_again(self._store, [key])
            if cursor is None:
                raise GroupNotFound(f"topic '{topic.name}' has no group '{group.name}' any more")
            # The message of a letter from before a reset may be ready or owed as well.
            is_ancient = any(letter.epoch != cursor.epoch for letter in letters)
            paged = self.paged(cursor) if is_ancient else set()
            if paged is None:
                continue
            chosen, back = choose(cursor, letters, paged)
            if not chosen:
                return count, True
            if keys.queue_of(key) >= topic.queues:  # a sweep that finds this reads the queue again, if it has left
                self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)
            self._agenda.note_ready(topic)
            now = self._runtime.now()
            change = redrive([parked(self._runtime, run, now, attempt=0) for run in back], len(chosen))
            try:
                self._store.write_together([write(cursor, change), *map(bury.remove, chosen)])
            except Refused:
                letters = self._letters.again(letters)
                continue
            count += len(chosen)
            letters = letters[len(chosen) :]
        return count, False

    def paged(self, cursor: Cursor) -> set[int] | None:
        """The offsets in the cursor's pages, or None if one was brought back since the cursor was read."""
        held = self._retries.read([(cursor, cursor.pages.values())])[0]
        if held.keys() != cursor.pages.keys():
            return None
        return {offset for leases in held.values() for lease in leases for offset in lease.owed_offsets}


class Dead(Protocol):
    """A letter, or the copy of a message in a topic for dead messages."""

    @property
    def offset(self) -> int: ...


D = TypeVar("D", bound=Dead)


def choose(cursor: Cursor, letters: Sequence[D], paged: Collection[int] = ()) -> tuple[list[D], list[range]]:
    """The first of these letters, in offset order, that one transaction can remove, and the redriven offsets as one run
    per lease; none if the cursor has no room. `paged`: offsets that the cursor's pages owe.

    If a reset to before a message delivers it anyway, only its letter is removed."""
    alive = {*paged, *(offset for lease in cursor.owing for offset in lease.owed_offsets)}
    room = min(TAKEOVERS_MAX, REDRIVEN_LEASES_MAX - len(cursor.leases))
    chosen: list[D] = []
    back: list[int] = []
    leases = 0
    for letter in letters[:PURGED_TOGETHER_MAX]:
        if letter.offset < cursor.next and letter.offset not in alive:
            if back[-1:] != [letter.offset - 1]:
                leases += 1
            if leases > room:
                break
            back.append(letter.offset)
        chosen.append(letter)
    return chosen, runs(back)
