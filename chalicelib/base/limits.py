"""The limits that a client can meet, and those that several rooms share, each with its unit and its reason.

Names end in their unit. A limit that one module uses stands beside its user.
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

INLINE_BYTES_MAX = 1_000
"""An entry up to this size lives in the segment. Above, a payload item of its own costs no more units than the
kilobytes that it would add here, and leaves the log light."""

ITEM_BYTES_MAX = 400 * KIB
"""What DynamoDB stores as one item."""

INSTANCE_CACHE_BYTES_MAX = 64 * MIB
"""Sealed segments and payloads, which never change, kept by one instance."""

TRANSACTION_ITEMS_MAX = 100
"""What DynamoDB takes in one transaction."""

ENTRY_LATE_MS = DEDUP_MS + MINUTE_MS
"""How long after its `stored_at_ms` an entry can get into the log: who repeats the request of a caller that died helps
it in while the `dedup_id` stands, and has a call's time for that."""

HOP_MS_MAX = 1_414
HOP_MS_MIN = 100
"""How long one queue may keep messages waiting that another could take: the first, or half of the time left, but at
least the second: a store that is well has answered then."""

# -- the cursor -------------------------------------------------------------------------------------------------------

LEASES_MAX = 2_000
"""Leases in one cursor, some 36 bytes each: every claim pays for the whole item."""

TAKEOVERS_MAX = 16
"""Leases that one write takes over, splits off or buries: an expression is at most 4 KB long, and has 300 operators."""

DEAD_MS = 5 * SECOND_MS
"""How long one call redrives or purges dead letters; what is left then is left to the next call."""

_BACKOFF_MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
BACKOFF_MS = (10 * SECOND_MS, 30 * SECOND_MS, *(minutes * MINUTE_MS for minutes in _BACKOFF_MINUTES))
"""The wait before retry n after a nack that does not say; the last one repeats."""

RATE_MIN = 0.001
"""Messages a second: one in a quarter of an hour."""
RATE_MAX = 1_000_000
FILTER_TAGS_MAX = 100
EXPRESSION_CHARS_MAX = 1_024
"""A filter is a condition, not a program, and is asked of every message."""

PASSED_AT_ONCE_MAX = 1_024
"""Messages that one write passes because the group does not want them: its lease remembers each in a bit."""
BACKOFF_STEPS_MAX = MULTIPLIER_MAX = 100

EXPIRED_KEPT_MS = DAY_MS
"""How long what nobody can read any more is kept: no caller sleeps longer between what it saw and what it writes."""

PURGE_MS = 5 * SECOND_MS
"""How long the deletion of a topic goes on removing its log."""

# -- time -------------------------------------------------------------------------------------------------------------

METADATA_AGE_MS_MAX = 5 * SECOND_MS
"""How long an instance believes what it read about a topic."""

STORE_DEADLINE_MS = 10 * SECOND_MS
"""How long the store may keep one call waiting, retries included, before the caller is told 503. The last try may take
a `READ_TIMEOUT_MS` more."""

CONNECT_TIMEOUT_MS = SECOND_MS
READ_TIMEOUT_MS = 3 * SECOND_MS
"""For one try. DynamoDB answers within tens of milliseconds or, in practice, not at all."""
