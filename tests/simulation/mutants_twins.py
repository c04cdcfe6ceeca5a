"""Bugs planted into what an instance keeps of several topics."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from tests.simulation.mutants import planted
from tests.simulation.mutants_keys import keys_kept_in


@planted
def keys_known_by_the_number_of_their_queue() -> Any:
    """An instance takes what it knows of a message for what it knows of one in another topic."""

    class Kept(BoundedCache[Any]):
        def get(self, key: Any) -> Any:
            return super().get((key[0].rsplit("#")[-1], key[1]))

        def keep(self, key: Any, value: Any) -> None:
            super().keep((key[0].rsplit("#")[-1], key[1]), value)

    return keys_kept_in(Kept)


@planted
def dedup_ids_of_all_topics() -> Any:
    """A message is not stored when another topic has one with this dedup id."""
    return patch.object(keys, "dedup", lambda _, dedup_id: Key(f"dedup##{dedup_id}", "record"))
