"""The behaviour that all jobs share: arguments, error messages, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from spark.errors import BadInput
from spark.frame.command_line import instant
from spark.frame.job import FAILED, INTERRUPTED, Job, JobResult, main
from spark.frame.run import Run
from spark.jobs import audit, backlog, cost, dead_letters, delays, messages, pipeline, report, search
from tests.spark.exports import change, write_export, write_items
from tests.spark.items import entry, segment, topic
from tests.support.emulators import ROOT


def _job(ends: Callable[[], JobResult]) -> Job:
    return Job("some", "", lambda _: ends(), reads_export=False)


def _raises(error: BaseException) -> Callable[[], JobResult]:
    def end() -> JobResult:
        raise error

    return end


@pytest.mark.parametrize(
    ("job", "wrong"),
    [
        (messages.JOB, ["--no-such-option"]),
        (messages.JOB, ["--export", "e", "--tables", ""]),
        (messages.JOB, ["--export", "e", "--tables", "file:///tables"]),
        (messages.JOB, ["--export", "e", "--tables", "s3:/bucket/tables"]),
        (pipeline.JOB, []),
        (pipeline.JOB, ["--export", "e", "--cores", "two"]),
        (backlog.JOB, ["--export", "e", "--now", "tomorrow"]),
        (backlog.JOB, ["--export", "e", "--now", "99999999999999999"]),
        (backlog.JOB, ["--export", "e", "--cores", "1", "--master", "local"]),
        (backlog.JOB, ["--export", "e", "--master", "foo"]),
        (report.JOB, ["--export", "e", "--days", "0"]),
        (audit.JOB, ["--export", "e", "--slack", "-1"]),
        (cost.JOB, ["--export", "e", "--write-price", "-0.1"]),
        (cost.JOB, ["--export", "e", "--read-price", "nan"]),
        (cost.JOB, ["--export", "e", "--storage-price", "cheap"]),
    ],
)
def test_wrong_arguments_end_with_64_and_one_line(
    job: Job, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(job, wrong)
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (64, "", 1)
    assert said.err.startswith(f"{job.name}: ")


@pytest.mark.parametrize("to", ["2026-01-31", "2026-01-01"])
def test_a_span_that_nothing_lies_in_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str) -> None:
    assert main(search.JOB, ["--tables", str(tmp_path), "--from", "2026-01-31", "--to", to]) == FAILED
    assert "--from is not before --to: 1769817600000 and" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are listed there, on Linux alone")
def test_an_interrupt_while_spark_starts_leaves_nothing_running(tmp_path: Path) -> None:
    folder = write_items(tmp_path / "export", [topic(), segment(entry())])
    assert main(messages.JOB, ["--export", str(folder), "--tables", str(tmp_path)]) == 0
    command = [sys.executable, "-m", "spark.jobs.search", "--tables", str(tmp_path)]
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        job = subprocess.Popen(command, cwd=ROOT, stderr=file, start_new_session=True)
    try:
        while not any(_children(job.pid)):
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == INTERRUPTED
        give_up_at = time.monotonic() + 30
        while _is_alive(job.pid) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        assert not _is_alive(job.pid)
    finally:
        if _is_alive(job.pid):
            os.killpg(job.pid, signal.SIGKILL)
    said = [line for line in errors.read_text().splitlines() if "incubator" not in line]
    assert said == ["search: interrupted"]


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _children(pid: int) -> list[str]:
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_an_instant_is_ms_or_an_iso_time_in_utc() -> None:
    assert instant("1767225600000") == instant("2026-01-01") == instant("2026-01-01T01:00+01:00") == 1_767_225_600_000


def test_what_is_interrupted_ends_with_130(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_job(_raises(KeyboardInterrupt())), []) == INTERRUPTED == 130
    assert capsys.readouterr().err == "some: interrupted\n"


def test_an_error_is_one_line_or_with_traceback_all_there_is(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = _job(_raises(RuntimeError("first\nsecond")))
    assert main(broken, []) == FAILED == 1
    assert capsys.readouterr().err == "some: RuntimeError: first\n"
    assert main(_job(_raises(BadInput("no such thing"))), []) == FAILED
    assert capsys.readouterr().err == "some: no such thing\n"
    with pytest.raises(RuntimeError, match="second"):
        main(broken, ["--traceback"])


def test_tables_that_cannot_be_written_are_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    def write(run: Run) -> JobResult:
        return JobResult(str(run.write_all(spark.range(1), "some")))

    assert main(Job("some", "", write, reads_export=False), ["--tables", str(tmp_path / "file" / "tables")]) == FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(tmp_path / "file") in said


def test_a_search_knows_where_it_cannot_write_before_it_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    for out in (tmp_path / "nowhere" / "found", tmp_path):
        assert main(search.JOB, ["--tables", str(tmp_path), "--out", str(out)]) == FAILED
        said = capsys.readouterr()
        assert (said.out, str(tmp_path) in said.err, "no table" in said.err) == ("", True, False)


@pytest.mark.parametrize("module", [audit, backlog, cost, dead_letters, delays], ids=lambda module: module.JOB.name)
def test_what_only_a_full_export_tells_is_not_asked_of_another(
    module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_export(tmp_path, [[change(topic(), 5)]], is_incremental=True)
    assert main(module.JOB, ["--export", str(folder), "--tables", str(tmp_path / "tables")]) == FAILED
    assert capsys.readouterr().err.startswith(f"{module.JOB.name}: {folder} is incremental; ")
    assert not (tmp_path / "tables").exists()


def test_the_pipeline_refuses_an_incremental_export_before_any_job_has_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_export(tmp_path, [[change(topic(), 5)]], is_incremental=True)
    given = ["--export", str(folder), "--tables", str(tmp_path / "tables"), "--out", str(tmp_path / "report.html")]
    assert main(pipeline.JOB, given) == FAILED
    assert capsys.readouterr().err == f"pipeline: {folder} is incremental; most jobs need a full export\n"
    assert not (tmp_path / "tables").exists()


def test_entries_that_messages_could_not_unpack_stay_in_the_quarantine(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_items(tmp_path / "export", [topic(), segment(entry(b"no message"))], files=1)
    given = ["--export", str(folder), "--tables", str(tmp_path / "tables")]
    assert [main(job, given) for job in (messages.JOB, audit.JOB, backlog.JOB)] == [FAILED] * 3
    said = capsys.readouterr().err.splitlines()
    assert all("1 row of this export cannot be read" in line for line in said)
    assert len(said) == 3
    assert [path.name for path in (tmp_path / "tables").glob("[a-z]*")] == ["quarantine"]


_LOADED_BY_PATH = """
import runpy, sys
for path in sys.argv[1:]:
    sys.path[0] = path.rpartition("/")[0]
    for name in [name for name in sys.modules if name.split(".")[0] == "spark"]:
        del sys.modules[name]
    runpy.run_path(path, run_name="submitted")
"""


def test_every_job_can_be_run_by_its_path_as_spark_submit_does(tmp_path: Path) -> None:
    paths = [str(path) for path in sorted((ROOT / "spark" / "jobs").glob("[a-z]*.py"))]
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED_BY_PATH, *paths], cwd=tmp_path, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
