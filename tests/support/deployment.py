"""Decant as a person deploys it: by the command, into an emulator of AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.ministack import ROOT, Ministack

ALL_RIGHTS = '[{"operations": ["produce", "consume", "read", "admin"], "topics": "*", "groups": "*"}]'

SIGNING_KEYS = ROOT / "infra" / "examples" / "signing-keys.yaml"

ANSWER_SECONDS = 60
"""Seconds that a request may take, including a cold start on a busy machine."""


@dataclass(frozen=True)
class Deployment:
    ministack: Ministack
    url: str
    rest_url: str
    sqs_url: str
    functions: dict[str, str]
    table: str
    token: str | None = None

    def with_token(self, token: str | None) -> Deployment:
        return replace(self, token=token)

    @property
    def by_rest_api(self) -> Deployment:
        return replace(self, url=self.rest_url)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status, and the JSON of the answer."""
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json", **headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read() or b"null")

    def invoke(self, function: str, event: object) -> Any:
        """Calls the function with this name in `app.py`, and returns its result."""
        answer = self.ministack.client("lambda").invoke(
            FunctionName=self.functions[function], Payload=json.dumps(event).encode()
        )
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())


def run(ministack: Ministack, *arguments: object, clone: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m infra` of a clone, as `make` runs it, with the emulator as AWS."""
    command = [sys.executable, "-m", "infra", *map(str, arguments)]
    environment = {**os.environ, **ministack.environment}
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)


def deploy(ministack: Ministack, packages: Path, *own: Path, clone: Path = ROOT) -> Deployment:
    """Writes the stage `local`, with signing keys of its own, and the deployer's other files."""
    options = [part for path in (SIGNING_KEYS, *own) for part in ("--infra", path)]
    done = run(ministack, "deploy", "--stage", "local", "--yes", "--out", packages, *options, clone=clone)
    assert done.returncode == 0, done.stderr
    return Deployment(ministack, **json.loads(done.stdout.splitlines()[-1]))


def new_token(ministack: Ministack, name: str, rights: str = ALL_RIGHTS) -> str:
    done = run(ministack, "token", "--stage", "local", "--name", name, "--rights", rights)
    assert done.returncode == 0, done.stderr
    token: str = json.loads(done.stdout)["token"]
    return token
