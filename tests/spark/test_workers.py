"""The processes that do the work of a job on one machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spark.errors import BadInput
from spark.landing.tasks import Workers
from spark.tables.tables import Tables

_WORKS_FOR_LONG = """
from pathlib import Path
from spark.landing.tasks import Workers
from tests.spark.test_workers import works_for_long
if __name__ == "__main__":
    Workers(2).each(works_for_long, [Path({!r}) / str(part) for part in range(2)])
"""

_BEGINS_SLOWLY = """
import os, time
from pathlib import Path
from spark.landing.tasks import Workers
folder = Path({!r})
if __name__ == "__main__":
    Workers(2).each(abs, range(2))
else:
    (folder / str(os.getpid())).touch()
    while not (folder / "go on").exists():
        time.sleep(0.05)
"""


def fails_at_three(part: int) -> int:
    if part == 3:
        raise BadInput("three cannot be read")
    return part * part


def dies(part: int) -> None:
    os._exit(1)


def works_for_long(place: Path) -> None:
    place.write_text(str(os.getpid()))
    time.sleep(600)


def test_the_results_are_those_of_the_parts_in_their_order() -> None:
    assert Workers(2).each(fails_at_three, [9, 1, 2]) == [81, 1, 4]


def test_one_part_needs_no_process() -> None:
    made = Workers(2).each(lambda part: (part, os.getpid()), ["one"])  # a lambda cannot be sent
    assert made == [("one", os.getpid())]


def test_what_one_process_raises_the_job_raises() -> None:
    with pytest.raises(BadInput, match="three cannot be read"):
        Workers(2).each(fails_at_three, range(9))


def test_a_process_that_was_killed_is_told_in_one_line() -> None:
    with pytest.raises(BadInput, match="a worker process was killed, probably out of memory"):
        Workers(2).each(dies, range(2))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_has_started_them(how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    job = _started(tmp_path / "job.py", _WORKS_FOR_LONG.format(str(tmp_path / "pids")))
    while len(pids := [place.read_text() for place in (tmp_path / "pids").iterdir()]) < 2 or not all(pids):
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(how)
    job.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_ends_no_process_that_is_about_to_begin(tmp_path: Path) -> None:
    """A terminal sends it to each of them, and the one that has started them ends them."""
    (tmp_path / "pids").mkdir()
    job = _started(tmp_path / "job.py", _BEGINS_SLOWLY.format(str(tmp_path / "pids")))
    while len(pids := [int(place.name) for place in (tmp_path / "pids").iterdir()]) < 2:
        assert job.poll() is None
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    (tmp_path / "pids/go on").touch()
    assert job.wait() == 0


def _started(place: Path, program: str) -> subprocess.Popen[bytes]:
    place.write_text(program)
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, str(place)], env=path, stderr=subprocess.DEVNULL)


def test_a_run_begins_when_the_last_process_of_a_killed_one_has_ended(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "tables"))
    entered = threading.Event()

    def write() -> None:
        with tables.writing():
            entered.set()

    (tmp_path / "tables").mkdir()
    with open(str(tables.workers_lock), "ab") as process:
        fcntl.flock(process, fcntl.LOCK_SH)
        run = threading.Thread(target=write)
        run.start()
        assert not entered.wait(0.2)
    run.join()
    assert entered.is_set()
