"""An emulator of AWS that runs deployments: S3, Lambda, API Gateway, CloudFormation and event sources. It runs
functions with the Python of `.aws-tools`, which is that of `.venv`: packages are made for it. It does not check rights
or signatures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.support.emulators import absent, free_port

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".aws-tools"
REGION = "eu-central-1"

START_SECONDS = 60
STOP_SECONDS = 20
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Ministack:
    endpoint: str
    log: Path
    """The output of the emulator and of the functions."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point a command of ours, or any AWS client, to it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, read_timeout=120),
        )


def tool(name: str) -> Path:
    """The path of a program of `.aws-tools`. Without it the test is skipped, and fails in CI."""
    path = TOOLS / "bin" / name
    if not path.exists():
        absent(f"{name} is not here: `make aws-tools` installs it")
    return path


@contextlib.contextmanager
def ministack() -> Iterator[Ministack]:
    """Runs an empty emulator of its own on loopback. It unpacks functions into its folder for temporary files and
    leaves them there; this function removes the folder."""
    program = tool("ministack")
    with tempfile.TemporaryDirectory(prefix="decant-ministack-", ignore_cleanup_errors=True) as folder:
        port, log = free_port(), Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program], env=_environment(port, folder), stdout=output, stderr=output, start_new_session=True
            )
        try:
            started = Ministack(f"http://127.0.0.1:{port}", log)
            _wait(process, started)
            yield started
        finally:
            _stop(process)


def _environment(port: int, folder: str) -> dict[str, str]:
    """The environment without this process's own settings of AWS and of the service, which functions would inherit."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DECANT_", "PYTHON"))}
    return {
        **ours,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "AWS_DEFAULT_REGION": REGION,
        "TMPDIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _wait(process: subprocess.Popen[bytes], started: Ministack) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{started.endpoint}/_ministack/health", timeout=5):
            return
        time.sleep(LOOK_SECONDS)
    pytest.fail(f"the emulator does not answer; it says: {started.log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the emulator with its workers, which are in its session."""
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
