"""Keeps what a memory store holds in a folder: one file of SQLite, one row an item.

A process that is killed loses nothing that was kept. A power failure may lose the newest changes, as the machine has
not written them yet (`synchronous = NORMAL`), but never leaves half of one.

Whoever reads the file has every message, and the key that signs: folder and files are private.
"""

from __future__ import annotations

import io
import pickle
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.table.keys import FORM
from chalicelib.core.table.writes import Item, Key, key_of
from local.memory.private import FolderUnusable, demand_private_file, demand_private_folder
from local.memory.reserve import RESERVE_BYTES, Reserve, makes_room
from local.memory.store import Change

FILE = "decant.sqlite"
_WAL = f"{FILE}-wal"
RESERVE = "decant.reserve"
_FILES = (FILE, _WAL, f"{FILE}-shm", f"{FILE}-journal", RESERVE)
"""All that SQLite makes for it, each with the mode of the first, and what is kept free for it."""
_UNKEPT = "the change cannot be kept in DATA"
APPLICATION_ID = 0x44434E54
"""Marks the file as ours, in its header."""
FORMAT = FORM
"""The version of the items, and of the tables below."""
LOCK_SECONDS = 1
"""How long to wait for a process before us that is about to end."""

_TABLES = """
CREATE TABLE item (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL, PRIMARY KEY (pk, sk));
CREATE TABLE blob (name TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
_PUT = "INSERT INTO item VALUES (?, ?, ?) ON CONFLICT (pk, sk) DO UPDATE SET item = excluded.item"
_REMOVE = "DELETE FROM item WHERE pk = ? AND sk = ?"


_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
"""The second where a quota or a limit of the process ends the room."""


class Disk:
    """Implements `local.memory.store.Keeper`. Only one process at a time has the folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder if it is missing, and closes it to other users. Raises `FolderUnusable`."""
        self._path = folder / FILE
        with self._readable():
            _demand_ours_or_empty(folder)
            demand_private_folder(folder, _FILES)
            for name in _FILES:
                demand_private_file(folder / name, is_made=name == FILE)
            self._was_full = False
            self._reserve = Reserve(folder / RESERVE)
            self._db = sqlite3.connect(self._path, LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._demand_format()
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(
                "PRAGMA secure_delete = FAST"
            )  # some builds write zeros over all that is deleted: to the WAL
            self._db.execute(f"PRAGMA journal_size_limit = {RESERVE_BYTES // 2}")
            with self._transaction():
                if not self._is_ours():
                    self._begin()
            self._reserve.hold()

    def keep(self, changes: Sequence[Change]) -> None:
        puts = [(*key, _packed(item)) for key, item in changes if item is not None]
        self._change((_PUT, puts), (_REMOVE, [key for key, item in changes if item is None]))

    def keep_blob(self, name: str, data: bytes) -> None:
        self._change(("INSERT OR REPLACE INTO blob VALUES (?, ?)", [(name, data)]))

    def remove_blobs(self, names: Sequence[str]) -> None:
        self._change(("DELETE FROM blob WHERE name = ?", [(name,) for name in names]))

    def items(self) -> Iterator[Item]:
        """Raises `FolderUnusable` where the file is damaged."""
        with self._readable():
            for pk, sk, packed in self._db.execute("SELECT pk, sk, item FROM item"):
                yield self._unpacked(Key(pk, sk), packed)

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """Raises `FolderUnusable` where the file is damaged."""
        with self._readable():
            yield from self._db.execute("SELECT name, data FROM blob")

    @property
    def is_full(self) -> bool:
        """Whether there was no room for a change, and is none yet."""
        return (self._was_full or not self._reserve.is_held) and not self._has_room()

    def close(self) -> None:
        """Afterwards everything is in one file, without a journal."""
        self._db.close()

    def _unpacked(self, key: Key, packed: bytes) -> Item:
        try:
            item: Item = _Plain(io.BytesIO(packed)).load()
            is_whole = key_of(item) == key
        except Exception as error:
            raise FolderUnusable(f"{self._path} is damaged: item {key} cannot be read: {error}") from error
        if not is_whole:
            raise FolderUnusable(f"{self._path} is damaged: item {key} has another key")
        return item

    def _demand_format(self) -> None:
        """Reads, and so locks, the file before anything is written."""
        if self._is_new():
            return
        if not self._is_ours():
            raise FolderUnusable(f"{self._path} is not of Decant")
        if (version := self._pragma("user_version")) != FORMAT:
            raise FolderUnusable(
                f"{self._path} is stored in form {version}, and this release reads form {FORMAT}: run the release that"
                " made it, or name another folder"
            )

    def _is_new(self) -> bool:
        """Whether nothing was ever kept: the process before may have been killed when it had just made the file."""
        [[tables]] = self._db.execute("SELECT count(*) FROM sqlite_schema")
        return tables == 0 and self._pragma("application_id") == 0

    def _is_ours(self) -> bool:
        return self._pragma("application_id") == APPLICATION_ID

    def _begin(self) -> None:
        for statement in _TABLES.strip().split("\n"):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _pragma(self, name: str) -> int:
        value: int = self._db.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is executed meanwhile, or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _change(self, *statements: tuple[str, Sequence[Sequence[Any]]]) -> None:
        """Executes the statements, each for all of its rows, or none of them. Raises StoreUnavailable."""
        may_use_reserve = makes_room()
        try:
            if not (may_use_reserve or self._reserve.is_held or self._has_room()):
                raise StoreUnavailable(f"{_UNKEPT}: the disk is full, and has room only for what makes room")
            self._execute(statements, may_use_reserve)
        except sqlite3.Error as error:
            self._was_full |= _is_full(error)
            raise StoreUnavailable(f"{_UNKEPT}: {error}") from error

    def _execute(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]], may_use_reserve: bool) -> None:
        try:
            with self._transaction():
                for statement, rows in statements:
                    self._db.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            if not (may_use_reserve and self._reserve.is_held and _is_full(error)):
                raise
            self._reserve.give_up()
            self._was_full = True
            self._execute(statements, may_use_reserve)
        self._was_full &= may_use_reserve

    def _has_room(self) -> bool:
        """Whether there is enough for all changes, without the reserve. Takes the reserve again, if there is enough of
        that too."""
        free = self._reserve.free_bytes()
        if free >= 2 * RESERVE_BYTES and self._reserve.hold():
            return True
        return free + self._pragma("freelist_count") * self._pragma("page_size") >= RESERVE_BYTES

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise FolderUnusable(f"{self._path.parent} is used by another process") from error
            raise FolderUnusable(f"{self._path} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise FolderUnusable(f"{self._path} is damaged, or not of Decant: {error}") from error
        except OSError as error:
            raise FolderUnusable(f"{self._path.parent} cannot be used: {error.strerror}") from error


def _demand_ours_or_empty(folder: Path) -> None:
    """A folder that was named by mistake gets no file of ours, and what belonged to a file that was cut off stays."""
    file, journal = folder / FILE, folder / _WAL
    if folder.is_dir() and not file.exists() and any(folder.iterdir()):
        raise FolderUnusable(f"{folder} has other files, and none of Decant: name a folder that is empty, or a new one")
    if file.exists() and not file.stat().st_size and journal.exists() and journal.stat().st_size:
        raise FolderUnusable(f"{file} is damaged: it is empty, and {journal.name} has changes of it")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in _FULL


def _packed(item: Item) -> bytes:
    return pickle.dumps(dict(item), protocol=5)


class _Plain(pickle.Unpickler):
    """Knows strings, numbers, bytes, lists and maps alone: a file that somebody else has made runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"an item holds a {module}.{name}")
