"""Reads only files that lie inside the export, whatever its manifest names."""

from __future__ import annotations

import os
import re

from spark.errors import BadInput
from spark.files import Place

_PLAIN = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]*")
_SHOWN_CHARS_MAX = 200
"""The characters shown of a refused name."""


def is_plain(name: str) -> bool:
    """Whether the name is a single path component on every system, without encoding: AWS's names have letters, digits,
    dots and hyphens."""
    return _PLAIN.fullmatch(name) is not None


def data_file(folder: Place, below: str, key: str, manifest: Place) -> Place:
    """The file in the folder that the manifest names by this key. `below`: the required continuation after
    `AWSDynamoDB/`; the export's original location comes before. Raises `BadInput`."""
    name = key.rpartition(f"AWSDynamoDB/{below}")[2]
    if not key.endswith(f"AWSDynamoDB/{below}{name}") or not is_plain(name):
        wanted = f"AWSDynamoDB/{below}<name>"
        raise BadInput(f"{manifest} names the data file {key[:_SHOWN_CHARS_MAX]!r}; its key must end with {wanted}")
    demand_in(folder, folder / name)
    return folder / name


def demand_in(folder: Place, file: Place) -> None:
    """Raises `BadInput` if a link leads the file out of the folder. `folder`: without links, as from `place_of`. S3 has
    no links."""
    if folder.is_local and os.path.dirname(os.path.realpath(file.path)) != os.path.abspath(folder.path):
        raise BadInput(f"{file} is refused: a link leads out of {folder}, and only what lies inside an export is read")
