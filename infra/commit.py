"""The commit that is packaged, as git tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent

COMMAND = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
"""Twelve digits, and `-dirty` behind them where files of the commit have been changed."""


def commit() -> str:
    """Empty where git or its history is missing."""
    try:
        done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
