"""The emulator of AWS that the other tests of this folder use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.ministack import Ministack, tool


def test_functions_run_on_the_python_that_packages_are_for() -> None:
    command: list[str | Path] = [tool("python"), "-c", "import sys; print(*sys.version_info[:3])"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(part) for part in sys.version_info[:3]]


def test_clients_find_the_emulator(ministack: Ministack) -> None:
    s3 = ministack.client("s3")
    s3.create_bucket(Bucket="kept", CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    assert "kept" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
