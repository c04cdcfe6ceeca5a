"""Instances that a stage reserves, and those that the account has."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from infra import concurrency, deploying
from infra.console import Stop
from infra.deployed import Addresses
from infra.packaging import Package, complete
from infra.stage import STAGES, Stage, read_stage


def checked(reserved: dict[str, Any], total: int = 1_000, unreserved: int | None = None, held: int = 0) -> None:
    """`held`: by a function of the stack already."""
    limits = {"ConcurrentExecutions": total, "UnreservedConcurrentExecutions": total - held}
    if unreserved is not None:
        limits["UnreservedConcurrentExecutions"] = unreserved
    aws = Mock()
    aws.client().get_account_settings.return_value = {"AccountLimit": limits}
    aws.client().get_function_concurrency.return_value = {"ReservedConcurrentExecutions": held} if held else {}
    stack = Mock()
    stack.exists.return_value = held > 0
    stack.resources.return_value = [("AWS::Lambda::Function", "Pop", "decant-prod-pop"), ("Other", "A", "b")]
    functions = {name: {"Properties": {"ReservedConcurrentExecutions": number}} for name, number in reserved.items()}
    concurrency.check(aws, stack, {"Resources": {**functions, "Table": {"Type": "A"}}})


def test_what_the_account_has_not_is_refused_before_anything_is_made() -> None:
    with pytest.raises(
        Stop, match=r"\(400 for Pop, 100 for Request\), but of the 10 of this account 0 can be reserved"
    ):
        checked({"Pop": 400, "Request": 100}, total=10)
    with pytest.raises(Stop, match=r"ask AWS for more.*nothing has changed"):
        checked({"Pop": 901})


def test_what_leaves_a_hundred_to_others_is_reserved() -> None:
    checked({"Pop": 900})
    with pytest.raises(Stop, match="500 can be reserved"):
        checked({"Pop": 501}, unreserved=600)


def test_what_the_stack_has_reserved_counts_as_free() -> None:
    checked({"Pop": 900}, held=900)
    with pytest.raises(Stop, match="900 can be reserved"):
        checked({"Pop": 901}, held=900)


def test_an_account_of_few_instances_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    checked({}, total=10)
    assert "This account has 10 instances of functions, and each long poll occupies one" in capsys.readouterr().err
    checked({}, total=1_000)
    checked({"Pop": {"Ref": "Mine"}})
    assert capsys.readouterr().err == ""


def test_who_may_not_ask_for_the_limits_may_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    aws = Mock()
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "GetAccountSettings")
    aws.client().get_account_settings.side_effect = denied
    concurrency.check(aws, Mock(), {"Resources": {"Pop": {"Properties": {"ReservedConcurrentExecutions": 5}}}})
    assert "It is not known whether the account has the instances" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(STAGES.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_stage_reserves_what_nobody_asked_for(path: Any, package: Package) -> None:
    template = complete(package.template, read_stage(path.stem), [])
    assert concurrency._reserved(template) == {}


@pytest.mark.parametrize("stage", [Stage("small", "tokens"), Stage("large", "tokens", concurrency=400)])
def test_the_function_url_is_told_first_and_whether_anything_caps_it(
    stage: Stage, package: Package, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Addresses("https://function", "https://rest", "https://function", {}, "table")
    monkeypatch.setattr(deploying, "addresses", lambda _aws, _stack: found)
    deploying._tell(Mock(region="eu-central-1"), stage, Mock(), complete(package.template, stage, []))
    said = capsys.readouterr()
    first, second, *_ = said.err.splitlines()
    assert first.startswith("function URL: https://function")
    assert ("may use all instances" in first) == (stage.concurrency is None)
    assert second.startswith("REST API:     https://rest")
    assert json.loads(said.out)["url"] == "https://function"
