"""Spells every key of the table; no other module does. `docs/table.md` is the data dictionary.

`topic_id` and `group_id` are incarnation ids: a topic or group created again under an old name shares no key with its
predecessor. `consumer` is the hash of a `consumer_id`, which can be any text; it is empty except in broadcast groups.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from zlib import crc32

from chalicelib.core.table.writes import Key

_OFFSET_DIGITS = 15
_CONSUMER_BYTES = 12
_CURSORS_KEPT_MAX = 4_096
"""Keys of cursors cached by one instance: every pop and ack uses them."""
_SEGMENTS_KEPT_MAX = 4_096
"""Keys of segments cached by one instance: pops and produces use each several times."""
CURSORS_IN_PAGE = 16
"""Queues whose cursors in a group share a partition, which one query reads."""
AGENDA_SHARDS = 4
"""Partitions of a sweep's appointments. A partition takes 1,000 writes a second, and each instance makes one
appointment a minute for each topic in use. A partition costs an idle stage half a read unit a minute and sweep."""
FIRST = " "
LAST = "\x7f"
"""Sort before and after every sort key."""
FORM = 2
"""The form of the items of the table, with their keys. Raise it with each change that makes one release unable to read
the items of the other."""
SETTINGS = "settings"
"""The sort key of the settings of a topic or a group in its partition."""
AFTER = " "
"""Appended to a name, sorts after that name and before any longer one (names contain no spaces)."""


def topics() -> str:
    """The list of topics."""
    return "topics"


def listed_topic(name: str) -> Key:
    return Key(topics(), name)


def topic(name: str) -> Key:
    return Key(f"topic#{name}", SETTINGS)


def topic_name(partition: str) -> str:
    """The name of the topic with this partition."""
    return partition.partition("#")[2]


def graves() -> str:
    return "graves"


def grave(topic_id: str) -> Key:
    return Key(graves(), topic_id)


def groups(topic_id: str) -> str:
    return f"groups#{topic_id}"


def directory(topic_id: str, group_name: str) -> Key:
    return Key(groups(topic_id), group_name)


def group_partition(topic_id: str, group_name: str, page: int = 0) -> str:
    """A page of the group's cursors; the first one has its settings too."""
    return f"group#{topic_id}#{group_name}#{page}" if page else f"group#{topic_id}#{group_name}"


def group_partitions(topic_id: str, group_name: str, queues: int) -> list[str]:
    """All pages of a group in a topic that had this many queues."""
    return [group_partition(topic_id, group_name, page) for page in range(page_of(queues - 1) + 1)]


def page_of(queue: int) -> int:
    """The page with the cursors of this queue."""
    return queue // CURSORS_IN_PAGE


def queues_of(page: int, queues: int) -> range:
    """The queues with cursors in this page, of so many in all."""
    return range(page * CURSORS_IN_PAGE, min((page + 1) * CURSORS_IN_PAGE, queues))


def group(topic_id: str, name: str) -> Key:
    return Key(group_partition(topic_id, name), SETTINGS)


def consumer(consumer_id: str) -> str:
    """The hash that identifies a consumer of a broadcast group."""
    return hashlib.blake2b(consumer_id.encode(), digest_size=_CONSUMER_BYTES).hexdigest()


@lru_cache(_CURSORS_KEPT_MAX)
def cursor(topic_id: str, group_name: str, group_id: str, queue: int, consumer: str = "") -> Key:
    return Key(group_partition(topic_id, group_name, page_of(queue)), f"{_cursors(group_id, consumer)}{queue:03d}")


def cursors(
    topic_id: str, group_name: str, group_id: str, queues: int, consumer: str = ""
) -> list[tuple[str, str, str]]:
    """For each page in a topic that had this many queues: its partition, and the range of sort keys of one consumer's
    cursors, or of all if `consumer` is empty."""
    first, last = around_cursors(group_id, consumer)
    return [(partition, first, last) for partition in group_partitions(topic_id, group_name, queues)]


def around_cursors(group_id: str, consumer: str = "") -> tuple[str, str]:
    first = _cursors(group_id, consumer)
    return first, first + LAST


def consumer_of(cursor: Key) -> str:
    """The consumer that the cursor belongs to."""
    return cursor.sk.split("#")[2] if cursor.sk.count("#") > 2 else ""


def queue_of(cursor: Key) -> int:
    return int(cursor.sk.rsplit("#", 1)[1])


def _cursors(group_id: str, consumer: str) -> str:
    return f"cursor#{group_id}#{consumer}#" if consumer else f"cursor#{group_id}#"


def window(topic_id: str, group_name: str, group_id: str) -> Key:
    return Key(group_partition(topic_id, group_name), f"rate#{group_id}")


def alarm(topic_id: str, group_name: str, group_id: str) -> Key:
    return Key(group_partition(topic_id, group_name), f"alarm#{group_id}")


def push_partition(topic_id: str, group_id: str) -> str:
    return f"push#{topic_id}#{group_id}"


def push_slot(topic_id: str, group_id: str, number: int) -> Key:
    return Key(push_partition(topic_id, group_id), f"slot#{number:03d}")


def push_pause(topic_id: str, group_id: str) -> Key:
    return Key(push_partition(topic_id, group_id), "pause")


def owners(partition: str) -> tuple[str, str]:
    """The owners of the partition's items: the id of their topic, and the partition; for a page of a group, the group's
    first page."""
    kind, topic_id, *rest = partition.split("#", 3)
    return topic_id, "#".join((kind, topic_id, *rest[:1]))


def log(topic_id: str, queue: int) -> str:
    return f"log#{topic_id}#{queue}"


@lru_cache(_SEGMENTS_KEPT_MAX)
def segment(log: str, base: int) -> Key:
    return Key(log, f"{base:0{_OFFSET_DIGITS}d}")


def payload(topic_id: str, entry_id: bytes, piece: int) -> Key:
    return Key(f"payload#{topic_id}#{entry_id.hex()}", f"{piece:02d}")


def blob(topic_id: str, entry_id: bytes) -> str:
    """The S3 object that holds a payload too big for the table."""
    return f"payloads/{topic_id}/{entry_id.hex()}"


def retry_partition(topic_id: str, group_id: str, queue: int) -> str:
    return f"retry#{topic_id}#{group_id}#{queue}"


def retry_page(cursor: Key, due: int, page_id: str) -> Key:
    """A page of this cursor's retries. The pages of all consumers of a broadcast group share a partition."""
    topic_id, group_id = cursor.pk.split("#")[1], cursor.sk.split("#")[1]
    partition = retry_partition(topic_id, group_id, queue_of(cursor))
    return Key(partition, f"{due:0{_OFFSET_DIGITS}d}#{page_id}")


def dedup(topic_id: str, dedup_id: str) -> Key:
    return Key(f"dedup#{topic_id}#{_hashed(dedup_id)}", "record")


def index(topic_id: str, key: str) -> str:
    return f"index#{topic_id}#{_hashed(key)}"


def indexed(topic_id: str, key: str, stored_at_ms: int, number: int, entry_id: bytes) -> Key:
    """`number` orders the entries that one instance stored within a millisecond."""
    return Key(index(topic_id, key), f"{stored_since(stored_at_ms)}#{number:0{_OFFSET_DIGITS}d}#{entry_id.hex()}")


def stored_since(stored_at_ms: int) -> str:
    """Sorts before every index item from this instant on."""
    return f"{stored_at_ms:0{_OFFSET_DIGITS}d}"


def indexed_entry(key: str) -> tuple[int, bytes]:
    """When the entry was stored, and its id."""
    stored_at_ms, _, entry_id = key.split("#")
    return int(stored_at_ms), bytes.fromhex(entry_id)


def _hashed(text: str) -> str:
    """Hashed, since clients choose ids of any length and with any characters."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def dead(topic_id: str, group_id: str, queue: int, offset: int, consumer: str = "") -> Key:
    """In a broadcast group, two consumers may each give up the same message."""
    place = f"{queue:03d}#{offset:0{_OFFSET_DIGITS}d}"
    return Key(dead_partition(topic_id, group_id), f"{place}#{consumer}" if consumer else place)


DEAD_PATTERN = f"[0-9]{{3}}#[0-9]{{{_OFFSET_DIGITS}}}(#[0-9a-f]{{{2 * _CONSUMER_BYTES}}})?"


def place_of_dead(key: Key) -> tuple[int, int, str]:
    """Queue, offset and consumer."""
    queue, offset, *consumer = key.sk.split("#")
    return int(queue), int(offset), "".join(consumer)


def dead_partition(topic_id: str, group_id: str) -> str:
    return f"dead#{topic_id}#{group_id}"


def reply(topic_id: str, nonce: bytes) -> Key:
    return Key(f"reply#{topic_id}#{nonce.hex()}", "reply")


def sweep(name: str) -> Key:
    return Key("service", f"sweep#{name}")


def agendas(sweep: str) -> list[str]:
    """The partitions of its appointments."""
    return [_agenda(sweep, shard) for shard in range(AGENDA_SHARDS)]


def _agenda(sweep: str, shard: int) -> str:
    return f"agenda#{sweep}#{shard:x}"


def appointment(sweep: str, due_ms: int, subject: str) -> Key:
    """`subject`: the topic or group that the sweep visits. The appointments of one topic are in one partition."""
    shard = crc32(named_in(subject)[0].encode()) % AGENDA_SHARDS
    return Key(_agenda(sweep, shard), f"{due_ms:0{_OFFSET_DIGITS}d}#{subject}")


def subject(topic_name: str, group_name: str = "") -> str:
    """The subject of an appointment: a topic, or one of its groups."""
    return f"{topic_name}#{group_name}" if group_name else topic_name


def named_in(subject: str) -> tuple[str, str]:
    """The topic and the group."""
    topic_name, _, group_name = subject.partition("#")
    return topic_name, group_name


def appointed_at(key: str) -> int:
    return int(key.split("#")[0])


def subject_of(key: str) -> str:
    return key.partition("#")[2]


def delays(topic_id: str, queue: int) -> str:
    return f"delay#{topic_id}#{queue}"


def delayed(topic_id: str, queue: int, due_ms: int, entry_id: bytes) -> Key:
    return Key(delays(topic_id, queue), f"{due_ms:0{_OFFSET_DIGITS}d}#{entry_id.hex()}")


DELAYED_PATTERN = r"[0-9]{15}#[0-9a-f]{16}"


def due_and_entry(key: str) -> tuple[int, bytes]:
    due, _, entry_id = key.partition("#")
    return int(due), bytes.fromhex(entry_id)


def late(topic_id: str, queue: int, due_ms: int, entry_id: bytes) -> Key:
    """Names the decision that delivers a late message."""
    return Key(f"late#{topic_id}#{queue}#{entry_id.hex()}", f"{due_ms:0{_OFFSET_DIGITS}d}")


def due_until(due_ms: int) -> str:
    """Sorts after everything due by then."""
    return f"{due_ms:0{_OFFSET_DIGITS}d}{LAST}"


def transactions(topic_id: str) -> str:
    """The undecided transactions."""
    return f"transactions#{topic_id}"


def transaction(topic_id: str, begun_at_ms: int, entry_id: bytes) -> Key:
    return Key(transactions(topic_id), f"{begun_at_ms:0{_OFFSET_DIGITS}d}#{entry_id.hex()}")


TRANSACTION_PATTERN = DELAYED_PATTERN


def _trace(topic_id: str, queue: int) -> str:
    return f"trace#{topic_id}#{queue}"


def event(topic_id: str, queue: int, page: int, at_ms: int, event_id: str) -> Key:
    """A note about messages of one page of a queue."""
    return Key(_trace(topic_id, queue), f"{_page(page)}{at_ms:0{_OFFSET_DIGITS}d}#{event_id}")


def events(topic_id: str, queue: int, page: int) -> tuple[str, str, str]:
    """The partition, and the sort keys around the notes about a page."""
    return _trace(topic_id, queue), _page(page), _page(page) + LAST


def _page(page: int) -> str:
    return f"{page:0{_OFFSET_DIGITS}d}#"


def noted_at(key: str) -> int:
    return int(key.split("#")[1])


def decided(topic_id: str, begun_at_ms: int, entry_id: bytes) -> Key:
    """The decision about a transaction."""
    return Key(f"decided#{topic_id}#{entry_id.hex()}", f"{begun_at_ms:x}")


def decisions(topic_id: str, queue: int) -> str:
    return f"promotions#{topic_id}#{queue}"


def decision(topic_id: str, queue: int, number: int) -> Key:
    return Key(decisions(topic_id, queue), f"{number:0{_OFFSET_DIGITS}d}")


def number_of(key: str) -> int:
    """The number that is the sort key of a segment (its base), of a decision or of a move task."""
    return int(key)


def tokens() -> str:
    return "tokens"


def token(token_id: str) -> Key:
    return Key(tokens(), token_id)


def subscriptions() -> str:
    return "sqs-queues"


def subscription(name: str) -> Key:
    return Key(subscriptions(), name)


def move_tasks(queue_id: str) -> str:
    """The tasks that move the messages of a subscription."""
    return f"moves#{queue_id}"


def move_task(queue_id: str, number: int) -> Key:
    return Key(move_tasks(queue_id), f"{number:0{_OFFSET_DIGITS}d}")


def signing_key() -> Key:
    return Key("service", "signing-key")
