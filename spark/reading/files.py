"""Files on this machine and in S3, by one path: `/a/b`, `a/b` or `s3://bucket/a/b`.

S3 is reached with the usual AWS settings of the environment. `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names another
endpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from spark.errors import BadInput

_S3 = "s3://"


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

    def read(self) -> bytes:
        """Reads a small file whole. Raises `BadInput` if it does not exist or cannot be read."""
        try:
            with self.open() as file:
                content: bytes = file.read()
                return content
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {_reason(error)}") from error

    def open(self) -> pa.NativeFile:
        """As it is, not decompressed. Raises `OSError`."""
        files, path = self._located()
        return files.open_input_stream(path, compression=None)

    def size(self) -> int | None:
        """The size in bytes; None if there is no such file."""
        files, path = self._located()
        info = files.get_file_info(path)
        return info.size if info.type == fs.FileType.File else None

    def _located(self) -> tuple[fs.FileSystem, str]:
        if self.path.startswith(_S3):
            return _s3(), self.path.removeprefix(_S3)
        return fs.LocalFileSystem(), self.path


def _s3() -> fs.FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return fs.S3FileSystem()
    scheme, _, host = endpoint.rpartition("://")
    return fs.S3FileSystem(endpoint_override=host.rstrip("/"), scheme=scheme or "https")


def _reason(error: OSError) -> str:
    """The operating system's message, without the path."""
    return (error.strerror or str(error).splitlines()[0]) if error.args else "no reason given"
