"""Files on this machine and in S3, by one path: `/a/b`, `a/b`, `s3://bucket/a/b` or `s3a://bucket/a/b`.

S3 is reached with the usual AWS settings of the environment. `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names another
endpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from spark.errors import BadInput

_S3 = ("s3://", "s3a://")
_CONFLICTS_MAX, _CONFLICT_SECONDS = 10, 0.2
"""Retries, and the pause before each, while S3 reports another request for the same key."""
TEMPORARY = ".new-"
"""The prefix of files that `create` has not finished."""


class FoundFile(NamedTuple):
    """A file in a folder. `name`: its path below the folder."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or a file."""

    path: str

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        return Place(self.path.rstrip("/").rpartition("/")[0] or ("/" if self.path.startswith("/") else "."))

    @property
    def is_local(self) -> bool:
        return not self.path.startswith(_S3)

    @property
    def spark_path(self) -> str:
        """The path in Spark's spelling."""
        return os.path.abspath(self.path) if self.is_local else f"s3a://{self._key}"

    def read(self) -> bytes:
        """Reads a small file whole. Raises `BadInput` if it does not exist or cannot be read."""
        try:
            with self.open() as file:
                content: bytes = file.read()
                return content
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {_reason(error)}") from error

    def open(self) -> pa.NativeFile:
        """Opens the file without decompressing it. Raises `OSError`."""
        files, path = self.located()
        return files.open_input_stream(path, compression=None)

    def size(self) -> int | None:
        """The size in bytes; None if there is no such file."""
        files, path = self.located()
        info = files.get_file_info(path)
        return info.size if info.is_file else None

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file in this folder, by its name. S3 lists a thousand files in the time that it
        takes to return the size of one."""
        files, path = self.located()
        found = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return {info.base_name: info.size for info in found if info.is_file}

    def create(self, content: bytes) -> bool:
        """Creates the file with its whole content, or returns False if it exists. Only one of several concurrent calls
        succeeds. `content` must be unique: if the response of S3 is lost, only the content shows which call created the
        file."""
        return self._create_here(content) if self.is_local else self._create_in_s3(content)

    def names(self) -> list[str]:
        """The names of the files and folders in this folder; none if it does not exist."""
        files, path = self.located()
        found = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info.base_name for info in found]

    def folders(self) -> set[str]:
        """The names of the folders in this folder, without links, which lead elsewhere."""
        if self.is_local:
            with os.scandir(self.path) as found:
                return {each.name for each in found if each.is_dir(follow_symlinks=False)}
        files, path = self.located()
        listed = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return {info.base_name for info in listed if info.type == fs.FileType.Directory}

    def files(self) -> Iterator[FoundFile]:
        """The files in this folder, at any depth; none if it does not exist."""
        files, path = self.located()
        for info in files.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
            if info.type == fs.FileType.File:
                yield FoundFile(info.path.removeprefix(path).lstrip("/"), info.mtime)

    def is_folder(self) -> bool:
        """Whether there is such a folder; in S3, whether anything lies in it."""
        return Path(self.path).is_dir() if self.is_local else bool(self.names())

    def sync(self) -> None:
        """Makes the file and its name survive a power failure, as S3 does for each file."""
        if self.is_local:
            _sync(Path(self.path))
            _sync(Path(self.path).parent)

    def delete(self) -> None:
        """Deletes the file if it exists."""
        files, path = self.located()
        with suppress(FileNotFoundError):
            files.delete_file(path)

    def delete_empty_folders(self) -> None:
        """Deletes the folder if it is empty, then its parent likewise. S3 has no folders."""
        if self.is_local:
            with suppress(OSError):
                Path(self.path).rmdir()
                Path(self.path).parent.rmdir()

    def delete_folder(self) -> None:
        """Deletes the folder and all that is in it, if it exists."""
        files, path = self.located()
        with suppress(FileNotFoundError):
            files.delete_dir(path)

    def make_folder(self) -> None:
        """S3 has no folders: there it does nothing."""
        if self.is_local:
            Path(self.path).mkdir(parents=True, exist_ok=True)

    def located(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the path in it."""
        return (_here(), os.path.abspath(self.path)) if self.is_local else (_s3(), self._key)

    @property
    def _key(self) -> str:
        """The bucket, and the key in it."""
        return self.path.partition("://")[2]

    def _create_here(self, content: bytes) -> bool:
        path = Path(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{TEMPORARY}{uuid4().hex}")
        try:
            with unfinished.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, path)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(path.parent)
        return True

    def _create_in_s3(self, content: bytes) -> bool:
        from botocore.exceptions import ClientError

        bucket, _, key = self._key.partition("/")
        for _ in range(_CONFLICTS_MAX):
            try:
                _client().put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "PreconditionFailed":
                    return self.read() == content
                if code != "ConditionalRequestConflict":
                    raise
                time.sleep(_CONFLICT_SECONDS)
            else:
                return True
        raise BadInput(f"{self.path} cannot be written: others write it all the time")


class _Sized(Protocol):
    @property
    def bytes(self) -> int: ...


Sized = TypeVar("Sized", bound=_Sized)


def bundled(files: Iterable[Sized], bytes_max: int) -> list[list[Sized]]:
    """The files in their order, large ones alone, small ones together up to so many bytes."""
    bundles: list[list[Sized]] = []
    room = 0
    for file in files:
        if not bundles or file.bytes > room:
            bundles.append([])
            room = bytes_max
        bundles[-1].append(file)
        room -= file.bytes
    return bundles


def endpoint() -> str | None:
    """The URL of S3, unless it is AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


@cache
def _here() -> fs.FileSystem:
    return fs.LocalFileSystem()


def _s3() -> fs.FileSystem:
    return _s3_at(endpoint())


@cache
def _s3_at(url: str | None) -> fs.FileSystem:
    if not url:
        return fs.S3FileSystem()
    scheme, _, host = url.rpartition("://")
    return fs.S3FileSystem(endpoint_override=host.rstrip("/"), scheme=scheme or "https")


def _client() -> Any:
    return _client_at(endpoint())


@cache
def _client_at(url: str | None) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(s3={"addressing_style": "path"}) if url else None)


def _sync(path: Path) -> None:
    """Syncs a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    """The operating system's message, without the path."""
    return (error.strerror or str(error).splitlines()[0]) if error.args else "no reason given"
