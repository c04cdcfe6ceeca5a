"""`python -m infra`: its messages when it cannot work."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from infra import deployed
from infra.__main__ import main
from tests.support.ministack import Ministack

ALL = ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture(autouse=True)
def _nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ALL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def _said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code, and the one line of output."""
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return code, said.err


@pytest.mark.parametrize("command", ["deploy", "undeploy"])
def test_without_a_region_it_says_so(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, said = _said(capsys, command, "--stage", "dev")
    assert (code, said.split(";")[0]) == (1, "decant: no region is set")


@pytest.mark.parametrize("command", ["deploy", "undeploy"])
def test_without_credentials_it_says_so(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, said = _said(capsys, command, "--stage", "dev", "--region", "eu-central-1")
    assert (code, said.split(";")[0]) == (1, "decant: there are no credentials of AWS")


def test_an_unknown_profile_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert _said(capsys, "deploy", "--stage", "dev") == (
        1,
        "decant: The config profile (nobody) could not be found\n",
    )


@pytest.mark.parametrize("command", ["package", "deploy", "undeploy"])
def test_an_unknown_stage_is_refused(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, said = _said(capsys, command, "--stage", "stagging")
    assert code == 1
    assert said.startswith("decant: there is no stage 'stagging'; stages are dev, local, prod")


@pytest.mark.parametrize(
    "arguments",
    [[], ["destroy"], ["deploy"], ["deploy", "--stage"], ["package", "--stage", "dev", "--yes"]],
)
def test_wrong_arguments_end_with_64(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, said = _said(capsys, *arguments)
    assert code == 64
    assert said.endswith("; --help says more\n")


def test_a_missing_file_of_the_deployer_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said = _said(capsys, "package", "--stage", "dev", "--infra", str(tmp_path / "mine.yaml"))
    assert code == 1
    assert f"cannot read {tmp_path}/mine.yaml" in said


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://127.0.0.1:9", 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"'),
        ("localhost:4566", "AWS_ENDPOINT_URL must be a URL"),
    ],
)
def test_an_endpoint_that_is_none_or_does_not_answer_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, endpoint: str, told: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr("infra.aws.TRIES", 1)
    code, said = _said(capsys, "undeploy", "--stage", "dev", "--region", "eu-central-1")
    assert (code, told in said) == (1, True)


def test_a_token_is_made_where_the_stage_is_and_not_where_the_shell_points(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DECANT_TABLE", "DECANT_SIGNING_KEY", "AWS_ENDPOINT_URL_DYNAMODB"):
        monkeypatch.setenv(name, "local")
    for name in ("DECANT_LOG", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "before")  # so that it is restored
    aws = Mock(region="eu-central-1")
    aws.client().get_function_configuration.return_value = {"Environment": {"Variables": {"DECANT_TABLE": "deployed"}}}
    deployed._act_as(aws, "api")
    ours = {name: value for name, value in os.environ.items() if name.startswith("DECANT_")}
    assert ours == {"DECANT_TABLE": "deployed", "DECANT_LOG": "off"}
    assert "AWS_ENDPOINT_URL_DYNAMODB" not in os.environ


def test_removing_what_is_not_there_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ministack: Ministack
) -> None:
    for name, value in ministack.environment.items():
        monkeypatch.setenv(name, value)
    assert _said(capsys, "undeploy", "--stage", "prod", "--yes") == (
        0,
        "there is no stack decant-prod in eu-central-1\n",
    )
