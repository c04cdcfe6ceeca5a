"""The package for Lambda."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from zstandard import backend_c  # type: ignore[attr-defined]

from infra import packaging
from infra.packaging import MACHINE, Package, is_wanted, stripped
from tests.support.ministack import ROOT

PACKAGE_BYTES_MAX = 5_000_000
"""A large package makes cold starts slow."""


def test_it_is_small(package: Package) -> None:
    assert package.code.stat().st_size <= PACKAGE_BYTES_MAX


def test_other_clones_make_the_same_bytes(package: Package, tmp_path: Path) -> None:
    """The clone has stray files. The test copies the installed packages, to save time: their versions are pinned."""
    for name in ("app.py", "requirements.txt", "constraints.txt", ".chalice", "chalicelib", "infra"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    installed = next(package.code.parent.parent.glob("installed-*"))
    shutil.copytree(installed, tmp_path / "packages" / installed.name)
    stray = tmp_path / "chalicelib/core/base/__pycache__/limits.cpython-311.pyc"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"old")
    (tmp_path / "chalicelib/notes.txt").write_text("to do")
    command = [sys.executable, "-m", "infra", "package", "--stage", "dev"]
    history = {**os.environ, "GIT_DIR": _git_folder(), "GIT_WORK_TREE": str(ROOT)}
    said = subprocess.run(command, cwd=tmp_path, env=history, capture_output=True, text=True, check=True).stdout
    assert package.hash in said
    assert (tmp_path / "packages/dev/code.zip").read_bytes() == package.code.read_bytes()


def _git_folder() -> str:
    command = ["git", "rev-parse", "--absolute-git-dir"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def test_a_commit_is_unknown_without_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "ROOT", tmp_path)
    assert packaging.commit() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packaging.commit() == ""


def test_what_is_kept_is_made_anew_when_other_files_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "_pip", lambda site: packaging._write(site / "some.py", b""))
    kept = packaging.install(tmp_path)
    assert packaging.install(tmp_path) == kept
    (tmp_path / "packaging.py").write_text("LEFT_OUT = ()")
    monkeypatch.setattr(packaging, "__file__", str(tmp_path / "packaging.py"))
    assert packaging.install(tmp_path) != kept


def test_another_process_may_have_put_it_there_meanwhile(tmp_path: Path) -> None:
    for name in ("made", "there"):
        packaging._write(tmp_path / name / "some.pyc", b"")
    packaging._move(tmp_path / "made", tmp_path / "there")
    with pytest.raises(OSError, match="No such file"):
        packaging._move(tmp_path / "none", tmp_path / "nowhere")


def test_versions_of_everything_installed_are_given(unpacked: Path) -> None:
    installed = (unpacked / "packages.txt").read_text().splitlines()
    given = (ROOT / "constraints.txt").read_text().splitlines()
    assert {_plain(name) for name in installed} == {_plain(line) for line in given if not line.startswith("#")}


def _plain(requirement: str) -> str:
    return requirement.replace("==", "-").replace("_", "-").lower()


def test_nothing_is_compiled_at_a_cold_start(unpacked: Path) -> None:
    """Python uses the byte code as it is: its flags say that it need not be compared."""
    for source in unpacked.rglob("*.py"):
        assert Path(importlib.util.cache_from_source(str(source))).exists(), source
    compiled = list(unpacked.rglob("*.pyc"))
    assert len(compiled) > 300
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {0b01}


def test_stack_traces_show_the_lines_of_the_app(unpacked: Path) -> None:
    assert (unpacked / "app.py").read_bytes() == (ROOT / "app.py").read_bytes()
    names = {path.relative_to(unpacked) for path in unpacked.glob("chalicelib/**/*.py")}
    assert names == {path.relative_to(ROOT) for path in ROOT.glob("chalicelib/**/*.py")}


def test_it_starts_without_anything_else(unpacked: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, '.'); import app, boto3, zstandard, orjson, jmespath, urllib3\n"
        "for name in ('dynamodb', 's3', 'lambda', 'ssm', 'secretsmanager'): boto3.client(name, 'eu-west-1')\n"
        "assert zstandard.decompress(zstandard.compress(b'x')) == b'x'\n"
        "print(*{module.__file__ for module in (app, boto3, zstandard, orjson, jmespath, urllib3)})"
    )
    command = [sys.executable, "-S", "-B", "-c", program]
    files = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=True).stdout.split()
    assert {Path(file).is_relative_to(unpacked) for file in files} == {True}


def test_binaries_are_for_lambda(unpacked: Path) -> None:
    binaries = [path.name for path in unpacked.rglob("*.so")]
    assert binaries
    assert [name for name in binaries if not name.endswith(f"-{MACHINE}-linux-gnu.so")] == []


def test_what_lambda_never_reads_is_left_out(unpacked: Path) -> None:
    top = {path.name for path in unpacked.iterdir()}
    assert top & {"pip", "setuptools", "yaml", "moto", "local", "tests", "bin"} == set()
    assert not any(name.endswith(".dist-info") for name in top)
    assert {path.name for path in (unpacked / "chalice").glob("*.py")} == {"__init__.py", "app.py"}


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("botocore/data/endpoints.json", True),
        ("botocore/data/dynamodb/2012-08-10/service-2.json.gz", True),
        ("botocore/data/ec2/2016-11-15/service-2.json.gz", False),
        ("botocore/data/dynamodb/2012-08-10/examples-1.json.gz", False),
        ("six-1.17.0.dist-info/RECORD", False),
        ("bin/jp.py", False),
        ("orjson/__init__.pyi", False),
        ("orjson/__init__.py", True),
    ],
)
def test_files_that_are_read_are_kept(path: str, kept: bool) -> None:
    assert is_wanted(path) is kept


def test_symbols_are_cut_off_a_binary() -> None:
    whole = Path(backend_c.__file__).read_bytes()
    if not whole.startswith(b"\x7fELF"):
        pytest.skip("the binaries of this machine are no ELF files")
    cut = stripped(whole)
    assert len(cut) < len(whole) / 5
    assert cut[64:] == whole[64 : len(cut)]
    assert stripped(cut) == cut
