"""Every limit, with its unit and its reason. Contract limits (the ones a client can meet) come first.

Names end in their unit. Nothing else in the code base spells a bare number that a client could run into.
"""

KIB = 1024
MIB = 1024 * KIB

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# -- what a client may send -------------------------------------------------------------------------------------------

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Topic and group names: safe in a URL, in a key and in a log line."""

BODY_BYTES_MAX = 4 * MIB
"""One body, and all bodies of one request: what a 6 MB Lambda payload holds once it is base64 and JSON."""

BATCH_MESSAGES_MAX = 256
"""Messages in a produce or a pop, receipts in a settlement: one entry, one lease."""

KEY_BYTES_MAX = 256
TAG_CHARS_MAX = 128
PROPERTIES_BYTES_MAX = 16 * KIB
"""Names and values together, UTF-8: headers, not a second body."""

IDLE_CONSUMER_MS = 7 * DAY_MS
"""How long after its last pop a broadcast group forgets a consumer: its cursors cost, and nobody takes them back."""

PRESENCE_MS = HOUR_MS
"""How far behind the note of a consumer's last pop may be where its pops take nothing, to save a write for each: it may
be forgotten by so much too early."""

ID_CHARS_MAX = 128
"""`attempt_id`, `consumer_id` and `dedup_id`: room for a UUID with a prefix."""

DEDUP_MS = 5 * MINUTE_MS
"""How long a `dedup_id` stands for the message that it was first given with."""

RECEIPT_CHARS_MAX = 512
"""Ours have some 150, those of broadcast groups 200. Those that fail are in the answer, which has to be carried."""

REASON_CHARS_MAX = 256
"""Why a message was given up. A sentence for people, not a log."""

QUEUES_MAX = 128
QUEUES_DEFAULT = 4

RETENTION_MS_MIN = MINUTE_MS
RETENTION_MS_DEFAULT = 3 * DAY_MS
RETENTION_MS_MAX = 365 * DAY_MS

INVISIBLE_MS_MAX = 12 * HOUR_MS
INVISIBLE_MS_DEFAULT = 30 * SECOND_MS

WAIT_MS_MAX = 20 * SECOND_MS
"""Long poll: API Gateway gives up after 29 s."""

NACK_DELAY_MS_MAX = 365 * DAY_MS

DELAY_MS_MAX = 365 * DAY_MS
"""How far ahead a message may be due."""

ATTEMPTS_DEFAULT = 16
ATTEMPTS_MAX = 1_000

IN_FLIGHT_DEFAULT = 1_000
IN_FLIGHT_MAX = 20_000
"""Each can add a mark to the cursor, which is one item, of 400 KB at most."""

PAGE_DEFAULT = 100
PAGE_MAX = 1_000
GROUP_DETAILS_MAX = 100
"""Groups in one page, whatever its `limit`: each costs a read of its partition, and more where retries are due."""

POP_MESSAGES_DEFAULT = 10

OFFSET_MAX = 10**15 - 1
"""What 15 digits of a key can spell: at a million messages a second and queue, 31 years."""

INSTANT_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""

REQUEST_BYTES_MAX = 32 * MIB
"""The request as JSON. 4 MiB of control characters, each written as a six-byte escape, are 24 MiB."""

# -- what a response may hold -----------------------------------------------------------------------------------------

RESPONSE_BODY_BYTES_MAX = 4 * MIB
RESPONSE_JSON_BYTES_MAX = 5_350_000
"""Where a response takes no second message: 5.5 MB, less what it says of receipts that failed."""

MESSAGE_JSON_BYTES_MAX = 5_750_000
"""One message always fits a response: 4 MiB in base64, with properties, are 5.71 MB. Lambda answers at most 6 MiB."""

MESSAGE_OVERHEAD_BYTES = 1_000
"""What a message adds to a response beyond its own fields: names, ids, times, and the receipt."""

# -- the log ----------------------------------------------------------------------------------------------------------

SEGMENT_ENTRIES_MAX = 32

SEGMENT_FULL_BYTES = 700
"""With this many bytes of entries a segment takes no more. With one more small entry and its keys it still fits the
kilobyte of one write unit; and it holds sixteen pointers, one for each of as many writers."""

INLINE_BYTES_MAX = 1_000
"""An entry up to this size lives in the segment. Above, a payload item of its own costs no more units than the
kilobytes that it would add here, and leaves the log light."""

DEDUP_INLINE_BYTES_MAX = 800
"""The same for an entry that dedup records hold too: a record with its keys then fits the kilobyte of a write unit."""

CROWDED_BYTES_MAX = 100
"""The first where many write to one queue, and fill its segments too soon: twice the size of a pointer."""

ITEM_BYTES_MAX = 400 * KIB
"""What DynamoDB stores as one item."""

PIECE_BYTES_MAX = 256 * KIB
"""One payload item: the embedded store counts its base64, and takes about 300 KB of the 400."""

INSTANCE_CACHE_BYTES_MAX = 64 * MIB
"""Sealed segments and payloads, which never change, kept by one instance."""

TAIL_AGE_MS_MAX = MINUTE_MS
"""How long an instance believes where a queue's log ends before it looks again."""

CONTENDED_MS = SECOND_MS
"""After losing a race for a segment an instance sends only pointers there: 16 fit a segment, not 3."""

# -- delays -----------------------------------------------------------------------------------------------------------

PROMOTED_MAX = 32
"""Messages that become one entry of the log together, once they are due: their places are 448 bytes, so that the
decision about them, with a pointer, is one kilobyte."""

PROMOTED_BYTES_MAX = 256 * KIB
"""What such messages weigh together; a heavier one goes alone, and its payload is not written a second time."""

DUE_KEPT_MS = 90 * DAY_MS
"""How long after it was due a payload is kept for whoever delivers it: as dear as to write its time to live anew."""

PROMOTED_QUEUES_MAX = 4
"""Queues in which a pop promotes one after another, as long as it finds nothing to take: it takes from one."""

LATE_WRITE_MS_MAX = MINUTE_MS
"""A write that its sender has given up, or repeated, lands no later than this: a request may wait in a client for
`READ_TIMEOUT_MS` and in the network for seconds."""

STORED_LATE_MS_MAX = 15 * MINUTE_MS
"""A message that is due is stored no later than this: DynamoDB knows a transaction for ten minutes."""

TRANSACTION_ITEMS_MAX = 100
"""What DynamoDB takes in one transaction."""

ENTRY_LATE_MS = DEDUP_MS + MINUTE_MS
"""How long after its `stored_at_ms` an entry can get into the log: who repeats the request of a caller that died helps
it in while the `dedup_id` stands, and has a call's time for that."""

ISOLATED_MS_MIN = SECOND_MS
ISOLATED_MS_MAX = MINUTE_MS
"""How long an instance keeps unkeyed messages from a queue that failed: the first at first, twice as long each time
that it fails again, up to the second. DynamoDB needs minutes to split a partition that is too hot."""

HOPS_MAX = 3
"""Other queues that an unkeyed message is tried on. When four queues fail, it is the store."""

HOP_MS_MAX = 1_414
HOP_MS_MIN = 100
"""How long one queue may keep messages waiting that another could take: the first, or half of the time left, but at
least the second: a store that is well has answered then."""

# -- the cursor -------------------------------------------------------------------------------------------------------

LEASES_MAX = 2_000
"""Leases in one cursor, some 36 bytes each: every claim pays for the whole item."""

LEASES_ROOM = 500
"""How many more there may be where leases are nacked or extended in parts: it must go on when no claim can."""

MARKS_MAX = 8
"""Marks of a lease that are put together by the next write, or single acks would make the cursor heavy."""

TAKEOVERS_MAX = 16
"""Leases that one write takes over, splits off or buries: an expression is at most 4 KB long, and has 300 operators."""

ACKED_TOGETHER_MAX = 10
"""Leases that one write acks messages of, besides."""

WITNESS_MS = 10 * MINUTE_MS
"""How long after its deadline a lease that lost messages stays in the cursor, to tell its late receipts the truth."""

WITNESSES_MAX = 32
"""How many such leases stay, so that nacks do not fatten the cursor."""

INERT_MAX = 2 * WITNESSES_MAX
"""With more leases that owe nothing than these, some are forgotten in a write of its own."""

PRUNED_MAX = 8
"""Leases that one write forgets."""

PRUNED_ALONE_MAX = 40
"""The same of a write that does nothing else."""

DEAD_TOGETHER_MAX = 50
"""Messages that go to the dead letters in one transaction, which takes 100 items."""

PURGED_TOGETHER_MAX = 90
"""Dead letters that one transaction removes, beside the cursor that counts them."""

REDRIVEN_LEASES_MAX = LEASES_MAX // 2
"""With so many leases a cursor takes no more from the dead letters: what is left of its room is for consumers.
Neighbours share a lease."""

DEAD_MS = 5 * SECOND_MS
"""How long one call redrives or purges dead letters; what is left then is left to the next call."""

PARKED_MAX = 64
"""Leases that wait for a retry in the cursor itself: some 2.5 KB. With more, those due last go into a page."""

RETRY_PAGE_LEASES = 48
"""Retries in one page: the condition of the transaction that moves them names each, in 4 KB and 300 operators."""

RETRY_PAGES_MAX = 2_000
"""Pages of one cursor, some 35 bytes each."""

RETRY_SOON_MS = 5 * SECOND_MS
"""What is due so soon is not put away: it would come back at once."""
RETRY_PAGE_ID_CHARS = 8

UNKNOWN_ITEMS_MAX = 2 * QUEUES_MAX
"""What is read of a group's partition where its mode is not known: the settings and all cursors of one that is not
broadcast, even with those that one before it of the same name has left."""

MOVED_TOGETHER_MAX = 100
"""Cursors that a reset, or forgetting consumers, writes side by side."""

HOME_MS = SECOND_MS
"""A pop stays with the queue that it acks (the ack then rides along for free) while no other queue waits this much
longer, nor twice as long: what is fresh should not become old for that."""

_BACKOFF_MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
BACKOFF_MS = (10 * SECOND_MS, 30 * SECOND_MS, *(minutes * MINUTE_MS for minutes in _BACKOFF_MINUTES))
"""The wait before retry n after a nack that does not say; the last one repeats."""

RATE_MIN = 0.001
"""Messages a second: one in a quarter of an hour."""
RATE_MAX = 1_000_000
FILTER_TAGS_MAX = 100
EXPRESSION_CHARS_MAX = 1_024
"""A filter is a condition, not a program, and is asked of every message."""
EXPRESSIONS_KEPT_MAX = 1_000
"""Compiled expressions kept by one instance."""

PASSED_AT_ONCE_MAX = 1_024
"""Messages that one write passes because the group does not want them: its lease remembers each in a bit."""
SIFTED_BYTES_MAX = 8 * MIB
"""What is read at once to tell which messages a group wants."""
PASSED_MAX = 4 * PASSED_AT_ONCE_MAX
"""The same of one pop in one queue, which then answers with what it has."""
SIFTING_MS = SECOND_MS
"""How long a pop sifts messages at each of its looks: a filter may take a tenth of a second for one."""
BACKOFF_STEPS_MAX = MULTIPLIER_MAX = 100

SWEEP_MS = 45 * SECOND_MS
"""How long a scheduled sweep goes on: it begins every minute, and its function may run for one."""
EXPIRED_KEPT_MS = DAY_MS
"""How long what nobody can read any more is kept: no caller sleeps longer between what it saw and what it writes."""
TRIMMED_EVERY_MS = HOUR_MS

PURGE_MS = 5 * SECOND_MS
"""How long the deletion of a topic goes on removing its log."""

# -- time -------------------------------------------------------------------------------------------------------------

METADATA_AGE_MS_MAX = 5 * SECOND_MS
"""How long an instance believes what it read about a topic."""

POLL_MS_MIN = 10
POLL_MS_MAX = 200
"""A waiting pop looks again after this long, growing from the first to the second; earlier, when something is due."""

STORE_DEADLINE_MS = 10 * SECOND_MS
"""How long the store may keep one call waiting, retries included, before the caller is told 503. The last try may take
a `READ_TIMEOUT_MS` more."""

CALL_MS_MAX = 25 * SECOND_MS
"""The same with what a long poll waits: API Gateway gives up after 29 s."""

STORE_PAUSE_MS_MIN = 25
STORE_PAUSE_MS_MAX = 2 * SECOND_MS
"""Between two tries of a request to the store: a random time up to the first, then up to twice as long each time."""

CONNECT_TIMEOUT_MS = SECOND_MS
READ_TIMEOUT_MS = 3 * SECOND_MS
"""For one try. DynamoDB answers within tens of milliseconds or, in practice, not at all."""
