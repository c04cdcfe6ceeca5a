"""The wheel has one package, and brings all that it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from chalicelib import VERSION
from hatch_build import rewritten
from tests.package.conftest import Installed
from tests.support.emulators import ROOT

MEGABYTE = 1_000_000


def test_it_has_one_top_level_package_and_no_tests(installed: Installed) -> None:
    names = [Path(name) for name in zipfile.ZipFile(installed.wheel).namelist()]
    assert {name.parts[0] for name in names} == {"decant", f"decant_mq-{VERSION}.dist-info"}
    assert not [name for name in names if "tests" in name.parts or "__pycache__" in name.parts]
    assert {Path("decant/py.typed"), Path("decant/_engine/source/app.py")} <= {*names}


def test_it_is_small(installed: Installed) -> None:
    assert installed.wheel.stat().st_size < 3 * MEGABYTE


def test_nothing_in_it_imports_a_name_that_it_does_not_have(installed: Installed) -> None:
    """But for the copy that Lambda runs, where the names are top-level."""
    archive = zipfile.ZipFile(installed.wheel)
    ours = [name for name in archive.namelist() if name.endswith(".py") and "/source/" not in name]
    for name in ours:
        text = archive.read(name).decode()
        assert not re.search(r"^\s*(?:from|import) (?:chalicelib|local|infra|spark)\b", text, re.M), name


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("from chalicelib import wiring", "from decant._engine.chalicelib import wiring"),
        ("    from local.memory import disk", "    from decant._engine.local.memory import disk"),
        ("import spark.frame as frame", "import decant._engine.spark.frame as frame"),
        ("from sparkling import water", "from sparkling import water"),
        ("import localized", "import localized"),
        ("from decant import local", "from decant import local"),
    ],
)
def test_imports_of_the_service_are_rewritten(text: str, becomes: str) -> None:
    assert rewritten(text) == becomes


def test_it_needs_click_alone_and_extras_want_what_the_clone_wants() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [wanted.partition(">")[0] for wanted in project["dependencies"]] == ["click"]
    extras = project["optional-dependencies"]
    service = _wanted("requirements-serve.txt")
    assert {*extras["serve"]} == service
    assert {*extras["deploy"]} == (_wanted("requirements.txt") - service) | _wanted("requirements-deploy.txt") | {
        "decant-mq[serve]"
    }
    assert {*extras["spark"]} == _wanted("requirements-spark.txt")
    assert service < _wanted("requirements.txt")


def _wanted(name: str) -> set[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return {line for line in lines if line and not line.startswith("-")}


def test_a_chalice_project_that_requires_it_keeps_its_own_chalicelib(installed: Installed, tmp_path: Path) -> None:
    files = {
        "app.py": "from chalice import Chalice\nfrom chalicelib import MINE\napp = Chalice(app_name='mine')\n"
        "@app.route('/')\ndef index():\n    return {'mine': MINE}\n",
        "chalicelib/__init__.py": "MINE = True\n",
        ".chalice/config.json": '{"version": "2.0", "app_name": "mine", "stages": {"dev": {}}}',
        "requirements.txt": f"{installed.wheel}\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    command = [str(Path(sys.executable).with_name("chalice")), "package", "out"]
    region = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run(command, cwd=tmp_path, env=region, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packaged = zipfile.ZipFile(tmp_path / "out/deployment.zip")
    assert packaged.read("chalicelib/__init__.py") == b"MINE = True\n"
    own = {name for name in packaged.namelist() if name.startswith("chalicelib/") and name.endswith(".py")}
    assert own == {"chalicelib/__init__.py"}
    assert "decant/__init__.py" in packaged.namelist()


def test_an_installed_command_says_which_extra_it_lacks(installed: Installed) -> None:
    done = installed.run("decant", "deploy", "--stage", "dev")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"Error: \w+ is missing; pip install 'decant-mq\[deploy\]' has it\n", done.stderr)


def test_its_version_is_that_of_the_service(installed: Installed) -> None:
    assert installed.run("decant", "--version").stdout == f"decant, version {VERSION}\n"
    shown = installed.run("python", "-c", "import decant; print(decant.__version__)")
    assert shown.stdout.strip() == VERSION
