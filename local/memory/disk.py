"""Keeps what a memory store holds in a folder: one file of SQLite, one row an item.

A process that is killed loses nothing that was kept. A power failure may lose the newest changes, as the machine has
not written them yet (`synchronous = NORMAL`), but never leaves half of one.

Folder and files are private: the file holds every message, and the signing key.
"""

from __future__ import annotations

import io
import os
import pickle
import sqlite3
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import MIB
from chalicelib.core.table.keys import FORM
from chalicelib.core.table.writes import Item, Key, key_of
from chalicelib.core.telemetry import record
from chalicelib.core.telemetry.telemetry import PUSH, SWEEP
from local.memory.store import ItemChange

FILE = "decant.sqlite"
_WAL = f"{FILE}-wal"
RESERVE = "decant.reserve"
_FILES = (FILE, _WAL, f"{FILE}-shm", f"{FILE}-journal", RESERVE)
"""Files that SQLite makes for it, each with the mode of the first, and the reserve."""
_UNKEPT = "the change cannot be kept in DATA"
APPLICATION_ID = 0x44434E54
"""Marks the file as ours, in its header."""
FORMAT = FORM
"""The version of the items, and of the tables below."""
LOCK_SECONDS = 1
"""How long to wait for an earlier process that is about to end."""

_TABLES = """
CREATE TABLE item (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL, PRIMARY KEY (pk, sk));
CREATE TABLE blob (name TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
_PUT = "INSERT INTO item VALUES (?, ?, ?) ON CONFLICT (pk, sk) DO UPDATE SET item = excluded.item"
_REMOVE = "DELETE FROM item WHERE pk = ? AND sk = ?"

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
"""Errors of a full disk; the second one comes from a quota or a limit of the process."""

RESERVE_BYTES = 8 * MIB
"""SQLite's journal begins again after some 4 MB; the rest is for the largest changes, and for leases."""

MAKE_ROOM = frozenset(
    {
        *("pop", "ack", "nack", "extend", "bury", "reset_group", "purge_dead"),
        *("delete_topic", "delete_group", "cancel_delayed", "rollback_transaction"),
        *("delete_token", "delete_push_secret"),
        *("mq_consume", "mq_ack", "mq_rollback"),
        *("sqs.ReceiveMessage", "sqs.DeleteMessage", "sqs.DeleteMessageBatch", "sqs.PurgeQueue", "sqs.DeleteQueue"),
        *("sqs.ChangeMessageVisibility", "sqs.ChangeMessageVisibilityBatch"),
        *(PUSH, SWEEP),
    }
)
"""Operations that consume or delete, at every door."""

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


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

    def keep(self, changes: Sequence[ItemChange]) -> None:
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
        """Whether a change found no room, and there is still none."""
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
        """Reads, and so locks, the file before the first write."""
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
        """Whether the file was never written: an earlier process may have been killed just after it made the file."""
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
        """Commits all statements within it, or none."""
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
    """A folder that was named by mistake gets no file of ours, and the journal of a truncated file stays. Raises
    `FolderUnusable`."""
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
    """Reads only strings, numbers, bytes, lists and maps, so that a stranger's file runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"an item holds a {module}.{name}")


# -- room that only what makes room may use ---------------------------------------------------------------------------


def makes_room() -> bool:
    """Whether the call under way may use the reserve."""
    call = record.current()
    return call is not None and call.operation in MAKE_ROOM


class Reserve:
    """Room on the disk that only calls which make room may use: a file, which is given up when the disk is full.

    SQLite needs room to delete too: it appends each change to its journal before it frees pages. Freed pages stay in
    its file, for later changes. So once the reserve is given up, they count as room like the rest of the disk, and
    other changes begin again when there is as much of it as the reserve had.

    `is_held`: whether the file is there."""

    def __init__(self, path: Path) -> None:
        """Call it in a private folder."""
        self._path = path
        with suppress(FileNotFoundError):
            self.is_held = path.stat().st_size == RESERVE_BYTES
            return
        self.is_held = False

    def hold(self) -> bool:
        """Takes the room, if the disk has it. Returns whether it is held."""
        if not self.is_held:
            try:
                self._write()
            except OSError:
                self.give_up()
            else:
                self.is_held = True
        return self.is_held

    def give_up(self) -> None:
        self._path.unlink(missing_ok=True)
        self.is_held = False

    def free_bytes(self) -> int:
        """The bytes left on the disk."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def _write(self) -> None:
        """Writes bytes instead of only setting a size: a file with a hole in it takes no room."""
        file = os.open(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, FILE_MODE)
        with open(file, "wb") as reserved:
            reserved.write(bytes(RESERVE_BYTES))


# -- a folder that is open to its owner alone -------------------------------------------------------------------------


class FolderUnusable(Exception):
    """The reason, in one line."""


def demand_private_folder(folder: Path, own: Collection[str]) -> None:
    """Makes the folder if it is missing, narrows one that is wider. A link counts as the folder that it leads to. Only
    this user's own files are narrowed, and a folder only while nothing of others lies in it: a home folder or /tmp that
    was named by mistake is refused, and never closed to its users.
    `own`: the names of the files that may be in a folder that is narrowed. Raises `FolderUnusable`, `OSError`."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    about = folder.stat()
    _demand_own(folder, about)
    if not about.st_mode & _OTHERS:
        return
    if about.st_mode & stat.S_ISVTX:
        raise FolderUnusable(f"{folder} is shared with other users (its mode has the sticky bit): name another folder")
    if others := sorted({path.name for path in folder.iterdir()} - set(own)):
        reason = f"is open to other users, and is not narrowed since it has other files too ({others[0]!r})"
        raise FolderUnusable(f"{folder} {reason}: name a folder of its own, or chmod it to 700")
    _narrow(folder, about)


def demand_private_file(path: Path, is_made: bool = False) -> None:
    """Narrows a file that is wider. `is_made`: makes it, empty, if it is missing; it is private from the first moment.
    Call it when the folder is private: until then, others may change what a name stands for. It opens no file that is
    there: to close one again would end the locks that this process has on it. Raises `FolderUnusable`, `OSError`."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        if is_made:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        return
    if not stat.S_ISREG(about.st_mode):
        raise FolderUnusable(f"{path} is no regular file: a link or a folder has its name")
    _demand_own(path, about)
    if about.st_mode & _OTHERS:
        _narrow(path, about)


def _demand_own(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise FolderUnusable(f"{path} belongs to another user (uid {about.st_uid}), who could read what is kept there")


def _narrow(path: Path, about: os.stat_result) -> None:
    """Some file systems have no modes, and ignore a change of them."""
    wanted = stat.S_IMODE(about.st_mode) & ~_OTHERS
    try:
        path.chmod(wanted)
    except OSError as error:
        raise FolderUnusable(f"{path} is open to other users and cannot be narrowed: {error.strerror}") from error
    if path.stat().st_mode & _OTHERS:
        raise FolderUnusable(f"{path} is open to other users and cannot be narrowed: its file system keeps no modes")
