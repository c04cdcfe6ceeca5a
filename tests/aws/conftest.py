"""Fixtures of the deployment tests. These share one process, so that the emulator and the package are made once."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import packaging
from infra.packaging import Package
from infra.stage import read_stage
from tests.support import deployment
from tests.support import ministack as emulator
from tests.support.deployment import Deployment
from tests.support.ministack import REGION, Ministack


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    """An emulator of AWS, empty at first."""
    with emulator.ministack() as running:
        yield running


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of packages."""
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="session")
def package(packages: Path) -> Package:
    """The zip and the template of the stage dev."""
    return packaging.package(read_stage("dev"), [], REGION, packages)


@pytest.fixture(scope="session")
def deployed(ministack: Ministack, packages: Path) -> Deployment:
    """The stage `local`, deployed, with a first token that may do everything."""
    return deployment.deploy(ministack, packages).with_token(deployment.new_token(ministack, "first"))


@pytest.fixture(scope="session")
def delayed(deployed: Deployment) -> str:
    """The id of a message that is due in a second, in a topic without pops."""
    assert deployed.call("PUT", "/topics/later")[0] == 201
    status, stored = deployed.call("POST", "/topics/later/messages", {"messages": [{"body": "late", "delay_ms": 1000}]})
    assert (status, stored["messages"][0]["offset"]) == (200, None)
    return str(stored["messages"][0]["message_id"])


@pytest.fixture(scope="session")
def unpacked(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(package.code) as made:
        made.extractall(folder)
    return folder
