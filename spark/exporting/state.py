"""The state of the last export into a folder: a digest of each item, by which the next export detects changes.

It is a file of SQLite, so the table may be larger than memory. It is kept only once the export is complete: after a
crash the next incremental export begins where the last complete one ended."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import orjson

from spark.errors import BadInput
from spark.exporting.typed_json import Typed, in_base64

FILE = ".decant-export.sqlite"
_DIGEST_BYTES = 16
_SCHEMA = """
CREATE TABLE IF NOT EXISTS item (key BLOB PRIMARY KEY, digest BLOB NOT NULL, seen INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS export (number INTEGER PRIMARY KEY, name TEXT NOT NULL, id TEXT NOT NULL, at_ms INTEGER);
"""


class Last(NamedTuple):
    """The last export into this folder: its table and its time."""

    table: str
    id: str
    at_ms: int


class State:
    """A context manager. `keep` makes the recorded items permanent; otherwise they are discarded."""

    def __init__(self, folder: Path) -> None:
        """Raises `BadInput` if another export into this folder is under way, and `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        try:
            self._db = sqlite3.connect(self._path, timeout=1, isolation_level=None)
            self._db.executescript(_SCHEMA)
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise BadInput(f"another export into {folder} is under way") from error
            raise PermissionError(f"{self._path} cannot be written: {error}") from error
        except sqlite3.DatabaseError as error:
            raise BadInput(
                f"{self._path} is broken ({error}); without it, the next full export makes a new one"
            ) from error
        self._number = self._latest() + 1

    def __enter__(self) -> State:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._db.close()

    def last(self) -> Last | None:
        row = self._db.execute("SELECT name, id, at_ms FROM export ORDER BY number DESC LIMIT 1").fetchone()
        return Last(*row) if row else None

    def forget(self) -> None:
        """Drops all earlier items: those recorded from now on are the whole state."""
        self._db.execute("DELETE FROM item")

    def has_changed(self, keys: Typed, image: Typed) -> bool:
        """Records the item. Returns whether it differs from the last export, or was not in it."""
        key, digest = _packed(keys), hashlib.blake2b(_packed(image), digest_size=_DIGEST_BYTES).digest()
        known = self._db.execute("SELECT digest FROM item WHERE key = ?", (key,)).fetchone()
        self._db.execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?)", (key, digest, self._number))
        return known is None or known[0] != digest

    def removed(self) -> Iterator[Typed]:
        """The keys of items that were in the last export and have not been recorded since."""
        for (key,) in self._db.execute("SELECT key FROM item WHERE seen < ?", (self._number,)):
            yield orjson.loads(key)

    def keep(self, table: str, export_id: str, at_ms: int) -> None:
        self._db.execute("DELETE FROM item WHERE seen < ?", (self._number,))
        self._db.execute("INSERT INTO export VALUES (?, ?, ?, ?)", (self._number, table, export_id, at_ms))
        self._db.execute("COMMIT")

    def _latest(self) -> int:
        number: int = self._db.execute("SELECT coalesce(max(number), 0) FROM export").fetchone()[0]
        return number


def _packed(typed: Typed) -> bytes:
    return orjson.dumps(typed, default=in_base64, option=orjson.OPT_SORT_KEYS)
