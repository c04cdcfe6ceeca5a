"""moto's own tests of SQS, those that say nothing of moto itself, pass against a server on a port. `make test` gets
them from moto's source distribution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.serving import running

ROOT = Path(__file__).parents[2]
SUITE = ROOT / ".emulators/moto-sqs"
NAMES = Path(__file__).with_name("moto_tests.txt").read_text().splitlines()
_SECONDS = 600


@pytest.mark.skipif(not SUITE.exists() and not os.environ.get("CI"), reason="moto's tests are not installed: make test")
def test_motos_tests_of_sqs_pass() -> None:
    with running(DECANT_LOG="off") as server:
        asked = [sys.executable, "-m", "pytest", "-q", "-p", "to_the_door", "-p", "no:cacheprovider", "-W", "ignore"]
        apart = ["-c", os.devnull, "--rootdir", str(SUITE)]  # from the settings of our own
        settings = {
            "SQS_ENDPOINT": f"http://127.0.0.1:{server.port}",
            "AWS_ACCESS_KEY_ID": "123456789012",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(Path(__file__).parent),  # not of `tests`: that is what moto calls its own
        }
        environment = {**os.environ, **settings}
        done = subprocess.run(
            [*asked, *apart, *NAMES],
            cwd=SUITE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert f"{len(NAMES)} passed" in done.stdout
