"""Tables in S3: runs that are killed, or at work at once, and jobs on a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from spark.files import Place
from spark.frame.job import DONE, FAILED, main
from spark.jobs import incremental, messages, tidy
from spark.tables.tables import Tables
from tests.spark.days import Days
from tests.spark.exports import write_items
from tests.spark.items import entry, segment, topic
from tests.support import s3
from tests.support.emulators import ROOT

MESSAGES = pa.schema([("queue", pa.int32()), ("offset", pa.int64())])
A_DAY = 40
CLUSTER_SECONDS_MAX = 240


class Killed(BaseException):
    """The end of a process: nothing catches it."""


class Steps:
    """The file operations of a run, in order. A run that is killed after one of these steps changes nothing more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self._kill_after: int | None = None
        located, create = Place.located, Place.create
        patch.setattr(Place, "located", lambda place: self._step("", located, place))
        patch.setattr(Place, "create", lambda place, content: self._step("create", create, place, content))

    def kill(self, run: Callable[[], object], after: int) -> bool:
        """Kills it after so many steps. Returns False if it has ended before."""
        self.names, self._kill_after = [], after
        try:
            run()
        except Killed:
            return True
        finally:
            self._kill_after = None
        return False

    def _step(self, name: str, act: Callable[..., Any], *given: Any) -> Any:
        self._die_if_due()
        self.names.append(name)
        done = act(*given)
        self._die_if_due()
        return done

    def _die_if_due(self) -> None:
        if self._kill_after is not None and len(self.names) >= self._kill_after:
            raise Killed


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with s3.server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A full one, and what the next day has changed."""
    days = Days(tmp_path_factory.mktemp("exports"), A_DAY)
    return [days.write(), days.write()]


@pytest.fixture
def bucket(environment: dict[str, str]) -> str:
    return s3.new_bucket()


@pytest.fixture
def tables(bucket: str) -> str:
    return begun(bucket)


def begun(bucket: str) -> str:
    """Where there is a version, of no tables yet."""
    tables = f"s3://{bucket}/tables"
    with Tables(tables).writing():
        return tables


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def run(export: Path, tables: str) -> int:
    return main(messages.JOB, ["--export", str(export), "--tables", tables])


def there(tables: str) -> list[tuple[int, int]]:
    """The messages that a reader finds: queue and offset."""
    rows = Tables(tables).arrow("messages", MESSAGES).to_pylist()
    return sorted((row["queue"], row["offset"]) for row in rows)


def of_days(days: int) -> list[tuple[int, int]]:
    return [(queue, at) for queue in range(2) for at in range(days * A_DAY // 2)]


def test_a_run_killed_after_any_step_has_changed_all_or_nothing(exports: list[Path], tables: str, steps: Steps) -> None:
    assert run(exports[0], tables) == DONE
    kills, found = 0, []
    while steps.kill(partial(run, exports[1], tables), kills):
        found.append(there(tables))
        kills += 1
    assert kills > 30
    assert steps.names.count("create") == 1
    changed = found.index(of_days(2))
    assert found == [of_days(1)] * changed + [of_days(2)] * (kills - changed)
    assert there(tables) == of_days(2)
    time.sleep(1.1)  # S3 gives the times of files in seconds
    assert main(tidy.JOB, ["--tables", tables, "--hours", "0"]) == DONE
    newest = Tables(tables).newest()
    left = {name for name in (found.name for found in Place(tables).files()) if not name.startswith("_versions/")}
    assert left == newest.named()
    assert there(tables) == of_days(2)


def test_exports_that_arrive_in_s3_are_read_once(
    bucket: str, exports: list[Path], tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.upload(exports[0].parent.parent, bucket)
    for folder in ("AWSDynamoDB/", "AWSDynamoDB/none/"):
        Place(f"s3://{bucket}/{folder}").create(b"")  # as consoles make folders
    for count in (2, 0):
        assert main(incremental.JOB, ["--arriving", f"s3://{bucket}/AWSDynamoDB", "--tables", tables]) == DONE
        assert f"incremental: {count} exports in " in capsys.readouterr().out
    assert there(tables) == of_days(2)


def test_of_two_runs_at_once_the_second_to_commit_fails(
    exports: list[Path], tables: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create, codes = Place.create, list[int]()

    def other_first(place: Place, content: bytes) -> bool:
        monkeypatch.setattr(Place, "create", create)
        codes.append(run(exports[0], tables))
        return create(place, content)

    monkeypatch.setattr(Place, "create", other_first)
    codes.append(run(exports[0], tables))
    assert codes == [DONE, FAILED]
    said = f"messages: another run has written the same messages to {tables}; run the job again\n"
    assert capsys.readouterr().err == said
    assert there(tables) == of_days(1)


@pytest.mark.skipif(not shutil.which("java") and not os.environ.get("CI"), reason="Java 17 is not here")
def test_a_cluster_writes_tables_in_s3_and_reads_them(bucket: str, tmp_path: Path) -> None:
    lines = b"\n".join([b'{"b":"one"}'] * 100)
    entries = [entry(lines, at.to_bytes(8), count=100) for at in range(30)]
    logs = [segment(*entries[at * 10 :][:10], queue=at) for at in range(3)]
    folder = write_items(tmp_path, [topic() | {"queues": 3}, *logs], files=3)
    s3.upload(tmp_path, bucket)
    tables = begun(bucket)
    done = submitted(tmp_path, f"s3://{bucket}/{folder.relative_to(tmp_path)}", tables)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line.partition(" in ")[0] for line in done.stdout.splitlines()]
    assert said == ["messages: 3000 messages, 0 already there", "traffic: 3000 messages of 1 day"]
    assert there(tables) == [(queue, at) for queue in range(3) for at in range(1_000)]
    written = [key for key in s3.keys(bucket) if "/messages/date=" in key]
    assert len(written) == 2 * len(Tables(tables).places(Tables(tables).newest(), "messages"))


def submitted(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """On a cluster of two workers on this machine, which work in this folder: its `SPARK_HOME` is there."""
    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    given = ["--master", "local-cluster[2,1,1024]", "--jars", s3.jars(), "--driver-memory", "1g"]
    given += ["--driver-java-options", quick, "--conf", f"spark.executor.extraJavaOptions={quick}"]
    own = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [home / "bin/spark-submit", *given, Path(__file__).with_name("submitted.py"), *arguments],
        env={**os.environ, **own, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=CLUSTER_SECONDS_MAX,
    )
