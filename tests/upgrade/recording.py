"""Recordings of what a version stores: the items of its table, its folder `DATA`, and what callers remember."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from chalicelib.core.store import Range
from chalicelib.core.store.dynamodb.expressions import plain_item, typed_item
from chalicelib.core.table.keys import FIRST, FORM, LAST
from chalicelib.core.table.writes import Item
from local.memory.disk import FILE, Disk
from local.memory.store import MemoryStore
from tests.support.client import Client, Json
from tests.support.clock import Clock
from tests.upgrade import world

RECORDED = Path(__file__).parent / "recorded"
TABLE, KEPT = "table.json", "kept.json"
RECORDER, READER = 1, 1_000
"""Seeds of chance. Those who read a recording must not draw the ids that are in it."""


@dataclass(frozen=True)
class Recording:
    folder: Path

    @cached_property
    def about(self) -> Json:
        about: Json = json.loads((self.folder / KEPT).read_text())
        return about

    @property
    def form(self) -> int:
        form: int = self.about["form"]
        return form

    @property
    def items(self) -> list[Item]:
        return [plain_item(json.loads(line)) for line in (self.folder / TABLE).read_text().splitlines()]

    def copy_data(self, folder: Path) -> Path:
        """A copy of the folder `DATA`, since what opens it changes it."""
        folder.mkdir(mode=0o700)
        shutil.copy(self.folder / FILE, folder)
        (folder / FILE).chmod(0o600)
        return folder

    def clock(self) -> Clock:
        """At the instant of the recording."""
        clock = Clock()
        clock.ms = self.about["now_ms"]
        return clock


def recordings() -> list[Recording]:
    return [Recording(path.parent) for path in sorted(RECORDED.glob(f"*/{KEPT}"))]


def record(folder: Path) -> None:
    """Fills a table, and writes it down in a new folder."""
    with TemporaryDirectory() as data:
        store = MemoryStore(keeps_blobs=True, keeper=Disk(Path(data)))
        client = Client(store, seed=RECORDER)
        kept = world.leave_everything(client)
        items = sorted(items_of(store), key=lambda item: (item["pk"], item["sk"]))
        store.close()
        folder.mkdir(parents=True)
        shutil.copyfile(Path(data) / FILE, folder / FILE)
    about = {"form": FORM, "now_ms": client.clock.ms, "kept": kept}
    (folder / KEPT).write_text(json.dumps(about, indent=1) + "\n")
    (folder / TABLE).write_text("".join(map(_as_line, items)))


def items_of(store: MemoryStore) -> Iterator[Item]:
    for partition in store.partitions():
        yield from store.read([Range(partition, FIRST, LAST)])[0]


def _as_line(item: Item) -> str:
    """In DynamoDB's JSON."""
    return json.dumps(typed_item(item), default=lambda data: b64encode(data).decode()) + "\n"
