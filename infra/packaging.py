"""Makes the package and the template of a stage, the same bytes from every clone.

Chalice makes the template of functions and routes; parts, the stage and the deployer's own files are laid over it. pip
installs the packages of `requirements.txt` for Lambda's machines, on any machine, and fails if one is not available;
Chalice's own installer would warn and leave it out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path
from typing import Any

from infra import event_sources
from infra.console import Stop
from infra.stage import Stage
from infra.templates import PARTS, Template, load, load_template, merged, with_functions, without_alarms

_HERE = Path(__file__).parent.parent
_IN_WHEEL = _HERE / "source"
IS_INSTALLED = _IN_WHEEL.exists()
ROOT = _IN_WHEEL if IS_INSTALLED else _HERE
"""The deployable tree: the clone, or its copy in the wheel."""
PACKAGES = Path("packages") if IS_INSTALLED else ROOT / "packages"

APP = "decant"
CODE = "code.zip"
TEMPLATE = "template.json"

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Functions run on the version that packages them."""
MACHINE = "x86_64"
GLIBC_MIN, GLIBC = 17, 26 if sys.version_info < (3, 12) else 34
"""Minor versions of glibc: the least that wheels are built for, and Lambda's (Amazon Linux 2, 2023)."""

VERSIONS = "packages.txt"
"""The file in the zip that lists the installed packages."""
TASK = "/var/task"
"""The folder into which Lambda unpacks the zip, as stack traces show it."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first date that a zip file can have."""
MODE = 0o100644 << 16

AWS_SERVICES = ("dynamodb", "lambda", "s3", "secretsmanager", "ssm", "sts")
"""AWS services whose clients the functions use. botocore describes 400 more, in 14 of its 16 MB."""

LEFT_OUT = (
    "bin/*",
    "*.dist-info/*",
    "*.pyi",
    "*/py.typed",
    "*/__pycache__/*",
    "boto3/data/*",  # of its resources, which nothing uses
    "boto3/examples/*",
    "dateutil/zoneinfo/*.tar.gz",  # for machines without time zones
    "zstandard/_cffi*",  # for PyPy
    "zstandard/backend_cffi.py",
)

COMMIT_COMMAND = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
"""Twelve digits of the commit, followed by `-dirty` if its files have been changed."""


@dataclass(frozen=True)
class Package:
    code: Path
    template: Template

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.code.read_bytes()).hexdigest()


def package(stage: Stage, own: Sequence[Path], region: str, out: Path) -> Package:
    """`own`: the deployer's files, laid over the stage in this order."""
    complete({}, stage, own)  # a mistake in it fails before the work, not after
    out = out.resolve()
    folder = out / stage.name
    folder.mkdir(parents=True, exist_ok=True)
    installed = install(out)
    with tempfile.TemporaryDirectory(prefix="decant-package-") as temporary:
        project, task = Path(temporary) / "project", Path(temporary) / "task"
        generated, runtime = _by_chalice(stage, project, region)
        for name, content in runtime:
            _write(task / name, content)
        _compile(task)
        shutil.copytree(installed, task, dirs_exist_ok=True)
        _zip(task, folder / CODE)
    template = complete(with_functions(generated), stage, own)
    (folder / TEMPLATE).write_text(json.dumps(template, indent=1) + "\n")
    return Package(folder / CODE, template)


def complete(generated: Template, stage: Stage, own: Sequence[Path]) -> Template:
    """The template of Chalice, with these laid over it in this order: the parts, the stage's settings, capacity and
    template, the deployer's files. Raises Stop if one cannot be read, or a source of events is wrong."""
    access = PARTS.parent / "access" / f"{stage.access}.yaml"
    parts = [*sorted(PARTS.glob("*.yaml")), *([access] if access.exists() else [])]
    environment = {"Globals": {"Function": {"Environment": {"Variables": stage.environment}}}}
    mine = map(load_template, own)
    layers = [*map(load, parts), environment, stage.capacity, stage.template, *mine]
    whole: Template = reduce(merged, layers, generated)
    event_sources.check(whole)
    return whole if stage.has_alarms else without_alarms(whole)


# -- what others made -------------------------------------------------------------------------------------------------


def install(out: Path) -> Path:
    """A folder with the packages of `requirements.txt` as they go to Lambda. It is kept until that file, their versions
    or the way of making it change. Byte code alone: with sources, a fifth of the package would only serve stack
    traces."""
    wanted = [ROOT / "requirements.txt", ROOT / "constraints.txt", Path(__file__)]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in wanted) + PYTHON.encode()).hexdigest()[:16]
    folder = out / f"installed-{key}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=out) as temporary:
            site, slim = Path(temporary) / "site", Path(temporary) / "slim"
            _pip(site)
            _copy_wanted(site, slim)
            _compile(slim, "-b")
            for source in slim.rglob("*.py"):
                source.unlink()
            _move(slim, folder)
    return folder


def _move(made: Path, folder: Path) -> None:
    """Leaves a folder that another process has put there meanwhile: its content is the same."""
    try:
        os.rename(made, folder)
    except OSError:
        if not folder.exists():
            raise


def _copy_wanted(site: Path, slim: Path) -> None:
    versions = sorted(path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info"))
    _write(slim / VERSIONS, "".join(f"{version}\n" for version in versions).encode())
    for path in site.rglob("*"):
        name = path.relative_to(site).as_posix()
        if path.is_file() and is_wanted(name):
            _write(slim / name, _content(path))


def _pip(folder: Path) -> None:
    platforms = [f"manylinux_2_{minor}_{MACHINE}" for minor in range(GLIBC, GLIBC_MIN - 1, -1)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(folder), "--requirement", str(ROOT / "requirements.txt")]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON]
    for platform in (*platforms, f"manylinux2014_{MACHINE}"):
        command += ["--platform", platform]
    _run("pip", command, ROOT, dict(os.environ))


# -- what Chalice makes -----------------------------------------------------------------------------------------------


def _by_chalice(stage: Stage, project: Path, region: str) -> tuple[Template, list[tuple[str, bytes]]]:
    """The stage's template, and the files of its zip: the app, and the part of Chalice that runs in Lambda."""
    _copy_project(stage, project)
    command = [sys.executable, "-c", "import sys; from chalice.cli import main; sys.exit(main())"]
    command += ["package", "--stage", stage.name, str(project / "out")]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DECANT_"))}
    _run("chalice package", command, project, {**ours, "AWS_DEFAULT_REGION": region, "PYTHONDONTWRITEBYTECODE": "1"})
    template = json.loads((project / "out/sam.json").read_text())
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = CODE
    with zipfile.ZipFile(project / "out/deployment.zip") as made:
        return template, [(name, made.read(name)) for name in made.namelist()]


def _copy_project(stage: Stage, project: Path) -> None:
    """Copies the app into a folder of its own, without stray files of the clone, with a stage that Chalice knows, under
    the name of the app: the name in Chalice's own file only separates results of `chalice deploy`. Its policies are
    empty: the parts have them."""
    shutil.copytree(ROOT / "chalicelib", project / "chalicelib", ignore=_all_but_sources)
    shutil.copy(ROOT / "app.py", project)
    with (project / "chalicelib/__init__.py").open("a") as about:
        about.write(f"COMMIT = {commit()!r}\n")
    (project / "requirements.txt").touch()
    config: dict[str, Any] = json.loads((ROOT / ".chalice/config.json").read_text())
    one = {**config["stages"]["dev"], "autogen_policy": False, "iam_policy_file": "policy.json"}
    (project / ".chalice").mkdir()
    (project / ".chalice/config.json").write_text(json.dumps({**config, "app_name": APP, "stages": {stage.name: one}}))
    (project / ".chalice/policy.json").write_text(json.dumps({"Version": "2012-10-17", "Statement": []}))


def _all_but_sources(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not (Path(folder) / name).is_dir()] + ["__pycache__"]


# -- the zip ----------------------------------------------------------------------------------------------------------


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _compile(folder: Path, *options: str) -> None:
    """Compiles all modules. Without byte code every cold start would compile everything: the dates of a zip make byte
    code look stale, and Lambda's folder is read-only. So Python uses it unchecked. Runs in a process of its own, where
    hashes, and with them the order of constants, are always the same."""
    command = [sys.executable, "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += [*options, "-s", str(folder), "-p", TASK, str(folder)]
    _run("compileall", command, folder, {"PYTHONHASHSEED": "0"})


def _zip(task: Path, path: Path) -> None:
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as made:
        for name in sorted(file.relative_to(task).as_posix() for file in task.rglob("*") if file.is_file()):
            info = zipfile.ZipInfo(name, LONG_AGO)
            info.create_system, info.external_attr, info.compress_type = 3, MODE, zipfile.ZIP_DEFLATED
            made.writestr(info, (task / name).read_bytes(), compresslevel=9)
    os.replace(partial, path)


def _run(name: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
        raise Stop(f"{name} failed: {lines[-1]}")


# -- what of the installed packages goes to Lambda --------------------------------------------------------------------


def is_wanted(path: str) -> bool:
    """`path`: of a file, relative to where packages are installed."""
    parts = path.split("/")
    if parts[:2] == ["botocore", "data"] and len(parts) > 3:
        return parts[2] in AWS_SERVICES and not fnmatch(path, "*/examples-1.json*")
    return not any(fnmatch(path, pattern) for pattern in LEFT_OUT)


def _content(path: Path) -> bytes:
    """The bytes of a file; those of a binary without symbols and debug information."""
    read = path.read_bytes()
    return stripped(read) if path.suffix == ".so" and read.startswith(b"\x7fELF\x02\x01") else read


def stripped(elf: bytes) -> bytes:
    """A 64-bit shared object, up to the end of its last segment: sections serve only linkers and debuggers, and lie
    behind. Unlike `strip`, this gives the same bytes on every machine."""
    program_headers, size, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54)
    end = 0
    for at in range(program_headers, program_headers + size * count, size):
        offset, length = struct.unpack_from("<Q", elf, at + 8)[0], struct.unpack_from("<Q", elf, at + 32)[0]
        end = max(end, offset + length)
    cut = bytearray(elf[:end])
    struct.pack_into("<Q", cut, 40, 0)  # offset of the table of sections
    struct.pack_into("<HHH", cut, 58, 0, 0, 0)  # size of its entries, their number, index of the one with the names
    return bytes(cut)


# -- the commit -------------------------------------------------------------------------------------------------------


def commit() -> str:
    """Empty where git or its history is missing, and in an installed tool, which may stand in somebody's own clone."""
    if IS_INSTALLED:
        return ""
    try:
        done = subprocess.run(COMMIT_COMMAND, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
