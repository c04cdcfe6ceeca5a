"""The outcome of each mutant: kept in a file from which a run continues, and reported."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.changes import Mutant

EXCUSED = Path(__file__).parent / "excused.txt"
"""Excuses for survivors: in each line an id, or between slashes a pattern of changes (`before => after`), and why they
may survive; or `open:` and their possible effect."""


STAGES = ("tests", "types", "histories")
"""Each stage judges the mutants that the ones before it did not notice."""


class Results:
    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self._known = {known["id"]: known for known in map(json.loads, lines)}

    def note(self, mutant: Mutant, stage: str, by: str | None) -> None:
        known = {"id": mutant.id, "version": mutant.version, "stage": stage, "by": by}
        self._known[mutant.id] = known
        with self._file.open("a") as file:
            file.write(json.dumps(known) + "\n")

    def forget_survivors(self, mutants: Sequence[Mutant]) -> None:
        """Those without an excuse are judged again."""
        excuses = Excuses()
        again = {mutant.id for mutant in mutants if not excuses.spare(mutant)}
        self._known = {id_: known for id_, known in self._known.items() if known["by"] or id_ not in again}
        self._file.write_text("".join(json.dumps(known) + "\n" for known in self._known.values()))

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        known = self._known.get(mutant.id)
        return known if known and known["version"] == mutant.version else None

    def lacks(self, mutant: Mutant, stage: str) -> bool:
        """Whether it has not been through this stage, nor been killed before."""
        known = self.of(mutant)
        return known is None or (known["by"] is None and STAGES.index(known["stage"]) < STAGES.index(stage))


class Excuses:
    def __init__(self, text: str | None = None) -> None:
        lines = (EXCUSED.read_text() if text is None else text).splitlines()
        told = [_EXCUSE.fullmatch(line) for line in lines if line and not line.startswith("#")]
        known = [(match["id"], match["pattern"]) for match in told if match and not match["reason"].startswith("open")]
        self._ids = {id_ for id_, _ in known if id_}
        self._patterns = [re.compile(pattern) for _, pattern in known if pattern]

    def spare(self, mutant: Mutant) -> bool:
        return mutant.id in self._ids or any(pattern.search(mutant.change) for pattern in self._patterns)


_EXCUSE = re.compile(r"(?:(?P<id>[0-9a-f]{8})|/(?P<pattern>.+)/) (?P<reason>.+)")


def counted(mutants: Sequence[Mutant], results: Results, survivors: Path) -> Counter[str]:
    """Counts mutants, by column. Writes the diffs of those that survive without an excuse, if there are any."""
    known = [(mutant, results.of(mutant)) for mutant in mutants]
    by = Counter[str](result["stage"] for _, result in known if result and result["by"] is not None)
    left = [mutant for mutant, result in known if result and result["by"] is None]
    excuses = Excuses()
    open_ = [mutant for mutant in left if not excuses.spare(mutant)]
    survivors.unlink(missing_ok=True)
    if open_:
        survivors.write_text("\n\n".join(mutant.diff for mutant in open_) + "\n")
    counts = {"mutants": len(known), "unjudged": len(known) - by.total() - len(left), "noticed": by.total()}
    return by + Counter(counts | {"excused": len(left) - len(open_), "open": len(open_)})


_COLUMNS = ("mutants", "unjudged", *STAGES, "noticed", "excused", "open")
HEADS = "".join((f"{'room':13}", *(f"{head:>10}" for head in _COLUMNS), f"{'of all':>10}{'of those not excused':>22}"))


def row(room: str, counts: Counter[str]) -> str:
    noticed, spared = counts["noticed"], counts["excused"]
    of_all, of_others = (_share(noticed, noticed + counts["open"] + some) for some in (spared, 0))
    return "".join((f"{room:13}", *(f"{counts[head]:10,}" for head in _COLUMNS), f"{of_all:>10}{of_others:>22}"))


def _share(some: int, all_: int) -> str:
    return f"{100 * some / all_:.1f} %" if all_ else "-"
