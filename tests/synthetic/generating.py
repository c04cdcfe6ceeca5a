"""Writes a synthetic export in several processes, each with queues and data files of its own."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from spark.errors import BadInput
from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport, WrittenFile
from spark.exporting.typed_json import change_line, full_line, typed_item
from tests.synthetic import file_defects, groups, waiting
from tests.synthetic.log import Log
from tests.synthetic.parameters import QUIET_MS, START_MS, Queue, Shape

ANSWERS = "answers.json"
_FILES_OF_ONE = 4
"""Data files of one process: its items lie in them by the hash of their partition key, as in a table."""
_DELETED = 3
"""Items of each queue that an incremental export lists as deleted."""
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
    "novelty": "unknown",
}
"""The kind of an item, by the beginning of its partition key, or of both keys; other kinds are named as their keys
begin."""


class Share(NamedTuple):
    """The result of one process."""

    files: list[WrittenFile]
    queues: list[dict[str, Any]]
    cursors: list[dict[str, Any]]
    kinds: Counter[str]
    planted: list[dict[str, Any]]


def generate(root: Path, shape: Shape, progress: Callable[[int], None] = lambda _: None) -> Path:
    """Returns the folder of the export; `answers.json` in it describes its content. `progress` is called with the
    number of messages that were written since the last call. Raises `BadInput` if the export exists already or is too
    small for a defect, and `OSError`. On an error, everything that was begun is removed."""
    export = NewExport(root, shape.export_id, "decant", shape.now_ms, shape.from_ms)
    if export.folder.exists():
        raise BadInput(f"{export.folder} is there already")
    layout.begin(export)
    try:
        _write(export, shape, progress)
    except BaseException:
        layout.remove(export, (export.file(number) for number in range(shape.files + 1)))  # a defect adds one
        raise
    return export.folder


def _write(export: NewExport, shape: Shape, progress: Callable[[int], None]) -> None:
    shares = list(_shares(export, shape, progress))
    planted = [defect for share in shares for defect in share.planted]
    files = sorted((file for share in shares for file in share.files), key=lambda file: file.path)
    file_defects.of_lines(export, shape, files, planted)
    missed = {defect.value for defect in shape.defects} - waiting.planted_of(planted)
    if missed:
        raise BadInput(f"with so few messages, or entries so small, there is no place for: {', '.join(sorted(missed))}")
    known = _answers(shape, export, shares, files, planted)
    (export.folder / ANSWERS).write_bytes(orjson.dumps(known, option=orjson.OPT_INDENT_2))
    file_defects.of_manifests(export, shape, files)


def answers(folder: Path) -> dict[str, Any]:
    """The content of the export in this folder: the counts of its topics, queues, cursors and kinds of item, and the
    planted defects with their places."""
    known: dict[str, Any] = orjson.loads((folder / ANSWERS).read_bytes())
    return known


def _shares(export: NewExport, shape: Shape, progress: Callable[[int], None]) -> Iterator[Share]:
    """Yields the shares in a fixed order: the same shape gives the same files."""
    queues = shape.all_queues()
    count = max(1, min(len(queues), shape.files // _FILES_OF_ONE))
    if count == 1:
        yield _share(export, shape, queues, range(shape.files), progress)
        return
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(_share, export, shape, queues[at::count], range(at, shape.files, count)) for at in range(count)
        ]
        for done in as_completed(running):
            progress(sum(queue["messages"] for queue in done.result().queues))
        for future in running:
            yield future.result()


def _share(
    export: NewExport,
    shape: Shape,
    queues: list[Queue],
    numbers: range,
    progress: Callable[[int], None] = lambda _: None,
) -> Share:
    writer = _Writer(export, numbers, [f"log#{shape.topic_id(queue.topic)}#{queue.number}" for queue in queues])
    share = Share([], [], [], writer.kinds, [])
    for queue in queues:
        log = Log(shape, queue, writer.put, groups.nexts(shape, queue))
        told = log.write()
        share.cursors.extend(groups.write(shape, queue, told, writer.put))
        waits = waiting.write(shape, queue, log.messages, told, writer.put)
        share.queues.append(_known(shape, queue, log, waits))
        share.planted.extend(told.planted)
        if shape.is_incremental:
            writer.delete_some(shape, queue)
        progress(shape.quota(queue))
    if Queue(0, 0) in queues:
        for item in _general(shape):
            writer.put(item, shape.now_ms - QUIET_MS)
    share.files.extend(writer.close())
    return share


class _Writer:
    def __init__(self, export: NewExport, numbers: range, logs: list[str]) -> None:
        self._files = [DataFileWriter(export.file(number)) for number in numbers]
        self._place_of_log = {log: at for at, log in enumerate(logs)}
        self._is_incremental = export.is_incremental
        self.kinds: Counter[str] = Counter()

    def put(self, item: dict[str, Any], written_ms: int) -> None:
        image = typed_item(item)
        keys = {"pk": image["pk"], "sk": image["sk"]}
        line = change_line(written_ms * 1000, keys, image) if self._is_incremental else full_line(image)
        self.kinds[_kind(item["pk"], item["sk"])] += 1
        self._write(item["pk"], line)

    def delete_some(self, shape: Shape, queue: Queue) -> None:
        """Lists some dead letters as removed."""
        own_id = groups.group_id(shape, queue.topic, groups.GROUPS[1])
        for at in range(_DELETED):
            pk, sk = f"dead#{shape.topic_id(queue.topic)}#{own_id}", f"{queue.number:03d}#{at:015d}"
            self.kinds["dead_letter"] += 1
            written_us = (shape.now_ms - QUIET_MS) * 1000
            self._write(pk, change_line(written_us, typed_item({"pk": pk, "sk": sk}), None))

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
        "topic": shape.topic_name(queue.topic),
        "topic_id": shape.topic_id(queue.topic),
        "queue": queue.number,
        "messages": shape.quota(queue),
        "new_from": shape.began(queue),
        "segments": told.segments,
        "entries": told.entries,
        "payloads": told.payloads,
        "decisions": told.decisions,
        "promoted": told.promoted,
        "lateness_ms_max": told.lateness_ms_max,
        "lateness_ms_sum": told.lateness_ms_sum,
        "tags": dict(sorted(messages.tags.items())),
        "keyed": messages.keyed,
        "binary": messages.binary,
        "body_bytes": messages.body_bytes,
        **waits,
    }


def _answers(
    shape: Shape, export: NewExport, shares: list[Share], files: list[WrittenFile], planted: list[dict[str, Any]]
) -> dict[str, Any]:
    queues = sorted(
        (queue for share in shares for queue in share.queues), key=lambda queue: (queue["topic"], queue["queue"])
    )
    topics = Counter[str]()
    for queue in queues:
        topics[queue["topic"]] += queue["messages"]
    return {
        "export": export.id,
        "now_ms": shape.now_ms,
        "from_ms": shape.from_ms,
        "messages": shape.messages,
        "new_messages": shape.messages - (shape.since or 0),
        "items": sum(file.items for file in files),
        "kinds": dict(sorted(sum((share.kinds for share in shares), Counter[str]()).items())),
        "topics": dict(topics),
        "queues": queues,
        "cursors": [cursor for share in shares for cursor in share.cursors],
        "planted": planted,
    }
