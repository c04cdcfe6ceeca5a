"""The lint of English: which sentences count, and when it fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import english
from tests.english import Found, in_code, in_document, in_markdown, in_tree, lowered, new_in, risen

BAD = Found("docs", "docs/a.md", "What is due counts.")


@pytest.mark.parametrize(
    "sentence",
    [
        "What is due counts.",
        "Of XML it takes as many bytes.",
        "**Whoever may call** gets an answer.",
        "Who asked is told.",
        "The answer goes to whoever asked.",
        "It belongs to the log, by who came first.",
        "A pop takes its share of what is due.",
        "The caller is told that no reply came.",
        "It reads fewer messages than was asked for.",
    ],
)
def test_headless_clauses_bare_pronouns_and_passives_without_actor_count(sentence: str) -> None:
    assert in_markdown(sentence) == in_markdown(f"A call returns.\n{sentence} Nothing follows.") == [sentence]


@pytest.mark.parametrize(
    "text",
    [
        "What is due?",
        "Who decides on what is due?",
        "The two cannot be told apart. It ends when it is told to. The log says what is due, and what it asked for.",
        "Callers who share an instance share its caches. The log says who called, and what it cost.",
        "# What is promised\n\n    What is code\n\n```\nOf code, nothing counts.\n```",
        "It sends `What is quoted`, by `whoever`.",
        "Offsets are dense. Whole segments stay.",
    ],
)
def test_questions_headings_code_and_relative_clauses_do_not_count(text: str) -> None:
    assert in_markdown(text) == []


def test_items_of_lists_and_cells_of_tables_are_sentences() -> None:
    assert in_markdown("- a list\n- What waits\n\n| a | Of b |\n| --- | --- |\n| Who c | d |") == [
        *("What waits", "Of b", "Who c")
    ]


def test_docstrings_and_comments_are_told_apart_from_texts_of_errors() -> None:
    source = '''
"""Does something.

Fields:
    at_ms: What is stored.
"""
LIMIT = 3  \x23 Of all limits
"""Who is limited."""
\x23 A comment that goes on. What
\x23 is on the next line counts.
raise ValueError("What is given is odd")
'''
    told, shown = in_code(source)
    assert sorted(told) == ["Of all limits", "What is on the next line counts.", "What is stored.", "Who is limited."]
    assert shown == ["What is given is odd"]


def test_texts_of_the_document_count_under_their_place() -> None:
    document = {"paths": [{"get": {"summary": "What it returns.", "description": ["no text"], "name": "What"}}]}
    assert list(in_document(document)) == [Found("openapi", "/paths/0/get", "What it returns.")]


def test_each_file_counts_in_its_area(tmp_path: Path) -> None:
    code = '"""What it is."""\nprint("Of a text")\n'
    (tmp_path / "app.py").write_text(code)
    for folder in ("docs", "chalicelib", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(code)
        (tmp_path / folder / "a.md").write_text("Of a page.")
    assert sorted((one.area, one.place) for one in in_tree(tmp_path)) == [
        *(("chalicelib", place) for place in ("app.py", "chalicelib/a.py")),
        *(("docs", f"{folder}/a.md") for folder in ("chalicelib", "docs", "tests")),
        *(("errors", place) for place in ("app.py", "chalicelib/a.py")),
        ("tests", "tests/a.py"),
    ]


def test_a_number_may_fall_and_never_rise() -> None:
    assert risen([BAD], {"docs": 1}) == []
    assert risen([BAD, BAD], {"docs": 1}) == risen([BAD], {}) == ["docs"]
    assert lowered([BAD], {"docs": 3, "tests": 2}) == {"docs": 1, "tests": 0}
    assert lowered([BAD, BAD], {"docs": 1}) == {"docs": 1}
    assert lowered([BAD, BAD], {}) == {"docs": 2}


def test_only_sentences_that_are_new_in_the_area_are_named() -> None:
    other = BAD._replace(sentence="Of all, one.", place="docs/b.md")
    moved = [BAD._replace(place="docs/moved.md"), other._replace(area="tests")]
    assert new_in("docs", [BAD, other], moved) == ["docs/b.md: Of all, one."]


def test_the_lint_fails_naming_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        command = [english.GIT, "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "tests").mkdir()
    (tmp_path / "a.md").write_text("Of old, one.")
    (tmp_path / "app.py").touch()
    (tmp_path / english.NUMBERS).write_text("docs 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "begin")
    monkeypatch.setattr(english, "ROOT", tmp_path)
    monkeypatch.setattr(english, "document", dict)
    assert english.main() == 0
    (tmp_path / "a.md").write_text("Of old, one. What is new.")
    assert english.main() == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["a.md: What is new."]
    assert english.main("--lower") == 0
    assert (tmp_path / english.NUMBERS).read_text() == "docs 1\n"
    (tmp_path / "a.md").write_text("Nothing.")
    assert english.main() == 0
    assert capsys.readouterr().out == "english: --lower would store docs 0\n"
    assert english.main("--lower") == 0
    assert (tmp_path / english.NUMBERS).read_text() == "docs 0\n"
