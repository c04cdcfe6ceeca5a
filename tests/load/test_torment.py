"""Rounds of torment cover all features in turn, and end on a signal."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load import __main__, processes
from tests.load.kinds import KINDS
from tests.load.torment import SHARES, plan
from tests.load.worker import Job

AT_ONCE_SECONDS = 5
"""On a busy machine."""


def test_eight_rounds_have_every_kind_of_group_and_every_feature() -> None:
    plans = [plan(seed, 120) for seed in range(8)]
    assert {kind for plan in plans for kind in plan.kinds} == {*KINDS}
    assert {feature for plan in plans for feature in plan.features} == {*SHARES}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell makes its jobs in the background ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_round_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(600)"
    monkeypatch.setattr(processes, "command", lambda _: [sys.executable, "-c", interrupts])
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        processes.torment([Job("i0", "", "", (), 0, 600, 0, str(tmp_path))], 600, seed=0)
    assert time.monotonic() - began < AT_ONCE_SECONDS


def test_an_interrupted_round_is_announced_and_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["tests.load", "--torment", "1", "--endpoint", "http://emulator"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for name, value in {"JOURNALS": tmp_path, "_answers": lambda _: True, "play": interrupted}.items():
        monkeypatch.setattr(__main__, name, value)
    assert __main__.main() == 128 + signal.SIGINT
    announced, last = capsys.readouterr().out.splitlines()
    assert announced.startswith("seed 0: ")
    assert last == "interrupted; this round is not judged"
