"""Clients that generators make of the OpenAPI document, against `python -m local`. The one for Go is tried by hand, as
`docs/generated-clients.md` says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.doors.http.openapi import document
from tests.local.serving import Running, running
from tests.support.emulators import ROOT, absent

NODE_MODULES = ROOT / ".emulators/typescript/node_modules"
SCHEMA = ROOT / "docs/schema.d.ts"
PROGRAMS = ROOT / "tests/support"
SECONDS_MAX = 60

ROUND = {"ordered": "key", "taken": [["paid", "customer-42"]], "acked": 1, "missing": "TopicNotFound"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document as a file."""
    path = tmp_path_factory.mktemp("contract") / "openapi.json"
    path.write_text(json.dumps(document()))
    return path


def done(*command: str | Path, cwd: Path = ROOT, **settings: str) -> str:
    """The output of a program that succeeds."""
    environment = {**os.environ, **settings}
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def node(tool: str) -> Path:
    if not NODE_MODULES.exists():
        absent("openapi-typescript is not here: `make emulators` installs it")
    return NODE_MODULES / ".bin" / tool


def test_a_client_for_python_has_no_warnings_and_sends_takes_and_acks(
    server: Running, contract: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("post_hooks: []")  # by default it formats what it has made
    into = ("--output-path", tmp_path / "decant_client", "--meta", "none")
    generator = (sys.executable, "-m", "openapi_python_client", "generate", "--path", contract)
    done(*generator, *into, "--config", settings, "--fail-on-warning")
    said = done(sys.executable, PROGRAMS / "typed_client.py", server_of(server), PYTHONPATH=str(tmp_path))
    assert json.loads(said) == ROUND


def test_the_types_for_typescript_are_fresh(contract: Path) -> None:
    """`make types` renews them."""
    done(node("openapi-typescript"), contract, "--default-non-nullable=false", "--output", SCHEMA, "--check")


def test_a_strict_program_in_typescript_sends_takes_and_acks(server: Running, tmp_path: Path) -> None:
    compiler = node("tsc")
    for source in (SCHEMA, PROGRAMS / "typed_client.mts"):
        shutil.copy(source, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    done(
        compiler,
        "--strict",
        "--skipDefaultLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "typed_client.mts",
        cwd=tmp_path,
    )
    said: dict[str, Any] = json.loads(done("node", tmp_path / "typed_client.mjs", server_of(server)))
    assert said == ROUND


def server_of(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}"
