"""Lists dead letters with their messages, and purges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import orjson

from chalicelib.base.errors import MessageNotFound
from chalicelib.base.fields import shown
from chalicelib.base.limits import BATCH_MESSAGES_MAX, DEAD_MS, RESPONSE_JSON_BYTES_MAX
from chalicelib.base.message import Stored, carried_bytes, parse_message_id
from chalicelib.base.response_size import Space
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.cursors.cursor_writes import purged
from chalicelib.cursors.lease import runs
from chalicelib.dead_letters import dead_letter
from chalicelib.dead_letters.dead_letter import DeadLetter
from chalicelib.delays.delayed_messages import DelayedMessages
from chalicelib.log.reader import LogReader, Want, entry_at, wire_bytes, within_reach
from chalicelib.log.segment import Segment
from chalicelib.store import Keys, Range, Read
from chalicelib.table import keys
from chalicelib.table.writes import Refused

PURGED_TOGETHER_MAX = 90
"""Dead letters that one transaction removes, beside the cursor that counts them."""

Position = tuple[int, int, str]
"""Queue and offset, and in a broadcast group the consumer; an empty one sorts before all others."""

BEGINNING: Position = (0, 0, "")


@dataclass(frozen=True, slots=True)
class DeadMessage:
    stored: Stored
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class DeadPage:
    """`rest`: where the next page begins, or None without one."""

    messages: list[DeadMessage]
    rest: Position | None


class DeadLetterQueue:
    def __init__(self, env: Env, reader: LogReader, delayed: DelayedMessages) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._reader, self._delayed = env.catalogue, reader, delayed

    def page(self, topic: Topic, name: str, limit: int, since: Position) -> DeadPage:
        """Up to `limit` dead messages from a place on, by queue and offset; fewer if a response would not hold them.
        Omits letters whose message the log has dropped. Raises GroupNotFound."""
        group = self._catalogue.group(topic, name)
        letters = self.read(group, since, limit + 1)
        chosen = letters[:limit]
        found, unread = self._messages(topic, chosen)
        messages = found[: _fitting(found)]
        if len(messages) < len(found):
            return DeadPage(messages, _place(found[len(messages)].letter))
        rest = (*unread, "") if unread else next((_place(letter) for letter in letters[limit:]), None)
        return DeadPage(messages, rest)

    def read(self, group: Group, since: Position, limit: int) -> list[DeadLetter]:
        """The first letters from a place on, by queue and offset."""
        first = keys.dead(group.topic_id, group.id, *since)
        items = self._store.read([Range(first.pk, first.sk, keys.LAST, limit=limit, strong=True)])[0]
        return [DeadLetter.of(item) for item in items]

    def again(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """The existing ones of them, read again."""
        items = self._store.read([Keys([letter.key for letter in letters], strong=True)])[0]
        return [DeadLetter.of(item) for item in items]

    def named(self, topic: Topic, group: Group, message_ids: Sequence[str]) -> list[DeadLetter]:
        """The letters of these messages, each once; in a broadcast group those of all consumers. Raises MessageNotFound
        if a message has none."""
        parsed = {text: parse_message_id(text) or self._delayed.place(topic, text) for text in message_ids}
        places = sorted({place[1:] for place in parsed.values() if place and place[1] < topic.queues})
        keyed = [keys.dead(topic.id, group.id, *place) for place in places]
        ranges: list[Read] = [Range(key.pk, key.sk, key.sk + keys.LAST, strong=True) for key in keyed]
        found = self._store.read(ranges if group.is_broadcast else [Keys(keyed, strong=True)]) if keyed else []
        letters = [DeadLetter.of(item) for items in found for item in items]
        dead = {(letter.queue, letter.offset) for letter in letters}
        chains = self._chains(topic, sorted(dead))
        for text, place in parsed.items():
            entry = entry_at(chains[place[1]], place[2]) if place and place[1:] in dead else None
            if entry is None or place is None or entry.id != place[0]:
                raise MessageNotFound(f"message {shown(text)} is not among the dead of group '{group.name}'")
        return letters

    def purge(self, topic: Topic, name: str) -> int:
        """Removes the existing letters while there is time, but none written meanwhile. Returns how many. Raises
        GroupNotFound."""
        group = self._catalogue.group(topic, name)
        until_ms = self._runtime.uptime() + DEAD_MS
        count, since = 0, BEGINNING
        while letters := self.read(group, since, PURGED_TOGETHER_MAX):
            since = after(letters[-1])
            for own in by_cursor(letters):
                count += self._purged(topic, group, own, until_ms)
            if self._runtime.uptime() > until_ms:
                break
        return count

    def purge_before(self, topic: Topic, group: Group, queue: int, offset: int, until_ms: int) -> int:
        """Removes the letters of a queue for messages before this offset, while there is time. Returns how many."""
        count = 0
        while self._runtime.uptime() <= until_ms:
            found = self.read(group, (queue, 0, ""), PURGED_TOGETHER_MAX)
            letters = [letter for letter in found if letter.queue == queue and letter.offset < offset]
            count += sum(self._purged(topic, group, own, until_ms) for own in by_cursor(letters))
            if len(letters) < PURGED_TOGETHER_MAX:
                break
        return count

    def _purged(self, topic: Topic, group: Group, letters: list[DeadLetter], until_ms: int) -> int:
        """Removes these letters, all of one cursor. Returns how many."""
        while letters and self._runtime.uptime() <= until_ms:
            try:
                cursor = group.cursor_key(letters[0].queue, letters[0].consumer)
                self._store.write_together([purged(cursor, len(letters)), *map(dead_letter.remove, letters)])
                return len(letters)
            except Refused:
                self._catalogue.group(topic, group.name)
                letters = self.again(letters)
        return 0

    def _messages(
        self, topic: Topic, letters: Sequence[DeadLetter]
    ) -> tuple[list[DeadMessage], tuple[int, int] | None]:
        """The readable messages of these letters, and the first place for which a response has no room; nothing after
        it is read."""
        chains = self._chains(topic, sorted({(letter.queue, letter.offset) for letter in letters}))
        found: list[DeadMessage] = []
        left_bytes = RESPONSE_JSON_BYTES_MAX
        for queue, grouped in groupby(letters, key=lambda letter: letter.queue):
            by_offset: dict[int, list[DeadLetter]] = {}
            for letter in grouped:
                by_offset.setdefault(letter.offset, []).append(letter)
            wanted = [offset for offset in by_offset if entry_at(chains[queue], offset)]
            reached = within_reach(chains[queue], wanted, left_bytes)
            stored = self._reader.stored(topic, queue, chains[queue], reached)
            found += [DeadMessage(each, letter) for each in stored for letter in by_offset[each.offset]]
            if len(reached) < len(wanted):
                return found, (queue, wanted[len(reached)])
            left_bytes -= wire_bytes(chains[queue], reached)
        return found, None

    def _chains(self, topic: Topic, places: Sequence[tuple[int, int]]) -> dict[int, list[Segment]]:
        """By queue, the segments that hold these sorted places, read as stretches with small gaps. Places missing from
        a stretch are read by themselves, since the log may begin in its middle."""
        segments: dict[int, dict[int, Segment]] = {queue: {} for queue, _ in places}
        chains: dict[int, list[Segment]] = {queue: [] for queue in segments}
        for stretches in (_stretches(places), None):
            asked = stretches or [
                (queue, range(offset, offset + 1)) for queue, offset in places if not entry_at(chains[queue], offset)
            ]
            wants = [Want(topic.logs[queue], stretch.start, len(stretch), None) for queue, stretch in asked]
            for (queue, _), chain in zip(asked, self._reader.chains(wants, strong=True), strict=True):
                segments[queue] |= {segment.base: segment for segment in chain}
            chains = {queue: [known[base] for base in sorted(known)] for queue, known in segments.items()}
        return chains


def by_cursor(letters: Sequence[DeadLetter]) -> list[list[DeadLetter]]:
    """The letters grouped by the cursor that counts them, in offset order."""
    ordered = sorted(letters, key=lambda letter: (letter.queue, letter.consumer, letter.offset))
    return [list(own) for _, own in groupby(ordered, key=lambda letter: (letter.queue, letter.consumer))]


def after(letter: DeadLetter) -> Position:
    """The place directly after a letter."""
    return letter.queue, letter.offset, letter.consumer + keys.AFTER


def _place(letter: DeadLetter) -> Position:
    return letter.queue, letter.offset, letter.consumer


def _stretches(places: Sequence[tuple[int, int]]) -> list[tuple[int, range]]:
    found: list[tuple[int, range]] = []
    for queue, grouped in groupby(places, key=lambda place: place[0]):
        for run in runs(offset for _, offset in grouped):
            if found and found[-1][0] == queue and run.start - found[-1][1].stop <= BATCH_MESSAGES_MAX:
                found[-1] = (queue, range(found[-1][1].start, run.stop))
            else:
                found.append((queue, run))
    return found


def _fitting(messages: Sequence[DeadMessage]) -> int:
    """How many of them, with their reasons, fit a response."""
    space = Space()
    for count, each in enumerate(messages):
        reason_bytes = carried_bytes(orjson.dumps(each.letter.reason))
        space = replace(space, json_bytes=space.json_bytes - reason_bytes) if count else space
        if not space.fitting([each.stored]):
            return count
        space = space.after([each.stored])
    return len(messages)
