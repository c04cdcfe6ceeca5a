"""The pipeline on what the real service has left: its numbers are the ones that the service says itself."""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from pyspark.sql import SparkSession

from spark.frame import at_hand
from spark.frame.job import main
from spark.jobs import pipeline, replay, search
from tests.spark.exports import write_items
from tests.spark.opened import opened
from tests.spark.service import World, busy_world
from tests.spark.written import rows_of
from tests.support.client import Client, Json


@pytest.fixture(scope="module")
def world() -> World:
    return busy_world()


class Pipeline(NamedTuple):
    """One run of it: `folder` of the export, `said` on stdout and stderr, `passes` over each file, on Linux."""

    folder: Path
    tables: Path
    code: int
    said: str
    page: str
    passes: dict[str, int]

    def rows(self, table: str) -> list[dict[str, Any]]:
        return rows_of(self.tables, table)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, world: World, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    root = tmp_path_factory.mktemp("jobs")
    folder, tables, out = write_items(root / "export", world.items), root / "tables", root / "report.html"
    given = ["--export", str(folder), "--tables", str(tables), "--out", str(out), "--allow-quarantine"]
    said = io.StringIO()
    counting = opened(folder / "data") if sys.platform == "linux" else nullcontext(Counter[str]())
    with counting as counts, redirect_stdout(said), redirect_stderr(said):
        code = main(pipeline.JOB, [*given, "--now", str(world.client.clock.now())])
    return Pipeline(folder, tables, code, said.getvalue(), out.read_text(), counts)


def _groups(world: World) -> list[Json]:
    """Every group, as the service shows it."""
    client = world.client
    listed = [
        (topic.path, group["group"])
        for topic in world.topics
        for group in client.get(f"{topic.path}/groups").json["groups"]
    ]
    return [client.get(f"{path}/groups/{name}").json for path, name in listed]


def test_the_pipeline_runs_and_prints_every_job_and_makes_the_report(ran: Pipeline, world: World) -> None:
    assert ran.code == 0
    assert [line.partition(":")[0] for line in ran.said.splitlines()] == [*pipeline.NAMES, "pipeline"]
    kept = len(world.messages()) - 1  # the one in S3 is in the quarantine
    assert f"messages: {kept} messages, 0 already there, 2 of deleted topics left out, 1 row in quarantine" in ran.said
    assert "audit: 0 violations, 0 doubts" in ran.said
    ready = sum(group["ready"] for group in _groups(world))
    for text in (f"{ready} ready", f"{kept} messages", "Nothing was found", "no such &lt;customer&gt;", "a month"):
        assert text.replace(" ", "") in ran.page.replace("\u202f", "").replace(" ", ""), text
    assert "has not run" not in ran.page


def test_where_spark_itself_reads_the_files_all_tables_are_the_same(
    ran: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does where they are larger than a plan can carry."""
    monkeypatch.setattr(at_hand, "BYTES_MAX", 0)
    given = ["--export", str(ran.folder), "--tables", str(tmp_path), "--allow-quarantine"]
    assert main(pipeline.JOB, [*given, "--out", str(tmp_path / "out"), "--now", str(world.client.clock.now())]) == 0
    assert capsys.readouterr().err == ""
    for table in sorted(path.name for path in ran.tables.glob("[a-z]*")):
        assert _sorted(rows_of(tmp_path, table)) == _sorted(ran.rows(table)), table


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_the_pipeline_reads_each_file_of_the_export_once(ran: Pipeline) -> None:
    assert ran.passes == {path.name: 1 for path in (ran.folder / "data").iterdir()}
    assert len(ran.passes) == 2


def test_a_message_in_s3_that_is_not_given_is_in_the_quarantine(ran: Pipeline) -> None:
    (row,) = ran.rows("quarantine")
    assert row["line"] > 0
    assert row["file"] in {path.name for path in (ran.folder / "data").iterdir()}


def test_a_backlog_is_what_the_service_says(ran: Pipeline, world: World) -> None:
    rows = ran.rows("backlog")
    shown = _groups(world)
    assert len(shown) > 5
    for group in shown:
        own = [row for row in rows if (row["topic"], row["group"]) == (group["topic"], group["group"])]
        for name in ("ready", "in_flight", "retrying", "dead", "lag"):
            assert (group["group"], name, sum(row[name] for row in own)) == (group["group"], name, group[name])
        for queue in group["queues"]:
            of_queue = [row for row in own if row["queue"] == queue["queue"] and not row["is_forgotten"]]
            for name, column in (("committed_offset", "committed"), ("next_offset", "next")):
                assert queue[name] == min(row[column] for row in of_queue)
            assert queue["end_offset"] == max(row["end"] for row in of_queue)


def test_traffic_counts_the_messages_of_each_queue_and_tag_and_their_bytes(ran: Pipeline, world: World) -> None:
    counts, sizes = Counter[tuple[str, int, str]](), Counter[str]()
    for row in ran.rows("traffic"):
        counts[row["topic"], row["queue"], row["tag"]] += row["messages"]
        sizes[row["topic"]] += row["body_bytes"]
    archived = ran.rows("messages")
    assert len(archived) == len(world.messages()) - 1
    assert counts == Counter((row["topic"], row["queue"], row["tag"]) for row in archived)
    assert sizes == sum((Counter({row["topic"]: len(row["body"])}) for row in archived), Counter[str]())
    skew = Counter[str]()
    for row in ran.rows("skew"):
        skew[row["topic"]] += row["messages"]
    assert skew == Counter(row["topic"] for row in archived)
    hottest = {row["key"] for row in ran.rows("hot_keys") if row["topic"] == "orders"}
    assert hottest == {"k0", "k1", "k2"}


def test_requests_are_answered_or_timed_out_as_their_callers_heard(ran: Pipeline) -> None:
    of_topic, *minutes = sorted(ran.rows("requests"), key=lambda row: row["minute_ms"] or 0)
    names = ("topic", "calls", "replied", "timed_out", "waiting", "late", "orphaned")
    assert [of_topic[name] for name in names] == ["questions", 6, 3, 2, 1, 0, 0]
    assert [of_topic[f"{step}_max_ms"] for step in ("taken", "handled", "replied")] == [40, 60, 100]
    assert [row["calls"] for row in minutes] == [5, 1]


def test_delays_are_those_of_what_came_and_what_waits_still_waits(ran: Pipeline, world: World) -> None:
    [late] = [row for row in ran.rows("delays") if row["topic"] == "delayed"]
    assert (late["p50_ms"], late["max_ms"], late["early"]) == (1000, 1000, 0)
    waits = sum(len(topic.client.get(f"{topic.path}/delayed?limit=100").json["messages"]) for topic in world.topics)
    assert sum(row["messages"] for row in ran.rows("delay_waiting")) == waits > 0


def test_dead_letters_and_costs_are_of_every_item(ran: Pipeline, world: World) -> None:
    dead = ran.rows("dead_messages")
    assert len(dead) == sum(group["dead"] for group in _groups(world)) > 0
    assert {row["message_id"] for row in dead} <= {message["message_id"] for message in world.messages()}
    assert Counter(row["reason"] for row in dead) == sum(
        (Counter({row["reason"]: row["letters"]}) for row in ran.rows("dead_letters")), Counter[str]()
    )
    assert sum(row["items"] for row in ran.rows("cost")) == len(world.items)


def test_compact_keeps_the_last_of_each_key(ran: Pipeline, world: World) -> None:
    last = {
        (message["topic"], message["key"]): message["message_id"]
        for message in world.messages()
        if message["key"] is not None
    }
    rows = ran.rows("compact")
    assert {(row["topic"], row["key"]) for row in rows} == last.keys()
    assert f"compact: {len(last)} keys" in ran.said
    assert {row["message_id"] for row in rows} == {*last.values()}


def test_a_message_is_found_by_all_that_it_says(
    ran: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.ndjson"
    wanted = ["--topic", "orders", "--tag", "paid", "--key", "k0", "--property", "n=6", "--text", "ORDER 6"]
    tables = ["--tables", str(ran.tables)]
    assert main(search.JOB, [*tables, *wanted, "--ignore-case", "--out", str(out)]) == 0
    (line,) = out.read_bytes().splitlines()
    message = orjson.loads(line)
    assert (message["body"], message["key"], message["properties"]) == ("order 6", "k0", {"n": "6"})
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split("\t")[1:] == [
        "orders",
        f"{message['queue']}:{message['offset']}",
        message["message_id"],
        "k0",
        "paid",
        "order 6",
    ]
    assert main(search.JOB, [*tables, *wanted]) == 0
    assert "search: 0 messages in" in capsys.readouterr().out
    assert main(search.JOB, ["--tables", str(tmp_path)]) == 1
    assert "the job that writes it has to run first" in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        main(search.JOB, ["--property", "n"])
    assert refused.value.code == 64


class _Bridge(BaseHTTPRequestHandler):
    """Passes calls on to the service in this process."""

    def do_POST(self) -> None:
        self._pass_on("POST", self.rfile.read(int(self.headers["content-length"])))

    def do_GET(self) -> None:
        self._pass_on("GET", b"")

    def _pass_on(self, method: str, body: bytes) -> None:
        answer = self.server.client.ask(method, self.path, raw=body)  # type: ignore[attr-defined]
        self.send_response(answer.status)
        self.end_headers()
        self.wfile.write(orjson.dumps(answer.json))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[tuple[Client, str]]:
    client = Client()
    with HTTPServer(("127.0.0.1", 0), _Bridge) as server:
        server.client = client  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield client, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_replay_puts_back_what_was_archived_once(
    ran: Pipeline, served: tuple[Client, str], capsys: pytest.CaptureFixture[str]
) -> None:
    client, url = served
    copy = client.topic("copy", queues=3)
    asked = ["--tables", str(ran.tables), "--run-id", "r1", "--url", url, "--to-topic", "copy", "--rate", "1000"]
    selected = ["--topic", "orders", "--tag", "paid"]
    assert main(replay.JOB, [*asked, *selected, "--keep-queues"]) == 0
    assert "replay: 10 messages sent, 10 in all of run r1" in capsys.readouterr().out
    messages = [message for queue in range(3) for message in copy.read(queue=queue, offset=0, limit=100)["messages"]]
    assert sorted(message["body"] for message in messages) == sorted(f"order {number}" for number in range(0, 20, 2))
    for key in ("k0", "k1", "k2"):
        numbers = [int(message["properties"]["n"]) for message in messages if message["key"] == key]
        assert numbers == sorted(numbers)
    assert main(replay.JOB, [*asked, *selected, "--keep-queues"]) == 0
    assert "replay: 0 messages sent, 10 in all" in capsys.readouterr().out
    assert main(replay.JOB, [*asked, "--topic", "news"]) == 1
    assert "replay: run r1 was begun with keep_queues True, not False" in capsys.readouterr().err
    assert main(replay.JOB, [*asked[:-4], "--to-topic", "nowhere"]) == 1
    assert "404 topic 'nowhere' does not exist" in capsys.readouterr().err
