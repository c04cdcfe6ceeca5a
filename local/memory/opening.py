"""Opens the memory store, with the folder that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from chalicelib.core.base.errors import StoreUnavailable
from local.memory.disk import Disk, FolderUnusable
from local.memory.store import MemoryStore

_opened: list[MemoryStore] = []


def close() -> None:
    """Closes all opened stores. Later requests to them fail as if the store were away."""
    while _opened:
        _opened.pop().close()


def drop_expired(now_ms: int) -> None:
    """Removes expired items from all opened stores."""
    for store in _opened:
        store.drop_expired(now_ms)


def open_memory(keeps_blobs: bool) -> MemoryStore:
    """Opens a store that is kept in the folder `DATA`, if that is set. Raises `StoreUnavailable`, whose detail is one
    line."""
    folder = os.environ.get("DATA")
    try:
        store = MemoryStore(keeps_blobs, Disk(Path(folder)) if folder else None)
    except FolderUnusable as reason:
        raise StoreUnavailable(str(reason)) from reason
    _opened.append(store)
    return store
