"""The shape of the code base: imports run one way, each technology has one place, and nothing grows without end."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parent.parent

ROOMS = (
    "core.base",
    "core.telemetry",
    "core.table",
    "core.store",
    "local.memory",
    "core.catalogue",
    "core.access",
    "core.log",
    "core.cursors",
    "core.delays",
    "core.producing",
    "core.transactions",
    "core.dead_letters",
    "core.consuming",
    "core.requests",
    "core.reading",
    "core.admin",
    "core.moves",
    "core.upkeep",
    "push",
    "service",
    "api",
    "settings",
    "wiring",
    "hooks",
    "doors",
    "local",
    "app",
    "local.__main__",
)
"""From the ground up, by what happens to a message. A module imports from its own room or from below, never in a
circle. So the core knows no door."""

ADAPTERS = ("local.memory.store", "chalicelib.core.store.dynamodb")
"""Ways to store. They are chosen in one place, and do not know each other."""

TECHNOLOGIES = {
    "boto3": ("chalicelib.core.store.dynamodb", "local"),
    "botocore": ("chalicelib.core.store.dynamodb", "chalicelib.push.outside", "local"),  # there, its errors alone
    "mypy_boto3_dynamodb": ("chalicelib.core.store.dynamodb",),
    "mypy_boto3_s3": ("chalicelib.core.store.dynamodb",),
    "moto": (),  # in tests alone
    "urllib3": (),
    "chalice": ("chalicelib.doors", "app", "local"),
    "click": ("chalicelib.wiring",),
    "prometheus_client": ("chalicelib.core.telemetry.exposition",),
    "zstandard": ("chalicelib.core.log.segment",),
    "jmespath": ("chalicelib.core.catalogue.filter_expressions",),
    "time": (
        "chalicelib.core.base.runtime",
        *("chalicelib.core.store.dynamodb.client", "chalicelib.doors.sqs.sigv4"),  # to spell dates alone
        "chalicelib.doors.mqhttp.signatures",  # to read them
        "local",
    ),
    "datetime": (),
    "random": (),
    "secrets": (),
    "uuid": ("local",),
}
"""Packages that may be imported only there."""

PROTOCOLS = r"(?i:sqs|mqhttp|celery|chalice(?!lib))|HTTP"
"""Words that the core must not contain."""
CONTRACT = ('"sqs-queues"', '"for_sqs"', '["`]sqs:[a-z]+["`]')
"""But for what tables hold, and the properties that users read."""

TEST_NAME_MAX = 70
FUNCTION_LINES_MAX = 45

COLD_START_RATIO_MAX = 4
"""How much longer `import app` may take than `import chalice`, which is a good part of it; both as byte code, as they
are deployed."""
COLD_START_ROUNDS = 20
LATE = {
    "jmespath",
    "prometheus_client",
    "boto3",
    "botocore.session",
    "botocore.client",
    "moto",
    "s3transfer",
    "hypothesis",
    "pytest",
}
"""Packages that a cold start must not import, or not before they are needed."""
LATE_ROOMS = tuple(
    f"chalicelib.{room}."
    for room in (
        *("core.admin", "core.moves", "core.reading", "core.requests", "core.upkeep"),
        *("doors.sqs", "doors.mqhttp", "doors.ingest"),
    )
)
"""Rooms that the first call about them imports."""


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path)

    @property
    def part(self) -> str:
        """The room that it is in."""
        return room_of(self.name)

    @cached_property
    def imports(self) -> set[str]:
        """All of them, inside functions too, except those for type checks only."""
        return set(_imports(self.tree))

    def is_in(self, *places: str) -> bool:
        return any(self.name == place or self.name.startswith((f"{place}.", f"{place}_")) for place in places)


def room_of(name: str) -> str:
    parts = name.removeprefix("chalicelib.").split(".")
    if parts == ["core"]:
        return "chalicelib"
    return next(room for room in (".".join(parts[:2]), parts[0]) if room in (*ROOMS, parts[0]))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in NAMES else str(node.module)
    elif not _is_for_types(node):
        for child in ast.iter_child_nodes(node):
            yield from _imports(child)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _modules() -> list[Module]:
    paths = [ROOT / "app.py", *ROOT.glob("chalicelib/**/*.py"), *ROOT.glob("local/**/*.py")]
    return [Module(_name(path), path) for path in sorted(paths)]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


PIPELINE = [Module(_name(path), path) for path in sorted(ROOT.glob("spark/**/*.py"))]
"""It stands beside the layers: what the store writes, it reads, and one contract test joins them."""

PRODUCT = [Module(_name(path), path) for path in sorted(ROOT.glob("decant/**/*.py"))]
"""The package that users install: the client, the command line, and what of the service runs with them."""
HOSTS = (
    *("decant.testing", "decant.pytest_plugin", "decant.outbox"),
    *("decant.cli.serve", "decant.cli.deploy", "decant.cli.spark"),
)
"""They run the service, so they import it."""
EXTRAS = {
    "boto3": ("decant.functions",),
    "botocore": ("decant.functions",),
    "click": ("decant.cli",),
    "opentelemetry": ("decant.otel",),
    "pytest": ("decant.testing", "decant.pytest_plugin"),
}
"""Packages that `decant` imports beside the standard library, and where."""

TESTS = sorted(ROOT.glob("tests/**/test_*.py"))

NAMES = {_name(path) for path in [ROOT / "app.py", *ROOT.glob("chalicelib/**/*.py"), *ROOT.glob("local/**/*.py")]}
MODULES = _modules()
RANKS = {name: rank for rank, name in enumerate(ROOMS)}


def ours(module: Module) -> set[str]:
    return {name for name in module.imports if name in NAMES and name != "chalicelib"}


# -- layers -----------------------------------------------------------------------------------------------------------


def test_every_module_has_its_room() -> None:
    assert {module.part for module in MODULES} - {"chalicelib"} == set(RANKS)


def test_imports_run_one_way() -> None:
    for module in MODULES:
        if module.part == "chalicelib":
            assert ours(module) == set()
            continue
        rank = RANKS[module.part]
        for name in ours(module):
            part = room_of(name)
            assert RANKS[part] < rank or part == module.part, f"{module.name} imports {name}"


def test_the_core_names_no_protocol() -> None:
    for module in MODULES:
        if module.name.startswith("chalicelib.core.") and not module.is_in("chalicelib.core.store.dynamodb"):
            text = re.sub("|".join(CONTRACT), "", module.path.read_text())
            assert re.findall(PROTOCOLS, text) == [], module.name


def test_no_imports_go_in_a_circle() -> None:
    graph = {module.name: ours(module) for module in MODULES}
    while leaves := [name for name, imported in graph.items() if not imported & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert graph == {}


def test_stores_are_chosen_in_one_place_and_do_not_know_each_other() -> None:
    for module, adapter in product(MODULES, ADAPTERS):
        if module.is_in(adapter, "chalicelib.wiring", "chalicelib.settings", "chalicelib.hooks", "local"):
            continue
        if (module.name, adapter[:6]) == ("app", "local."):  # `chalice local` has no other place to start it
            continue
        used = {name for name in ours(module) if name == adapter or name.startswith((f"{adapter}.", f"{adapter}_"))}
        assert used == set(), f"{module.name} imports {used}"


def test_each_technology_has_its_place() -> None:
    for module in MODULES:
        for name in module.imports:
            technology = name.split(".")[0]
            if technology in TECHNOLOGIES:
                assert module.is_in(*TECHNOLOGIES[technology]), f"{module.name} imports {name}"


def test_only_the_runtime_makes_chance_and_only_few_read_the_environment() -> None:
    for module in MODULES:
        used = {
            node.attr
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        }
        allowed = {"urandom"} if module.name == "chalicelib.core.base.runtime" else set()
        if module.is_in("chalicelib.settings"):
            allowed = {"environ"}
        assert used <= allowed or module.is_in("local"), f"{module.name} uses {used} of os"


def test_only_the_data_dictionary_spells_keys() -> None:
    dictionary = next(module for module in MODULES if module.name == "chalicelib.core.table.keys")
    prefixes = tuple(text for text in _literals(dictionary.tree) if len(text) > 1 and text[-1] in "#/")
    assert {"log#", "group#", "cursor#", "dead#", "payload#", "payloads/", "groups#"} <= set(prefixes)
    for module in MODULES:
        if module != dictionary:
            spelled = [text for text in _literals(module.tree) if text.startswith(prefixes)]
            assert spelled == [], f"{module.name} spells {spelled}"
            lines = [node.lineno for node in ast.walk(module.tree) if _spells_a_key(node)]
            assert lines == [], f"{module.name} spells a key in lines {lines}"


def _spells_a_key(node: ast.AST) -> TypeGuard[ast.Call]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Key", "Range"):
        return any(isinstance(arg, ast.Constant | ast.JoinedStr) for arg in node.args)
    return False


def _literals(tree: ast.Module) -> list[str]:
    """The strings of the code, and the beginnings of those that are put together, without docstrings."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = {
        statement.value
        for node in ast.walk(tree)
        if isinstance(node, documented)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]


# -- the pipeline -----------------------------------------------------------------------------------------------------


def test_the_pipeline_and_the_service_share_no_code() -> None:
    for module in PIPELINE:
        assert _packages(module) & {"app", "chalicelib", "chalice", "local", "tests"} == set(), module.name
    for module in MODULES:
        assert _packages(module) & {"spark", "pyspark", "pyarrow", "pandas"} == set(), module.name


def test_transforms_open_no_session_and_no_files() -> None:
    forbidden = ("spark.frame", "spark.reading", "spark.unpacking", "spark.exporting", "spark.jobs")
    transforms = [module for module in PIPELINE if module.is_in("spark.transforms")]
    assert transforms
    for module in transforms:
        opened = [name for name in module.imports if name.startswith(forbidden)]
        assert opened == [], f"{module.name} imports {opened}"


def _packages(module: Module) -> set[str]:
    return {name.split(".")[0] for name in module.imports}


# -- the client -------------------------------------------------------------------------------------------------------


def test_the_product_imports_the_service_only_where_it_runs_it() -> None:
    for module in PRODUCT:
        ours = _packages(module) & {"app", "benchmarks", "chalicelib", "infra", "local", "spark", "tests"}
        assert ours == set() or module.is_in(*HOSTS), f"{module.name} imports {ours}"
    for module in [*MODULES, *PIPELINE]:
        assert "decant" not in _packages(module), module.name


def test_the_product_has_few_dependencies_each_in_one_place() -> None:
    for module in PRODUCT:
        if module.is_in(*HOSTS):
            continue
        for package in _packages(module) - {"decant"} - sys.stdlib_module_names:
            assert module.is_in(*EXTRAS.get(package, ())), f"{module.name} imports {package}"


def test_importing_the_product_imports_nothing_else() -> None:
    found = _python("import sys; before = {*sys.modules}; import decant; print(*{*sys.modules} - before)")
    assert set(found.split()) == {"__future__", "decant"}


# -- size -------------------------------------------------------------------------------------------------------------


def test_functions_stay_small() -> None:
    for module in [*MODULES, *PIPELINE, *PRODUCT]:
        if module.name == "decant.operations":  # generated: as long as the contract
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= FUNCTION_LINES_MAX, f"{module.name}.{node.name} has {lines} lines"


def test_modules_say_what_they_are_for() -> None:
    assert [module.name for module in [*MODULES, *PIPELINE, *PRODUCT] if not ast.get_docstring(module.tree)] == []


def test_the_verbs_of_the_port_say_what_they_are_for() -> None:
    port = next(module for module in MODULES if module.name == "chalicelib.core.store")
    verbs = [node for node in ast.walk(port.tree) if isinstance(node, ast.FunctionDef)]
    assert [verb.name for verb in verbs if not ast.get_docstring(verb)] == []


def test_names_of_tests_are_short_sentences() -> None:
    names = {name for path in TESTS for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert {name for name in names if len(name) > TEST_NAME_MAX} == set()


def test_the_matrix_of_features_names_every_file() -> None:
    matrix = (ROOT / "tests/README.md").read_text()
    names = {path.stem for path in TESTS if path.parent.name in ("budgets", "core", "http", "service")}
    assert {name for name in names if not re.search(rf"\b{name}`", matrix)} == set()


# -- cold start -------------------------------------------------------------------------------------------------------


def test_a_cold_start_imports_nothing_that_can_wait() -> None:
    found = _python("import sys, app; print(*sys.modules)")
    assert set(found.split()) & LATE == set()
    assert [name for name in found.split() if name.startswith(LATE_ROOMS)] == []


def test_a_cold_start_takes_little_longer_than_its_framework(tmp_path: Path) -> None:
    """Other tests run at the same time, and slow down one or the other: the fastest of each counts, and the rounds end
    when these are within the limit."""
    modules = ("app", "chalice.app")
    for module in modules:
        _import_seconds(module, tmp_path)  # writes the byte code
    ours = theirs = math.inf
    for _ in range(COLD_START_ROUNDS):
        seconds = [_import_seconds(module, tmp_path) for module in modules]
        ours, theirs = min(ours, seconds[0]), min(theirs, seconds[1])
        if ours <= COLD_START_RATIO_MAX * theirs:
            return
    pytest.fail(f"{ours:.3f} s, and {theirs:.3f} s of them for Chalice")


def _import_seconds(module: str, byte_code: Path) -> float:
    """Processor time, so that a busy machine matters less."""
    program = f"import time; began = time.process_time(); import {module}; print(time.process_time() - began)"
    return float(_python(program, PYTHONPYCACHEPREFIX=str(byte_code), PYTHONDONTWRITEBYTECODE=""))


def _python(program: str, **environment: str) -> str:
    command, environ = [sys.executable, "-c", program], os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
