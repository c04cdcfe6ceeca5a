"""Runs the measured servers in processes of their own, on free ports of loopback, and always stops them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from chalicelib.core.base.limits import KIB
from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb import boto, client
from chalicelib.core.store.dynamodb.store import DynamoStore
from tests.support.emulators import DYNOXIDE, ROOT, dynoxide, free_port

START_SECONDS = 30
"""A slow machine imports moto for some seconds."""

STOP_SECONDS = 5

_OURS = ("AWS_", "DECANT_", "DATA", "PORT", "LOG")
TABLE = "decant-benchmark"

ELASTICMQ = ROOT / ".emulators/elasticmq"
"""Where `make bench` puts its jars."""

LOCALSTACK = ROOT / ".emulators/localstack"
"""Where `make localstack` puts its venv."""

_MOTO = "import logging; logging.getLogger('werkzeug').setLevel('ERROR'); from moto.server import main; main()"
"""moto's server without its access log: Decant's server writes none either."""


class Unmeasurable(Exception):
    """The reason, in one line."""


def resident_bytes(pid: int | str = "self") -> int:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * KIB for line in status.splitlines() if line.startswith("VmRSS:"))


def demand_emulator() -> None:
    if not DYNOXIDE.exists():
        place = DYNOXIDE.relative_to(ROOT)
        raise Unmeasurable(f"the DynamoDB emulator is not at {place}: `make emulators` installs it (needs npm)")


def demand_moto_server() -> None:
    if importlib.util.find_spec("flask") is None or importlib.util.find_spec("flask_cors") is None:
        raise Unmeasurable("moto's server needs Flask: `make .venv/.dev` installs it")


def demand_ref(ref: str) -> None:
    named = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"]
    if subprocess.run(named, cwd=ROOT, capture_output=True, check=False).returncode:  # noqa: S603
        raise Unmeasurable(f"git has no {ref!r} to measure against")


@contextmanager
def emulated_store() -> Iterator[DynamoStore]:
    """The store as it is deployed, on an emulator of its own."""
    demand_emulator()
    settings = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    with dynoxide() as endpoint, mock.patch.dict(os.environ, settings, AWS_ENDPOINT_URL_DYNAMODB=endpoint):
        boto.ensure(boto.connect("dynamodb"), TABLE)
        yield DynamoStore(client.open_client(system(), os.environ), TABLE, system())


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """The CPU time that it has used since its start, in all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_decant(folder: Path = ROOT, **settings: str) -> Iterator[Running]:
    """Runs `python -m local` as `make run` does, with the memory store. `folder`: where its source is."""
    with _running([sys.executable, "-m", "local"], folder, PORT="0", **settings) as process:
        yield Running(_announced_port(process), process.pid)


@contextmanager
def decant(folder: Path = ROOT, **settings: str) -> Iterator[int]:
    """Does the same, and yields the port."""
    with running_decant(folder, **settings) as running:
        yield running.port


@contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """Checks out the source at a git ref into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "archive", ref], cwd=ROOT, capture_output=True, check=True)  # noqa: S603, S607
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)  # noqa: S603, S607
        yield Path(folder)


@contextmanager
def decant_on_emulator() -> Iterator[int]:
    """Runs the same on an emulator of its own."""
    demand_emulator()
    with dynoxide() as endpoint, decant(AWS_ENDPOINT_URL_DYNAMODB=endpoint) as port:
        yield port


@contextmanager
def decants_on_emulator(count: int) -> Iterator[list[Running]]:
    """Runs this many instances with one table."""
    demand_emulator()
    with dynoxide() as endpoint, ExitStack() as stack:
        yield [stack.enter_context(running_decant(AWS_ENDPOINT_URL_DYNAMODB=endpoint)) for _ in range(count)]


@contextmanager
def moto() -> Iterator[int]:
    """Runs moto's own server. Yields the port."""
    demand_moto_server()
    port = free_port()
    with _running([sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(port)]) as process:
        _wait_until_listening(process, port)
        yield port


def has_elasticmq() -> bool:
    return ELASTICMQ.exists() and shutil.which("java") is not None


@contextmanager
def elasticmq() -> Iterator[int]:
    """Runs ElasticMQ, with its queues in memory. Yields the port."""
    port = free_port()
    settings = {"rest-sqs.bind-port": port, "rest-sqs.bind-hostname": "127.0.0.1", "rest-stats.enabled": "false"}
    options = [f"-D{name}={value}" for name, value in settings.items()]
    with _running(["java", *options, "-cp", f"{ELASTICMQ}/*", "org.elasticmq.server.Main"]) as process:
        _wait_until_listening(process, port)
        yield port


def has_localstack() -> bool:
    return LOCALSTACK.exists()


@contextmanager
def localstack() -> Iterator[int]:
    """Runs LocalStack with SQS alone. Yields the port."""
    port = free_port()
    settings = {
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "SERVICES": "sqs",
        "STRICT_SERVICE_LOADING": "1",
        "EAGER_SERVICE_LOADING": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DISABLE_EVENTS": "1",
        "LS_LOG": "error",
    }
    program = [str(LOCALSTACK / "bin/python"), "-m", "localstack.runtime.main"]
    with tempfile.TemporaryDirectory() as home, _running(program, HOME=home, **settings) as process:
        _wait_until_listening(process, port)
        yield port


@contextmanager
def _running(command: list[str], folder: Path = ROOT, /, **settings: str) -> Iterator[subprocess.Popen[str]]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    process = subprocess.Popen(  # noqa: S603 - our own commands
        command, cwd=folder, env={**inherited, **settings}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        _stop(process)


def _announced_port(process: subprocess.Popen[str]) -> int:
    """Reads the port from the first line that the server prints."""
    assert process.stdout is not None
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    address = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
    killer.cancel()
    if address is None:
        raise Unmeasurable("`python -m local` did not start; it says why above")
    return int(address[1])


def _wait_until_listening(process: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Unmeasurable("a server to compare with did not start; it says why above")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
