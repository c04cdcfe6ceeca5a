"""All jobs on what the real service has left: their numbers are the ones that it says itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from spark.job import Job, main
from spark.jobs import backlog, compact, cost, dead_letters, delays, messages, replay, search, traffic
from tests.http.client import Client, Json
from tests.spark.exports import ID, write_items
from tests.spark.service import World, busy_world

Given = list[str]


@pytest.fixture(scope="module")
def world() -> World:
    return busy_world()


@pytest.fixture(scope="module")
def given(spark: SparkSession, world: World, tmp_path_factory: pytest.TempPathFactory) -> Given:
    """What `messages` was run with."""
    root = tmp_path_factory.mktemp("jobs")
    folder = write_items(root / "export", world.items, files=1)
    arguments = ["--export", str(folder), "--tables", str(root / "tables"), "--allow-quarantine"]
    assert main(messages.JOB, arguments) == 0
    return arguments


def _table(spark: SparkSession, given: Given, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(f"{given[3]}/{name}/export={ID}").collect()]


def _groups(world: World) -> list[Json]:
    """Every group, as the service shows it."""
    client = world.client
    listed = [
        (topic.path, each["group"])
        for topic in world.topics
        for each in client.get(f"{topic.path}/groups").json["groups"]
    ]
    return [client.get(f"{path}/groups/{name}").json for path, name in listed]


def test_a_backlog_is_what_the_service_says(spark: SparkSession, world: World, given: Given) -> None:
    assert main(backlog.JOB, [*given, "--now", str(world.client.clock.now())]) == 0
    rows = _table(spark, given, "backlog")
    shown = _groups(world)
    assert len(shown) > 5
    for group in shown:
        own = [row for row in rows if (row["topic"], row["group"]) == (group["topic"], group["group"])]
        for name in ("ready", "in_flight", "retrying", "dead", "lag"):
            assert (group["group"], name, sum(row[name] for row in own)) == (group["group"], name, group[name])
        for each in group["queues"]:
            of_queue = [row for row in own if row["queue"] == each["queue"] and not row["is_forgotten"]]
            for name, column in (("committed_offset", "committed"), ("next_offset", "next")):
                assert each[name] == min(row[column] for row in of_queue)
            assert each["end_offset"] == max(row["end"] for row in of_queue)


def test_jobs_agree_with_each_other_and_a_second_run_changes_nothing(
    spark: SparkSession, world: World, given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    said = world.messages()
    jobs: tuple[Job, ...] = (traffic.JOB, delays.JOB, dead_letters.JOB, cost.JOB, compact.JOB)
    assert [main(job, given) for job in jobs] == [0] * len(jobs)
    counted = Counter(row["topic"] for row in _table(spark, given, "traffic") for _ in range(row["messages"]))
    kept = len(said) - 1  # the one in S3 is in the quarantine
    assert counted.total() == kept
    assert {row["topic"]: row["messages"] for row in _table(spark, given, "skew")} == counted
    hottest = [row["key"] for row in _table(spark, given, "hot_keys") if row["topic"] == "orders"]
    assert sorted(hottest) == ["k0", "k1", "k2"]
    (late,) = [row for row in _table(spark, given, "delays") if row["topic"] == "delayed"]
    assert (late["p50_ms"], late["max_ms"], late["early"]) == (1000, 1000, 0)
    dead = _table(spark, given, "dead_messages")
    shown = _groups(world)
    assert len(dead) == sum(group["dead"] for group in shown) > 0
    assert {row["message_id"] for row in dead} <= {each["message_id"] for each in said}
    costs = _table(spark, given, "cost")
    assert sum(row["items"] for row in costs) == len(world.items)
    last = {(each["topic"], each["key"]): each["message_id"] for each in said if each["key"] is not None}
    found = {(row["topic"], row["key"]): row["message_id"] for row in _table(spark, given, "compact")}
    assert found.keys() == last.keys()
    assert main(compact.JOB, given) == 0
    assert {row["message_id"] for row in _table(spark, given, "compact")} == set(found.values())
    assert "keys" in capsys.readouterr().out


def test_a_message_is_found_by_all_that_it_says(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.ndjson"
    wanted = ["--topic", "orders", "--tag", "paid", "--key", "k0", "--property", "n=6", "--text", "ORDER 6"]
    tables = ["--tables", given[3]]
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
    given: Given, served: tuple[Client, str], capsys: pytest.CaptureFixture[str]
) -> None:
    client, url = served
    copy = client.topic("copy", queues=3)
    asked = ["--tables", given[3], "--run-id", "r1", "--url", url, "--to-topic", "copy", "--rate", "1000"]
    selected = ["--topic", "orders", "--tag", "paid"]
    assert main(replay.JOB, [*asked, *selected, "--keep-queues"]) == 0
    assert "replay: 10 messages sent, 10 in all of run r1" in capsys.readouterr().out
    found = [each for queue in range(3) for each in copy.read(queue=queue, offset=0, limit=100)["messages"]]
    assert sorted(each["body"] for each in found) == sorted(f"order {number}" for number in range(0, 20, 2))
    for key in ("k0", "k1", "k2"):
        numbers = [int(each["properties"]["n"]) for each in found if each["key"] == key]
        assert numbers == sorted(numbers)
    assert main(replay.JOB, [*asked, *selected, "--keep-queues"]) == 0
    assert "replay: 0 messages sent, 10 in all" in capsys.readouterr().out
    assert main(replay.JOB, [*asked, "--topic", "news"]) == 1
    assert "replay: run r1 was begun with keep_queues True, not False" in capsys.readouterr().err
    assert main(replay.JOB, [*asked[:-4], "--to-topic", "nowhere"]) == 1
    assert "404 topic 'nowhere' does not exist" in capsys.readouterr().err
