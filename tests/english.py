"""Counts sentences that a reader has to translate. `make lint` fails where an area has more than `english.txt` allows.

python -m tests.english            # what `make lint` runs
python -m tests.english --list     # prints every sentence that counts
python -m tests.english --lower    # stores the numbers that have fallen, and those of new areas
"""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chalicelib.doors.http.openapi import document

ROOT = Path(__file__).parent.parent
NUMBERS = "tests/english.txt"
GIT = shutil.which("git") or "/bin/false"

CODE = ("benchmarks", "chalicelib", "decant", "examples", "infra", "local", "spark", "tests")
"""The docstrings and comments of each are an area. So are `docs`, `openapi`, and `errors`: all other texts of code."""

_HEADLESS = re.compile(r"[\"'(*_\d. -]*(What|Who|Whoever|Of)\b(?!.*\?$)")
"""At the beginning of a sentence, unless it is a question."""
_BARE_WHO = re.compile(r"\bwhoever\b|\b(as|at|by|for|from|of|than|to|with) who\b")
_WHAT_IS = re.compile(
    r"\b(as|at|by|for|from|in|into|of|on|than|to|with) what (is|are|was|were|has|had|may|can|could|cannot)\b(?!.*\?$)"
)
_IS_TOLD = re.compile(r"\b(is|are|was|were|be|been) (not |then )?(told\b(?! (apart|to)\b)|(said|asked for)\b)")
"""Passives that hide who speaks."""
_ANYWHERE = (_BARE_WHO, _WHAT_IS, _IS_TOLD)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z`])")
_FIELD = re.compile(r"^\s*\w+: +(?=[A-Z])", re.MULTILINE)
"""A docstring describes a field behind its name."""
_NOT_PROSE = re.compile(r"^(```.*?^```|    .*?$|#.*?$)", re.MULTILINE | re.DOTALL)
"""In Markdown, code and headings."""
_QUOTED = re.compile(r"`[^`]+`")
_PARAGRAPH_END = re.compile(r"\n\s*\n|^ *(?:[-*]|\d+\.) |\|", re.MULTILINE)
_COMMENT = re.compile(r"(?:^ *#.*\n)+|  # .*$", re.MULTILINE)


class Found(NamedTuple):
    area: str
    place: str
    sentence: str


def in_paragraph(text: str) -> list[str]:
    sentences = _SENTENCE_END.split(" ".join(text.split()))
    return [
        sentence
        for sentence in sentences
        if _HEADLESS.match(sentence) or any(pattern.search(sentence) for pattern in _ANYWHERE)
    ]


def in_prose(text: str) -> list[str]:
    return [found for paragraph in _PARAGRAPH_END.split(text) for found in in_paragraph(paragraph)]


def in_markdown(text: str) -> list[str]:
    return in_prose(_QUOTED.sub("`…`", _NOT_PROSE.sub("", text)))


def in_code(source: str) -> tuple[list[str], list[str]]:
    """The sentences of docstrings and comments, and those of other texts."""
    nodes = list(ast.walk(ast.parse(source)))
    documented = {node.value for node in nodes if isinstance(node, ast.Expr)}
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    told = [_FIELD.sub("\n\n", str(node.value)) for node in texts if node in documented]
    told += [re.sub(r"\s*#+ ?", " ", comment) for comment in _COMMENT.findall(source)]
    shown = [str(node.value) for node in texts if node not in documented]
    return [found for text in told for found in in_prose(text)], [found for text in shown for found in in_prose(text)]


def in_tree(root: Path) -> Iterator[Found]:
    """All but `openapi`, which only the service itself can tell."""
    for path in [*root.glob("*.md"), *root.glob("[a-z]*/**/*.md")]:
        yield from (Found("docs", str(path.relative_to(root)), found) for found in in_markdown(path.read_text()))
    for path in [root / "app.py", *(path for folder in CODE for path in (root / folder).rglob("*.py"))]:
        told, shown = in_code(path.read_text())
        place = path.relative_to(root)
        area = place.parts[0].replace("app.py", "chalicelib")
        yield from (Found(area, str(place), found) for found in told)
        yield from (Found("errors", str(place), found) for found in shown if area not in ("benchmarks", "tests"))


def in_document(part: Any, place: str = "") -> Iterator[Found]:
    """The sentences of an OpenAPI document."""
    for name, inner in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if name in ("description", "summary") and isinstance(inner, str):
            yield from (Found("openapi", place, found) for found in in_markdown(inner))
        yield from in_document(inner, f"{place}/{name}")


def when_stored() -> list[Found]:
    """The sentences of the commit that stored the numbers; none if git cannot tell."""
    packed = _git("archive", _git("log", "-1", "--format=%H", "--", NUMBERS).strip() or b"-")
    if not packed:
        return []
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as tree:
        tree.extractall(folder, filter="data")
        return list(in_tree(Path(folder)))


def _git(*arguments: str | bytes) -> bytes:
    return subprocess.run([GIT, *arguments], cwd=ROOT, capture_output=True, check=False).stdout


def risen(found: list[Found], numbers: dict[str, int]) -> list[str]:
    """The areas that have more sentences than are stored."""
    return [
        area for area, number in sorted(Counter(one.area for one in found).items()) if number > numbers.get(area, 0)
    ]


def lowered(found: list[Found], numbers: dict[str, int]) -> dict[str, int]:
    """The numbers to store now; none is higher than before."""
    now = Counter(one.area for one in found)
    return {area: min(now[area], numbers.get(area, now[area])) for area in sorted({*numbers, *now})}


def new_in(area: str, found: list[Found], before: Iterable[Found]) -> list[str]:
    known = {one.sentence for one in before if one.area == area}
    return [f"{one.place}: {one.sentence}" for one in found if one.area == area and one.sentence not in known]


def main(option: str = "") -> int:
    found = [*in_tree(ROOT), *in_document(document())]
    numbers = {area: int(number) for area, number in map(str.split, (ROOT / NUMBERS).read_text().splitlines())}
    if option == "--list":
        print(*(f"{one.area} {one.place}: {one.sentence}" for one in found), sep="\n")
    elif option == "--lower":
        (ROOT / NUMBERS).write_text("".join(f"{area} {n}\n" for area, n in lowered(found, numbers).items()))
    elif worse := risen(found, numbers):
        before = when_stored()
        for area in worse:
            print(
                f"english: {area} may have {numbers.get(area, 0)} sentences of these kinds (CONTRIBUTING.md). New are:"
            )
            print(*new_in(area, found, before), sep="\n")
        return 1
    elif fallen := sorted(lowered(found, numbers).items() - numbers.items()):
        print("english: --lower would store", *(f"{area} {number}" for area, number in fallen))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
