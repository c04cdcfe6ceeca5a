"""The environment that every room is built from."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.catalogue import Catalogue
from chalicelib.store import Store


@dataclass(frozen=True, slots=True)
class Env:
    """The store, time and chance, and the look-ups of topics and groups that one instance caches."""

    store: Store
    runtime: Runtime
    catalogue: Catalogue
