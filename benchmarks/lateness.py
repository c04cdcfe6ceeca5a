"""Measures how late delayed messages arrive, and how soon a waiting pop wakes: over HTTP, by the machine's clock."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks import servers
from benchmarks.http_client import Connection
from benchmarks.report import Cell, table

MESSAGES = 1_000
OVER_MS = 5_000
"""The number of messages, and the time over which they fall due."""

BUDGET_MS = 250
"""How late a message may be, at the 99th percentile."""

WAKE_BUDGET_MS = 300
"""How soon a waiting pop must get a message that falls due."""

_LEAD_MS = 10_000
"""The time from the first send to the first due message. All messages must be stored by then: a message stored after
its time would show how fast a store is."""
_BATCH = 125
_WAIT_MS = 2_000
_GIVE_UP_MS = 20_000
"""How long to wait after the last one was due."""
_GROUP = "billing"
_WAKES_AFTER_MS = (333, 500, 777)
"""After this time a waiting pop looks as seldom as it ever does."""
_HEADERS = ("store", "messages", "over ms", "median ms", "99th percentile ms", "latest ms", "early", "again", "lost")
_WAKE_HEADERS = ("store", "what is due", "times", "median ms", "latest ms")


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of `MESSAGES`. `late_ms`: how late each reached the consumer. `stored_late_ms`: how late the service
    put each into the log. `again`: duplicate deliveries. `lost`: messages that never came."""

    late_ms: list[int]
    stored_late_ms: list[int]
    again: int
    lost: int

    @property
    def early(self) -> int:
        """By the clock of the service, or by the consumer's."""
        return sum(1 for late in [*self.late_ms, *self.stored_late_ms] if late < 0)

    @property
    def late_ms_p99(self) -> int:
        return sorted(self.late_ms)[-(-99 * len(self.late_ms) // 100) - 1]


def lateness(rounds: int) -> str:
    """`rounds` of wakes; the arrivals are measured once for each store."""
    stores = {"memory": servers.decant, "emulator": servers.decant_on_emulator}
    rows: list[list[Cell]] = []
    wake_rows: list[list[Cell]] = []
    for store, serving in stores.items():
        with serving() as port:
            arrived = arrivals(port, "delayed")
            late: list[Cell] = [statistics.median(arrived.late_ms), arrived.late_ms_p99, max(arrived.late_ms)]
            rows.append([store, MESSAGES, OVER_MS, *late, arrived.early, arrived.again, arrived.lost])
            for what, late_ms in wakes(port, "woken", rounds).items():
                wake_rows.append([store, what, len(late_ms), statistics.median(late_ms), max(late_ms)])
    title = f"(e) How late {MESSAGES} delayed messages arrive, one consumer polling"
    return f"{table(title, _HEADERS, rows)}\n{table('A pop that waits wakes', _WAKE_HEADERS, wake_rows)}"


def arrivals(port: int, topic: str) -> Arrivals:
    """One consumer polls, while all messages fall due."""
    path = f"/topics/{topic}"
    with closing(Connection(port, is_kept=True)) as producer, closing(Connection(port, is_kept=True)) as consumer:
        producer.ask("PUT", path, {})
        producer.ask("PUT", f"{path}/groups/{_GROUP}", {})
        first_ms = _now() + _LEAD_MS
        due = [first_ms + OVER_MS * number // MESSAGES for number in range(MESSAGES)]
        _send(producer, path, due)
        if _now() >= first_ms:
            raise RuntimeError(f"to store {MESSAGES} messages took longer than {_LEAD_MS} ms")
        return _consume(consumer, f"{path}/groups/{_GROUP}", due)


def wakes(port: int, topic: str, rounds: int) -> dict[str, list[int]]:
    """How late, in ms, a waiting pop gets messages that fall due: a delayed message, and then its retry."""
    with closing(Connection(port, is_kept=True)) as connection:
        return _wakes(connection, f"/topics/{topic}", rounds)


def _wakes(connection: Connection, path: str, rounds: int) -> dict[str, list[int]]:
    group = f"{path}/groups/{_GROUP}"
    connection.ask("PUT", path, {})
    connection.ask("PUT", group, {})
    late: dict[str, list[int]] = {"a delay": [], "a retry": []}
    for after_ms in _WAKES_AFTER_MS * rounds:
        due_ms = _now() + after_ms
        message = {"body": "a", "deliver_at_ms": due_ms}
        connection.ask("POST", f"{path}/messages", {"messages": [message]})
        receipt = _woken(connection, group, due_ms, late["a delay"])
        due_ms = _now() + after_ms  # by the service's clock a little later
        connection.ask("POST", f"{group}/nack", {"receipts": [receipt], "delay_ms": after_ms})
        receipt = _woken(connection, group, due_ms, late["a retry"])
        connection.ask("POST", f"{group}/ack", {"receipts": [receipt]})
    return late


def _woken(connection: Connection, group: str, due_ms: int, late_ms: list[int]) -> str:
    """The receipt of the message, which is alone."""
    (message,) = connection.ask("POST", f"{group}/pop", {"wait_ms": _GIVE_UP_MS})["messages"]
    late_ms.append(_now() - due_ms)
    receipt: str = message["receipt"]
    return receipt


def _send(producer: Connection, path: str, due: Sequence[int]) -> None:
    for at in range(0, len(due), _BATCH):
        batch = [
            {"body": str(number), "deliver_at_ms": due[number]} for number in range(at, min(at + _BATCH, len(due)))
        ]
        producer.ask("POST", f"{path}/messages", {"messages": batch})


def _consume(consumer: Connection, path: str, due: Sequence[int]) -> Arrivals:
    """Waits until all have come, and a little longer, in which none may come again."""
    late, stored_late, seen = [], [], Counter[int]()
    receipts: list[str] = []
    while len(seen) < len(due) and _now() < due[-1] + _GIVE_UP_MS:
        ask = {"max_messages": 100, "wait_ms": _WAIT_MS, "ack": receipts or None}
        messages = consumer.ask("POST", f"{path}/pop", ask)["messages"]
        now, receipts = _now(), [each["receipt"] for each in messages]
        for message in messages:
            number = int(message["body"])
            seen[number] += 1
            late.append(now - due[number])
            stored_late.append(message["stored_at_ms"] - due[number])
    rest = consumer.ask("POST", f"{path}/pop", {"wait_ms": 300, "ack": receipts or None})["messages"]
    seen.update(number for each in rest if (number := int(each["body"])) in seen)
    return Arrivals(late, stored_late, sum(seen.values()) - len(seen), len(due) - len(seen))


def _now() -> int:
    return time.time_ns() // 1_000_000
