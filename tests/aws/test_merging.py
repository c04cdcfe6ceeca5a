"""Templates in YAML, laid over each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.console import Stop
from infra.templates import load, merged


def _loaded(folder: Path, text: str) -> dict[str, object]:
    (folder / "part.yaml").write_text(text)
    return load(folder / "part.yaml")


def test_dicts_are_merged_and_lists_replaced() -> None:
    below = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merged(below, {"a": {"y": [3], "z": {"new": True}}}) == {"a": {"x": 1, "y": [3], "z": {"new": True}}, "b": 1}
    assert below == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


def test_a_null_removes_a_key_that_may_be_absent() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"x": None, "never": None}}) == {"a": {"y": 2}}


def test_a_dict_replaces_a_value_and_a_value_a_dict() -> None:
    assert merged({"a": 1, "b": {"x": 1}}, {"a": {"Ref": "Table"}, "b": "text"}) == {"a": {"Ref": "Table"}, "b": "text"}


def test_short_forms_are_written_out(tmp_path: Path) -> None:
    text = "a: !Ref Table\nb: !GetAtt Table.Arn\nc: !Sub '${A}-x'\nd: !Join ['-', [!Ref A, b]]\ne: !If [C, !Ref B, 1]\n"
    assert _loaded(tmp_path, text) == {
        "a": {"Ref": "Table"},
        "b": {"Fn::GetAtt": ["Table", "Arn"]},
        "c": {"Fn::Sub": "${A}-x"},
        "d": {"Fn::Join": ["-", [{"Ref": "A"}, "b"]]},
        "e": {"Fn::If": ["C", {"Ref": "B"}, 1]},
    }


def test_versions_of_policies_are_no_dates(tmp_path: Path) -> None:
    assert _loaded(tmp_path, "Version: 2012-10-17\n") == {"Version": "2012-10-17"}


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert _loaded(tmp_path, "# nothing yet\n") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a: [1", "is no YAML"), ("- a\n- b\n", "must be a mapping"), ("a: !!python/object:os.system x", "is no YAML")],
)
def test_files_that_are_no_templates_are_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(Stop, match=rf"part\.yaml {reason}") as stopped:
        _loaded(tmp_path, text)
    assert "\n" not in str(stopped.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"cannot read .*none\.yaml"):
        load(tmp_path / "none.yaml")
