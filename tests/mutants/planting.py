"""Runs a mutant in place of the original, in this process and until it ends."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutants.changes import Mutant


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def is_hot(mutant: Mutant) -> bool:
    """Whether it can be planted after its module was imported: it changes the body of a function, not a definition."""
    return mutant.place.is_function


def plant(mutant: Mutant) -> None:
    """Call it before its module is imported; or after, if the mutant is hot."""
    if module_of(mutant.path) in sys.modules:
        _swap(mutant)
    else:
        sys.meta_path.insert(0, _Planted(mutant))


def _swap(mutant: Mutant) -> None:
    """Every function keeps its identity, so all that refers to it runs the mutant."""
    module = sys.modules[module_of(mutant.path)]
    name, line = mutant.place.name, mutant.place.first_line
    code = next(
        code for code in _codes(_compiled(mutant, module)) if (code.co_qualname, code.co_firstlineno) == (name, line)
    )
    for function in _functions()[module.__name__, name, line]:
        function.__code__ = code


@cache
def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """All functions, by module, name and first line."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            found.setdefault((each.__module__, code.co_qualname, code.co_firstlineno), []).append(each)
    return found


def freeze() -> None:
    """Mutants change what is imported before this call; a fork copies none of it."""
    gc.unfreeze()
    _functions.cache_clear()
    _functions()
    gc.collect()
    gc.freeze()


def _compiled(mutant: Mutant, module: ModuleType) -> CodeType:
    return compile(mutant.text, str(module.__file__), "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


class _Planted(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != module_of(self._mutant.path):
            return None
        file = str(self._mutant.path.resolve())
        return spec_from_file_location(name, file, loader=_Loader(name, file, self._mutant.text))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)
