"""Measures which tests and histories reach which line: once, and again when a function that they reach has changed."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from coverage import Coverage

from tests.mutants.changes import Mutant, Places

_AT_ONCE = 100
"""Runs between two saves."""
_SHOWN_EVERY = 10

Masks = dict[str, int]
"""The lines that each runner reaches, as bits: bit 0 is the first line of the function."""


class Reach:
    def __init__(self, file: Path) -> None:
        self._file = file
        kept = json.loads(file.read_text()) if file.exists() else {"runners": {}, "versions": {}, "functions": {}}
        self.runners: dict[str, float] = kept["runners"]
        """Tests or histories that pass, and the seconds that each took while it was measured."""
        self._versions: dict[str, str] = kept.get("versions", {})
        """The functions' versions when they were measured."""
        self._functions: dict[str, Masks] = {
            name: {runner: int(mask, 16) for runner, mask in masks.items()} for name, masks in kept["functions"].items()
        }

    def measure(self, paths: Sequence[Path], runs: Mapping[str, Callable[[], bool]]) -> None:
        """`runs`: by name; each returns whether it passed, and only then does it count. Leaves out those that are
        known."""
        self._forget_changed(paths)
        new = [name for name in runs if name not in self.runners]
        about, done = f"measuring what {self._file.stem} reach", 0
        if new:
            print(f"{about}: {len(runs) - len(new)} of {len(runs)} known already", file=sys.__stderr__)

        def shown(run: Callable[[], bool]) -> bool:
            nonlocal done
            done += 1
            if done % _SHOWN_EVERY == 0 or done == len(new):
                end = "\n" if done == len(new) else " "
                print(f"\r{about}: {done} of {len(new)}", end=end, file=sys.__stderr__, flush=True)
            return run()

        for first in range(0, len(new), _AT_ONCE):
            self._measure(paths, {name: partial(shown, runs[name]) for name in new[first : first + _AT_ONCE]})

    def _forget_changed(self, paths: Sequence[Path]) -> None:
        """Forgets changed functions, and all runners that have reached one of them."""
        versions = {
            f"{path}:{place.name}": place.version for path in paths for place in Places(path.read_text()).functions()
        }
        changed = [name for name in self._functions if versions.get(name) != self._versions.get(name)]
        gone = {runner for name in changed for runner in self._functions.pop(name)}
        self.runners = {runner: seconds for runner, seconds in self.runners.items() if runner not in gone}
        for masks in self._functions.values():
            for runner in gone & masks.keys():
                del masks[runner]
        self._versions = versions

    def _measure(self, paths: Sequence[Path], runs: dict[str, Callable[[], bool]]) -> None:
        kept = [str(path.resolve()) for path in paths]
        coverage = Coverage(data_file=None, config_file=False, include=kept, concurrency=["greenlet", "thread"])
        coverage.set_option("run:disable_warnings", ["no-data-collected"])
        coverage.start()
        for name, run in runs.items():
            coverage.switch_context(name)
            began = time.process_time()
            if run():
                self.runners[name] = round(time.process_time() - began, 3)
        coverage.stop()
        for path in paths:
            self._note(path, coverage.get_data().contexts_by_lineno(str(path.resolve())))
        self._save()

    def _note(self, path: Path, reached: dict[int, list[str]]) -> None:
        places = Places(path.read_text())
        for line, names in reached.items():
            place = places.of(line)
            if place.is_function:
                masks = self._functions.setdefault(f"{path}:{place.name}", {})
                for name in names:
                    if name in self.runners:
                        masks[name] = masks.get(name, 0) | 1 << line - place.first_line

    def _save(self) -> None:
        functions = {
            name: {runner: f"{mask:x}" for runner, mask in masks.items()} for name, masks in self._functions.items()
        }
        kept = {"runners": self.runners, "versions": self._versions, "functions": functions}
        whole = self._file.with_suffix(".new")
        whole.write_text(json.dumps(kept))
        whole.replace(self._file)  # an interrupt leaves the earlier file

    def breadths(self) -> Counter[str]:
        """How many functions each runner reaches: those that reach few say most about them."""
        return Counter(name for masks in self._functions.values() for name in masks)

    def of(self, mutant: Mutant) -> list[str]:
        """The tests or histories that reach its line; for a line within a statement, the nearest line above. Code
        outside functions counts as reached by all that reach any function of the file."""
        if not mutant.place.is_function:
            near: dict[str, None] = {}
            for name, masks in self._functions.items():
                if name.startswith(f"{mutant.path}:"):
                    near |= dict.fromkeys(masks)
            return [*near]
        masks = self._functions.get(f"{mutant.path}:{mutant.place.name}", {})
        for line in range(mutant.line - mutant.place.first_line, -1, -1):
            if found := [name for name, mask in masks.items() if mask >> line & 1]:
                return found
        return [*masks]
