"""`AddPermission` and `RemovePermission` change the policy of a queue, which has no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sqs.client import Refused, Sqs

ARN = "arn:aws:sqs:us-east-1:000000000000:orders"
ONE, TWO = "111111111111", "222222222222"


def policy(sqs: Sqs, url: str) -> Any:
    shown = sqs.GetQueueAttributes(QueueUrl=url, AttributeNames=["Policy"])
    return json.loads(shown["Attributes"]["Policy"]) if shown else None


def add(sqs: Sqs, url: str, label: str, accounts: list[str], actions: list[str]) -> None:
    assert sqs.AddPermission(QueueUrl=url, Label=label, AWSAccountIds=accounts, Actions=actions) == {}


def test_a_permission_is_a_statement_of_the_policy(sqs: Sqs, url: str) -> None:
    add(sqs, url, "one", [ONE], ["*"])
    add(sqs, url, "two", [ONE, TWO], ["SendMessage", "ReceiveMessage"])
    one = {
        "Sid": "one",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ONE}:root"},
        "Action": "SQS:*",
        "Resource": ARN,
    }
    both = [f"arn:aws:iam::{account}:root" for account in (ONE, TWO)]
    two = {**one, "Sid": "two", "Principal": {"AWS": both}, "Action": ["SQS:SendMessage", "SQS:ReceiveMessage"]}
    about = {"Version": "2008-10-17", "Id": f"{ARN}/SQSDefaultPolicy"}
    assert policy(sqs, url) == {**about, "Statement": [one, two]}
    assert sqs.RemovePermission(QueueUrl=url, Label="one") == {}
    assert policy(sqs, url) == {**about, "Statement": [two]}


def test_a_queue_whose_last_permission_was_removed_has_no_policy(sqs: Sqs, url: str) -> None:
    add(sqs, url, "one", [ONE], ["*"])
    sqs.RemovePermission(QueueUrl=url, Label="one")
    assert policy(sqs, url) is None
    refused = sqs.refused("RemovePermission", QueueUrl=url, Label="one")
    assert refused.message == "Value one for parameter Label is invalid. Reason: can't find label."
    add(sqs, url, "two", [TWO], ["*"])
    assert policy(sqs, url)["Id"] == f"{ARN}/SQSDefaultPolicy"


@pytest.mark.parametrize("statement", [{"Sid": "mine"}, [{"Sid": "mine"}, "odd"]])
def test_the_rest_of_a_policy_that_was_given_stays(sqs: Sqs, url: str, statement: Any) -> None:
    given = {"Version": "2012-10-17", "Statement": statement}
    sqs.SetQueueAttributes(QueueUrl=url, Attributes={"Policy": json.dumps(given), "DelaySeconds": "3"})
    add(sqs, url, "one", [ONE], ["SendMessage"])
    kept = statement if isinstance(statement, list) else [statement]
    changed = policy(sqs, url)
    assert (changed["Version"], changed["Statement"][:-1]) == ("2012-10-17", kept)
    sqs.RemovePermission(QueueUrl=url, Label="mine")
    assert [each["Sid"] for each in policy(sqs, url)["Statement"] if isinstance(each, dict)] == ["one"]
    shown = sqs.GetQueueAttributes(QueueUrl=url, AttributeNames=["DelaySeconds"])
    assert shown["Attributes"] == {"DelaySeconds": "3"}


@pytest.mark.parametrize("depth", [200, 250, 252, 253, 254, 255, 260, 1_000])
def test_a_policy_that_is_taken_can_be_added_to(sqs: Sqs, url: str, depth: int) -> None:
    for deep in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        answer = sqs.ask("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": f'{{"Statement": {deep}}}'})
        assert answer.status == (200 if depth < 253 else 400)
        add(sqs, url, "one", [ONE], ["SendMessage"])
        sqs.RemovePermission(QueueUrl=url, Label="one")


INVALID = "InvalidParameterValue"


@pytest.mark.parametrize(
    ("label", "accounts", "actions", "status", "code", "text"),
    [
        ("one", [ONE], ["*"], 400, INVALID, "Value one for parameter Label is invalid. Reason: Already exists."),
        ("a b", [ONE], ["*"], 400, INVALID, "Value a b for parameter Label is invalid. Reason: Can only include"),
        ("x" * 81, [ONE], ["*"], 400, INVALID, f"Value {'x' * 81} for parameter Label is invalid."),
        ("two", [ONE], [], 400, "MissingParameter", "The request must contain the parameter Actions."),
        ("two", [ONE], ["*"] * 8, 403, "OverLimit", "8 Actions were found, maximum allowed is 7."),
        ("two", [ONE], ["CreateQueue"], 400, INVALID, "Value SQS:CreateQueue for parameter ActionName is invalid."),
        ("two", [], ["*"], 400, INVALID, "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."),
        ("two", ["x"], ["*"], 400, INVALID, "Value [x] for parameter PrincipalId is invalid."),
    ],
)
def test_what_is_no_permission_is_refused(
    sqs: Sqs, url: str, label: str, accounts: list[str], actions: list[str], status: int, code: str, text: str
) -> None:
    add(sqs, url, "one", [ONE], ["*"])
    before = policy(sqs, url)
    answer = sqs.refused("AddPermission", QueueUrl=url, Label=label, AWSAccountIds=accounts, Actions=actions)
    assert (answer.status, answer.code) == (status, code)
    assert answer.message.startswith(text)
    assert policy(sqs, url) == before


def test_a_policy_does_not_grow_without_end(sqs: Sqs, url: str) -> None:
    accounts = [f"{number:012}" for number in range(200)]
    add(sqs, url, "one", accounts, ["*"])
    answer = sqs.refused("AddPermission", QueueUrl=url, Label="two", AWSAccountIds=accounts, Actions=["*"])
    assert (answer.status, answer.code) == (403, "OverLimit")


def test_a_label_that_there_is_not_cannot_be_removed(sqs: Sqs, url: str) -> None:
    text = "Value one for parameter Label is invalid. Reason: can't find label."
    expected = Refused(400, "InvalidParameterValueException", "InvalidParameterValue", text)
    assert sqs.refused("RemovePermission", QueueUrl=url, Label="one") == expected
