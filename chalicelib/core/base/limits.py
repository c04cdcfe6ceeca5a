"""The limits that a client can meet, and those that several rooms share, each with its unit and its reason.

Names end in their unit. A limit that only one module uses stands in that module.
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
"""One body, and all bodies of one request: the most that a 6 MB Lambda payload holds as base64 in JSON."""

BATCH_MESSAGES_MAX = 256
"""Messages in a produce or a pop, receipts in an ack, nack, extend or bury: one entry, one lease."""

KEY_BYTES_MAX = 256
TAG_CHARS_MAX = 128
PROPERTIES_BYTES_MAX = 16 * KIB
"""Names and values together, UTF-8: headers, not a second body."""

IDLE_CONSUMER_MS = 7 * DAY_MS
"""How long after its last pop a broadcast group drops a consumer, so that unused cursors do not cost forever."""

ID_CHARS_MAX = 128
"""`attempt_id`, `consumer_id` and `dedup_id`: room for a UUID with a prefix."""

DEDUP_MS = 5 * MINUTE_MS
"""How long a `dedup_id` identifies its first message."""

RECEIPT_CHARS_MAX = 512
"""Receipts have some 150, in broadcast groups 200. Failed ones are part of the response, which must hold them."""

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

REPLY_TIMEOUT_MS_MAX = HOUR_MS
REPLY_TIMEOUT_MS_DEFAULT = 3 * SECOND_MS
"""How long consumers may reply to a request. Use two messages for work that takes longer."""

REPLY_WAIT_MS_MAX = 25 * SECOND_MS
"""How long one call waits for a reply: API Gateway gives up after 29 s."""

REPLY_KEPT_MS = HOUR_MS
"""How long after the deadline a reply can be fetched."""

CORRELATION_ID_CHARS_MAX = 256
"""Correlation ids have some 65, and of a topic with the longest name 190."""

NACK_DELAY_MS_MAX = 365 * DAY_MS

DELAY_MS_MAX = 365 * DAY_MS
"""How far ahead a message may be due."""

GROUP_DELAY_MS_MAX = 15 * MINUTE_MS
"""How long a group's `delay_ms` may hold each message back. Delay the message itself for longer waits."""

WAITING_COUNTED_MAX = 1_000
"""Where counting the delayed messages of a queue stops, since it reads each of them."""

TTL_MS_MAX = 365 * DAY_MS
"""The longest time to live of a message: as long as the longest retention."""

HALF_MESSAGES_MAX = 32
"""Messages in a transaction: one write to the store makes all of them visible, each an item of its own."""
ROLLBACK_AFTER_MS_DEFAULT = DAY_MS
ROLLBACK_AFTER_MS_MAX = DELAY_MS_MAX
"""How long a transaction may stay undecided, and how long before it is checked: as long as a message may wait."""
CHECK_AFTER_MS_DEFAULT = MINUTE_MS
CHECKED_DEFAULT = 16
CHECKED_MAX = 100
"""Transactions in one check: each costs a write of its own."""

ATTEMPTS_DEFAULT = 16
ATTEMPTS_MAX = 1_000

IN_FLIGHT_DEFAULT = 1_000
IN_FLIGHT_MAX = 20_000
"""Each can add a mark to the cursor, which is one item, of 400 KB at most."""

URL_CHARS_MAX = 2_048
"""A webhook's URL: the length that servers and proxies accept."""
FUNCTION_CHARS_MAX = 170
"""The longest ARN of a Lambda function."""

PUSH_CONCURRENCY_MAX = 100
"""Calls of one consumer at once: each is a thread of the dispatcher."""
PUSH_TIMEOUT_MS_MIN = 100
PUSH_TIMEOUT_MS_DEFAULT = 10 * SECOND_MS
PUSH_TIMEOUT_MS_MAX = MINUTE_MS
"""How long one call of a consumer may take: the dispatcher itself is a function, which must end."""
PUSH_SECRETS_MAX = 10
"""Secrets of a group: every pop reads them with its settings."""

TOKEN_NAME_CHARS_MAX = 100
"""A token's name, for people."""
RIGHTS_MAX = 32
"""Rights of a token: each call looks through them."""
NAME_PATTERN_CHARS_MAX = 100
"""The pattern of names in a right: as long as the longest name."""
TOKEN_SECRETS_MAX = 10
"""Secrets of a token that are valid at once: each call is compared with all of them."""
OLD_SECRET_MS_DEFAULT = DAY_MS
OLD_SECRET_MS_MAX = 7 * DAY_MS
"""How long older secrets of a token stay valid after a rotation, to roll out the new one."""

PAGE_DEFAULT = 100
PAGE_MAX = 1_000
GROUP_DETAILS_MAX = 100
"""Groups in one page, whatever its `limit`: each costs a read of its partition, and more if retries are due."""

BACKLOG_GROUPS_MAX = 1_000
"""Groups whose backlog is a metric: Prometheus keeps six series for each."""

POP_MESSAGES_DEFAULT = 10

OFFSET_MAX = 10**15 - 1
"""The largest offset in 15 digits: 31 years at a million messages a second in one queue."""

INSTANT_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""

REQUEST_BYTES_MAX = 32 * MIB
"""The request as JSON. 4 MiB of control characters, each written as a six-byte escape, are 24 MiB."""

# -- what a response may hold -----------------------------------------------------------------------------------------

RESPONSE_BODY_BYTES_MAX = 4 * MIB
RESPONSE_JSON_BYTES_MAX = 5_350_000
"""Beyond this, a response gets no second message: 5.5 MB, less the part about failed receipts."""

MESSAGE_JSON_BYTES_MAX = 5_750_000
"""One message always fits a response: 4 MiB in base64, with properties, are 5.71 MB. Lambda answers at most 6 MiB."""

MESSAGE_OVERHEAD_BYTES = 1_000
"""Bytes that a message adds to a response beyond its own fields: names, ids, times, and the receipt."""

# -- the log ----------------------------------------------------------------------------------------------------------

INLINE_BYTES_MAX = 1_000
"""An entry up to this size is stored in the segment. A larger entry goes into a payload item of its own, which costs no
more units and keeps the log small."""

ITEM_BYTES_MAX = 400 * KIB
"""The largest item that DynamoDB stores."""

INSTANCE_CACHE_BYTES_MAX = 64 * MIB
"""Full segments and payloads, which never change, cached by one instance."""

TRANSACTION_ITEMS_MAX = 100
"""Items in one DynamoDB transaction."""

LATE_WRITE_MS_MAX = MINUTE_MS
"""An abandoned or repeated write lands no later than this: a request may wait in a client for `READ_TIMEOUT_MS` and in
the network for seconds."""

STORED_LATE_MS_MAX = 15 * MINUTE_MS
"""A delayed message is stored no later than this after it is due, or after its call: DynamoDB recognizes a repeated
transaction for ten minutes."""

ENTRY_LATE_MS = DEDUP_MS + MINUTE_MS
"""How long after its `stored_at_ms` an entry can enter the log: while the `dedup_id` is valid, a repeat of a crashed
caller's request completes it, within the time of one call."""

HOP_MS_MAX = 1_414
HOP_MS_MIN = 100
"""How long one queue may delay messages that another could take: at most the first value or half the time left, but at
least the second, within which a healthy store responds."""

# -- the cursor -------------------------------------------------------------------------------------------------------

LEASES_MAX = 2_000
"""Leases in one cursor, some 36 bytes each: every claim pays for the whole item."""

TAKEOVERS_MAX = 16
"""Leases that one write takes over, splits or buries: an expression has at most 4 KB and 300 operators."""

DEAD_MS = 5 * SECOND_MS
"""How long one call spends on redriving or purging dead letters; the next call continues."""

_BACKOFF_MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
BACKOFF_MS = (10 * SECOND_MS, 30 * SECOND_MS, *(minutes * MINUTE_MS for minutes in _BACKOFF_MINUTES))
"""The default wait before retry n after a nack; the last one repeats."""

RATE_MIN = 0.001
"""Messages a second: one in a thousand seconds."""
RATE_MAX = 1_000_000
FILTER_TAGS_MAX = 100
EXPRESSION_CHARS_MAX = 1_024
"""A filter is a condition, not a program, and is evaluated for every message."""

PASSED_AT_ONCE_MAX = 1_024
"""Messages that one write skips because the filter rejects them: the lease stores one bit for each."""
SET_ASIDE_MAX = 1_024
"""Messages of a queue that a group ordered by key has set aside because earlier messages of their keys were leased. At
this number, pops look no further: each pop reads the keys of all of them, and the cursor stores one bit for each."""
BACKOFF_STEPS_MAX = MULTIPLIER_MAX = 100

EXPIRED_KEPT_MS = DAY_MS
"""How long expired data is kept: no caller pauses for longer between a read and the write based on it."""

PURGE_MS = 5 * SECOND_MS
"""How long the deletion of a topic spends on removing its log."""

TAKE_OVER_AFTER_MS = 5 * SECOND_MS
"""How long a zone's consumers may let a message wait before those of other zones take it."""

TAKEN_OVER_MS = 10 * SECOND_MS
"""How long a queue stays taken over after a consumer of another zone last took messages from it."""

# -- time -------------------------------------------------------------------------------------------------------------

METADATA_AGE_MS_MAX = 5 * SECOND_MS
"""How long an instance caches a topic."""

CLOCKS_APART_MS = 250
"""How far the clocks of two instances may be apart. A purge allows for it."""

HEARD_MS = 20 * SECOND_MS
"""How long after a change of the number of queues producers use the new number. By then every instance has read it: the
write takes up to `STORE_DEADLINE_MS` and a `READ_TIMEOUT_MS`, instances cache topics, and clocks differ."""

STORE_DEADLINE_MS = 10 * SECOND_MS
"""How long the store may delay one call, retries included, before the call returns 503. The last try may take one
`READ_TIMEOUT_MS` longer."""

CONNECT_TIMEOUT_MS = SECOND_MS
READ_TIMEOUT_MS = 3 * SECOND_MS
"""For one try. DynamoDB responds within tens of milliseconds or, in practice, not at all."""
