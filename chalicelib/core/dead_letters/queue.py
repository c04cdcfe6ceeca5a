"""Lists dead letters with their messages, and purges them."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from chalicelib.core.base.errors import MessageNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, DEAD_MS, RESPONSE_JSON_BYTES_MAX
from chalicelib.core.base.message import Space, Stored, carried_bytes, parse_message_id
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.cursor_writes import purge
from chalicelib.core.dead_letters import bury
from chalicelib.core.dead_letters.bury import DeadLetter
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
