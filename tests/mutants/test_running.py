"""The command line, as its user sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.changes import mutants_of
from tests.mutants.results import Results, counted, row

_WAITS = """
import os, signal, sys, time
from pathlib import Path
from tests.mutants import __main__ as command
from tests.mutants.changes import mutants_of
from tests.mutants.running import apart, judged

def judging():
    def waiting(mutant):
        print(os.getpid(), file=told, flush=True)
        time.sleep(600)

    told = os.fdopen(os.dup(1), "w")
    for _ in judged(mutants_of(Path("local/memory/evaluate.py"))[:2], waiting, 2):
        pass

command._judge = lambda rooms, asked: apart(lambda: apart(judging))
sys.argv = ["mutants", "evaluate"]
sys.exit(command.main())
"""


def test_an_interrupt_ends_all_processes_and_says_how_to_go_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        judging = [int(run.stdout.readline()) for _ in range(2)]
        run.send_signal(signal.SIGINT)  # only this process: a terminal would signal all
        said, told = run.communicate(timeout=60)
    assert (said, told, run.returncode) == ("", "\ninterrupted; run it again to go on\n", 130)
    for pid in judging:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_report_counts_survivors_and_writes_only_those_that_are_open(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text("AGE_MAX = 10\nKEPT_MAX = 10\n")
    mutants, survivors = mutants_of(tmp_path / "source.py"), tmp_path / "room.diff"
    results = Results(tmp_path / "room.jsonl")

    def shown() -> list[str]:
        return row("a", counted(mutants, results, survivors)).replace(" %", "%").split()

    assert shown() == ["a", "4", "4", "0", "0", "0", "0", "0", "0", "-", "-"]
    assert not survivors.exists()
    results.note(mutants[0], "histories", None)
    results.note(mutants[1], "types", "an error")
    assert shown() == ["a", "4", "2", "0", "1", "0", "1", "0", "1", "50.0%", "50.0%"]
    assert survivors.read_text() == mutants[0].diff + "\n"
