"""Removing a stage leaves and lists the resources that hold messages; the next deployment takes them in again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import leftovers
from infra.stack import ResourceChange
from tests.support.deployment import SIGNING_KEYS, run
from tests.support.ministack import Ministack

SUFFIX = "000000000000-eu-central-1"
LEFT = (
    "dynamodb delete-table --table-name decant-dev ",
    f"s3 rb --force s3://decant-dev-bodies-{SUFFIX} ",
    f"s3 rb --force s3://decant-dev-exports-{SUFFIX} ",
    f"s3 rb --force s3://decant-dev-code-{SUFFIX} ",
)

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(ministack: Ministack) -> Command:
    """Runs a command on the stage dev."""
    return lambda name, *options: run(ministack, name, "--stage", "dev", "--yes", *options)


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """A template file with a bucket whose name is taken, so that its deployment fails."""
    own = tmp_path / "own.yaml"
    last = "Type: AWS::S3::Bucket, DependsOn: [Table, Bodies, Exports]"
    name = f"{{Fn::Sub: '${{AWS::StackName}}-code-{SUFFIX}'}}"
    own.write_text(f"Resources: {{Last: {{{last}, Properties: {{BucketName: {name}}}}}}}")
    return own


def test_what_is_left_is_told_and_taken_in_again(
    command: Command, ministack: Ministack, packages: Path, spoiled: Path
) -> None:
    failed = command("deploy", "--out", packages, "--infra", spoiled)
    assert failed.returncode == 1
    assert "make undeploy lists them and removes the rest, then deploy again" in failed.stderr
    assert _missing_in(command("undeploy").stderr) == []
    said = command("undeploy").stderr
    assert said.startswith("there is no stack decant-dev")
    assert _missing_in(said) == []
    ministack.client("dynamodb").put_item(TableName="decant-dev", Item={"pk": {"S": "kept"}, "sk": {"S": "kept"}})
    ministack.client("s3").put_object(Bucket=f"decant-dev-bodies-{SUFFIX}", Key="kept", Body=b"kept")
    again = command("deploy", "--out", packages, "--infra", SIGNING_KEYS)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("  Import   ") == 3
    assert f"This makes new keys for a table that is there: {leftovers.KEYS_END}" in again.stderr
    assert ministack.client("dynamodb").scan(TableName="decant-dev")["Count"] > 0
    assert ministack.client("s3").list_objects_v2(Bucket=f"decant-dev-bodies-{SUFFIX}")["KeyCount"] == 1
    asked, _, left = command("undeploy").stderr.partition("Removed.")
    assert leftovers.KEYS_END in asked
    assert leftovers.KEYS_END in left
    assert "secretsmanager delete-secret --secret-id " in left
    assert _missing_in(left) == []


def _missing_in(said: str) -> list[str]:
    """The leftovers that it does not tell."""
    return [each for each in LEFT if each not in said]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        (
            [
                ResourceChange("Import", leftovers.TABLE, "Table"),
                ResourceChange("Add", leftovers.SECRET, "SigningKeys"),
            ],
            True,
        ),
        (
            [ResourceChange("Add", leftovers.TABLE, "Table"), ResourceChange("Add", leftovers.SECRET, "SigningKeys")],
            False,
        ),
        ([ResourceChange("Import", leftovers.TABLE, "Table")], False),
    ],
)
def test_new_keys_for_a_table_of_before_are_told(
    changes: list[ResourceChange], ends: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    leftovers.tell_of_keys(changes)
    assert ("access keys of SQS and MQ clients end" in capsys.readouterr().err) is ends
