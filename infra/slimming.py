"""What of the installed packages goes to Lambda: nothing that it never reads."""

from __future__ import annotations

import struct
from fnmatch import fnmatch
from pathlib import Path

AWS_SERVICES = ("dynamodb", "lambda", "s3", "secretsmanager", "ssm", "sts")
"""Whose clients the functions make. botocore describes 400 more, in 14 of its 16 MB."""

LEFT_OUT = (
    "bin/*",
    "*.dist-info/*",
    "*.pyi",
    "*/py.typed",
    "*/__pycache__/*",
    "boto3/data/*",  # of its resources, which nothing uses
    "boto3/examples/*",
    "dateutil/zoneinfo/*.tar.gz",  # for machines without time zones
    "zstandard/_cffi*",  # for PyPy
    "zstandard/backend_cffi.py",
)


def is_wanted(path: str) -> bool:
    """`path`: of a file, relative to where packages are installed."""
    parts = path.split("/")
    if parts[:2] == ["botocore", "data"] and len(parts) > 3:
        return parts[2] in AWS_SERVICES and not fnmatch(path, "*/examples-1.json*")
    return not any(fnmatch(path, pattern) for pattern in LEFT_OUT)


def content(path: Path) -> bytes:
    """The file, a binary without what only debuggers and linkers read."""
    read = path.read_bytes()
    return loadable(read) if path.suffix == ".so" and read.startswith(b"\x7fELF\x02\x01") else read


def loadable(elf: bytes) -> bytes:
    """A shared object of 64 bits, up to the end of its last segment: sections are for linkers and debuggers, and come
    behind. Unlike `strip`, this is the same on every machine."""
    program_headers, size, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54)
    end = 0
    for at in range(program_headers, program_headers + size * count, size):
        offset, length = struct.unpack_from("<Q", elf, at + 8)[0], struct.unpack_from("<Q", elf, at + 32)[0]
        end = max(end, offset + length)
    cut = bytearray(elf[:end])
    struct.pack_into("<Q", cut, 40, 0)  # where the table of sections is
    struct.pack_into("<HHH", cut, 58, 0, 0, 0)  # the size of its entries, how many there are, which one has the names
    return bytes(cut)
