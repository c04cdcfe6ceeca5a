"""A real DynamoDB emulator, for behaviour that moto lacks: atomicity under load, and consumed capacity. Without it,
tests that need it skip, and fail in CI, where its absence is an accident."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from mypy_boto3_dynamodb import DynamoDBClient

ROOT = Path(__file__).parents[2]
DYNOXIDE = ROOT / ".emulators/node_modules/@dynoxide/linux-x64/dynoxide"

START_SECONDS = 10
STARTS_MAX = 3
STOP_SECONDS = 5


@contextlib.contextmanager
def dynoxide() -> Iterator[str]:
    """Runs an empty emulator of its own on loopback, in memory, and gives its endpoint."""
    if not DYNOXIDE.exists():
        absent(f"{DYNOXIDE.name} is not here: `make emulators` installs it")
    process, endpoint = _started()
    try:
        yield endpoint
    finally:
        _stop(process)


def client_of(endpoint: str) -> DynamoDBClient:
    """A client for an emulator, whatever the environment says about regions and credentials."""
    client: DynamoDBClient = boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64),
    )
    return client


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def absent(reason: str) -> None:
    """Skips the test; in CI, fails it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _started() -> tuple[subprocess.Popen[str], str]:
    """Starts an emulator, and waits until it says that it listens: another process may take the free port meanwhile,
    since tests run side by side."""
    said = ""
    for _ in range(STARTS_MAX):
        command: list[str | Path] = [DYNOXIDE, "serve", "--port", str(free_port())]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # its users get the Ctrl-C, and stop it when they are done
        killer = threading.Timer(START_SECONDS, process.kill)
        killer.start()
        assert process.stderr is not None
        said = process.stderr.readline()
        killer.cancel()
        if address := re.search(r"listening on (http://\S+)", said):
            return process, address[1]
        _stop(process)
    pytest.fail(f"the emulator does not listen; it says: {said}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
