"""Writes a synthetic export."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport, WrittenFile
from spark.exporting.typed_json import full_line, typed_item
from tests.synthetic import groups, waiting
from tests.synthetic.log import Log
from tests.synthetic.parameters import QUIET_MS, START_MS, Queue, Shape

_KINDS = {
    "topic": "topic",
    "topics": "listed_topic",
    "groups": "directory",
    "log": "segment",
    "retry": "retry_page",
    "delay": "delayed",
    "promotions": "decision",
    "dead": "dead_letter",
    "group settings": "group",
    "group cursor": "cursor",
    "group rate": "window",
    "agenda": "appointment",
    "service sweep": "sweep",
    "service signing-key": "secret",
}
"""The kind of an item, by the beginning of its partition key, or of both keys; other kinds are named as their keys
begin."""


def generate(root: Path, shape: Shape) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the export, and its content: its queues and cursors, and the counts of each kind."""
    export = NewExport(root, shape.export_id, "decant", shape.now_ms, None)
    layout.begin(export)
    queues, cursors = list[dict[str, Any]](), list[dict[str, Any]]()
    writer = _Writer(export, shape)
    for queue in shape.all_queues():
        log = Log(shape, queue, writer.put, groups.nexts(shape, queue))
        told = log.write()
        cursors.extend(groups.write(shape, queue, told, writer.put))
        waits = waiting.write(shape, queue, log.messages, told, writer.put)
        queues.append(_known(shape, queue, log, waits))
    for item in _general(shape):
        writer.put(item, shape.now_ms - QUIET_MS)
    layout.finish(export, writer.close(), shape.now_ms + 1_000)
    about = {"now_ms": shape.now_ms, "messages": shape.messages, "kinds": writer.kinds}
    return export.folder, {**about, "queues": queues, "cursors": cursors}


class _Writer:
    def __init__(self, export: NewExport, shape: Shape) -> None:
        self._files = [DataFileWriter(export.file(number)) for number in range(shape.files)]
        logs = [f"log#{shape.topic_id(queue.topic)}#{queue.number}" for queue in shape.all_queues()]
        self._place_of_log = {log: at for at, log in enumerate(logs)}
        self.kinds = Counter[str]()

    def put(self, item: dict[str, Any], _written_ms: int) -> None:
        self.kinds[_kind(item["pk"], item["sk"])] += 1
        self._write(item["pk"], full_line(typed_item(item)))

    def close(self) -> list[WrittenFile]:
        return [file.close() for file in self._files]

    def _write(self, pk: str, line: bytes) -> None:
        """Logs are most of the data, so they are spread evenly over the files."""
        place = self._place_of_log.get(pk)
        self._files[(zlib.crc32(pk.encode()) if place is None else place) % len(self._files)].write(line)


def _kind(pk: str, sk: str) -> str:
    prefix = pk.partition("#")[0]
    name = f"{prefix} {sk.partition('#')[0]}" if prefix in ("group", "service") else prefix
    return _KINDS.get(name, name)


def _general(shape: Shape) -> Iterator[dict[str, Any]]:
    for topic in range(shape.topics):
        yield from groups.settings(shape, topic)
    yield {"pk": "service", "sk": "signing-key", "value": shape.name_of("key", 32)}
    yield {"pk": "agenda#push", "sk": f"{0:015d}#{shape.topic_name(0)}", "until": START_MS}
    yield {"pk": "service", "sk": "sweep#revive", "after": shape.topic_name(0), "at": START_MS}


def _known(shape: Shape, queue: Queue, log: Log, waits: dict[str, Any]) -> dict[str, Any]:
    told, messages = log.told, log.messages
    return {
        "topic_id": shape.topic_id(queue.topic),
        "queue": queue.number,
        "messages": shape.quota(queue),
        "promoted": told.promoted,
        "lateness_ms_max": told.lateness_ms_max,
        "tags": messages.tags,
        "body_bytes": messages.body_bytes,
        **waits,
    }
