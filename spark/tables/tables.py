"""The tables at one place: their content, and the changes of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark.errors import BadInput
from spark.files import Place
from spark.tables.versions import FOLDER, Part, TableParts, TablesChange, Version, Versions

SCRATCH = "_scratch"
"""The folder for data that a run sets aside until it ends."""
_LOCK, _WORKERS = "_lock", "_workers"
_AT_WORK = b"at work"
OURS = re.compile(r"_?[a-z][a-z_]*/(date|export|part)=[^/]+/([a-z_]+-)?[0-9a-f]{32}\.parquet")
"""The files that a run may remove."""


class Tables:
    """`root`: a folder here, or `s3://bucket/folder`."""

    def __init__(self, root: str) -> None:
        self.root = Place(root.rstrip("/") or root)
        self.versions = Versions(self.root)
        self._lock: BinaryIO | None = None

    @property
    def workers_lock(self) -> str | None:
        """A local file that each process of a run locks while it lives."""
        return (self.root / _WORKERS).path if self.root.is_local else None

    def newest(self) -> Version:
        """Raises `BadInput` if the tables are of another layout."""
        version = self.versions.newest()
        if not version.number and self._is_of_older_layout():
            raise BadInput(
                f"{self.root} has tables of an older layout; python -m spark.jobs.convert --tables {self.root}"
                " makes new ones of them"
            )
        return version

    def path(self, table: str) -> str:
        return str(self.root / table)

    def parts(self, table: str) -> TableParts:
        return self.newest().parts(table)

    def places(self, version: Version, table: str, parts: Collection[str] | None = None) -> list[Place]:
        """The files of these partitions of the table, or of all."""
        folder = self.root / table
        return [
            folder / name / file.name
            for name, part in sorted(version.parts(table).items())
            if parts is None or name in parts
            for file in part.files
        ]

    def demand(self, table: str, version: Version | None = None) -> Version:
        """The version, or else the newest. Raises `BadInput` if no job has written the table."""
        version = version or self.newest()
        if not version.parts(table):
            raise BadInput(f"there is no table {self.path(table)}: the job that writes it has to run first")
        return version

    def arrow(
        self, table: str, schema: pa.Schema, parts: Collection[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The columns of `schema` of the rows for which `where` holds. They must fit into memory."""
        paths = self.places(self.demand(table), table, parts)
        if not paths:
            return schema.empty_table()
        files = paths[0].located()[0]
        rows = ds.dataset([place.located()[1] for place in paths], schema=schema, filesystem=files)
        return rows.to_table(filter=where)

    def commit(self, change: Callable[[Version], TablesChange] | TablesChange) -> Version:
        """Makes a new version. `change` may depend on the version before, see `Versions.commit`."""
        made = change if callable(change) else lambda _: change
        if not self.root.is_local:
            made = partial(self._demand_files, made)
        version, unnamed = self.versions.commit(made)
        if self._lock:
            with suppress(OSError):  # the commit is done; the next run removes the rest
                self._remove(unnamed)
                self.versions.forget(version.number)
        return version

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Locks these tables against other runs on this machine, and removes the remains of a crashed run. Raises
        `BadInput` if another run holds the lock. S3 has no lock: there only the versions separate runs."""
        if not self.root.is_local:
            self._begin()
            yield
            return
        if self._lock:  # a job that runs others
            with self._cleaned_if_it_fails():
                yield
            return
        try:
            self.root.make_folder()
        except OSError as error:
            raise BadInput(f"{self.root} cannot be made a folder of tables: {error.strerror}") from error
        with open((self.root / _LOCK).path, "a+b") as lock:
            self._acquire(lock)
            self._begin()
            lock.seek(0)
            if lock.read():
                self.clean()
            else:
                lock.write(_AT_WORK)
                lock.flush()
            self._lock = lock
            try:
                with self._cleaned_if_it_fails():
                    yield
            finally:
                self._lock = None
            (self.root / SCRATCH).delete_folder()
            lock.truncate(0)

    @contextmanager
    def _cleaned_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.clean()
            raise

    def clean(self) -> int:
        """Removes files that the newest version does not name. Only while no other run writes. Returns how many."""
        newest = self.versions.newest()
        named = newest.named()
        unnamed = [each.name for each in self.root.files() if OURS.fullmatch(each.name) and each.name not in named]
        self._remove(unnamed)
        (self.root / SCRATCH).delete_folder()
        self.versions.forget(newest.number)
        return len(unnamed)

    def _demand_files(self, change: Callable[[Version], TablesChange], newest: Version) -> TablesChange:
        """Raises `BadInput` if `tidy` has removed files of this run, because it took too long."""
        made = change(newest)
        parts = [(place, part.files) for place, part in made.put.items() if part] + [*made.added.items()]
        for (table, name), files in parts:
            new = {*files} - {*newest.parts(table).get(name, Part()).files}
            if {file.name for file in new} - (self.root / table / name).sizes().keys():
                raise BadInput(f"files that this run has written to {self.root} are gone; run the job again")
        return made

    def _begin(self) -> None:
        """Makes the first version, without tables, before any files. Files without a version are therefore not a
        crashed run's but tables whose versions were lost, which nobody may remove."""
        if self.versions.newest().number or self._is_of_older_layout():
            return
        if any(OURS.fullmatch(each.name) for each in self.root.files()):
            raise BadInput(f"{self.root} has files of tables, but no version of them: {self.root / FOLDER} is missing")
        self.commit(TablesChange())

    def _is_of_older_layout(self) -> bool:
        return (self.root / "messages/_SUCCESS").size() is not None

    def _remove(self, names: Collection[str]) -> None:
        for name in names:
            (self.root / name).delete()
        for folder in {(self.root / name).parent.path for name in names}:
            Place(folder).delete_empty_folders()

    def _acquire(self, lock: BinaryIO) -> None:
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"another run is at work on {self.root}; run the job again when it has ended") from None
        with open((self.root / _WORKERS).path, "ab") as workers:  # of a run that was killed; they end at once
            fcntl.flock(workers, fcntl.LOCK_EX)
