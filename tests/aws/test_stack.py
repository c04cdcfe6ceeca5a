"""Changes to a stack: shown, carried out, refused. The stacks are small; `test_deployment` deploys all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra import deploying
from infra.console import Stop
from infra.stack import Ending, ResourceChange, Stack, StackEvent
from infra.templates import with_names
from tests.support.ministack import Ministack

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}}
TABLE = {
    "Type": "AWS::DynamoDB::Table",
    "DeletionPolicy": "Retain",
    "UpdateReplacePolicy": "Retain",
    "Properties": {
        "TableName": {"Ref": "AWS::StackName"},
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    },
}
TAKEN = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": {"Ref": "AWS::StackName"}}}


class Playground:
    """A stack whose template is given as resources."""

    def __init__(self, ministack: Ministack, name: str) -> None:
        self._s3 = ministack.client("s3")
        self._s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        self.stack = Stack(ministack.client("cloudformation"), name)
        self.events: list[StackEvent] = []
        self._proposed = 0

    def propose(self, **resources: object) -> list[ResourceChange]:
        self._proposed += 1
        return self.stack.propose(f"c{self._proposed}", self.upload(**resources), {"stage": "test"})

    def upload(self, **resources: object) -> str:
        """Returns the URL of the template."""
        template = with_names({"Resources": resources}, {"AWS::StackName": self.stack.name})
        self._s3.put_object(Bucket=self.stack.name, Key="template", Body=json.dumps(template))
        return f"{self._s3.meta.endpoint_url}/{self.stack.name}/template"

    def execute(self) -> Ending:
        return self.stack.execute(f"c{self._proposed}")(self.events.append)

    def delete(self) -> Ending:
        return self.stack.delete()(self.events.append)

    def discard(self) -> None:
        self.stack.discard(f"c{self._proposed}")


@pytest.fixture
def playground(ministack: Ministack, request: pytest.FixtureRequest) -> Iterator[Playground]:
    name = request.node.name.replace("_", "-").removeprefix("test-")[:40].strip("-")
    playground = Playground(ministack, name)
    yield playground
    playground.delete()


def test_a_stack_is_made_changed_and_found_unchanged(playground: Playground) -> None:
    assert not playground.stack.exists()
    assert playground.propose(Queue=QUEUE) == [ResourceChange("Add", "AWS::SQS::Queue", "Queue")]
    assert not playground.stack.exists()
    assert playground.execute().is_success
    assert [kind for kind, name, _ in playground.stack.resources() if name == "Queue"] == ["AWS::SQS::Queue"]
    assert playground.propose(Queue=QUEUE) == []
    more = {**QUEUE, "Properties": {"VisibilityTimeout": 60}}
    assert set(playground.propose(Queue=more, Other=QUEUE)) == {
        ResourceChange("Modify", "AWS::SQS::Queue", "Queue"),
        ResourceChange("Add", "AWS::SQS::Queue", "Other"),
    }
    playground.events.clear()
    assert playground.execute().status == "UPDATE_COMPLETE"
    assert "CREATE_COMPLETE" not in {event.status for event in playground.events if event.name == "Queue"}


def test_what_is_declined_leaves_nothing(playground: Playground) -> None:
    playground.propose(Queue=QUEUE)
    playground.discard()
    assert playground.stack.status() in ("", "DELETE_COMPLETE")
    assert playground.propose(Queue=QUEUE)


def test_what_nobody_answered_is_proposed_again(playground: Playground) -> None:
    playground.propose(Queue=QUEUE)
    assert playground.propose(Queue=QUEUE)
    assert playground.execute().is_success


def test_a_failed_change_says_why_and_is_rolled_back(playground: Playground) -> None:
    playground.propose(Queue=QUEUE)
    playground.execute()
    playground.propose(Queue={**QUEUE, "Properties": {"VisibilityTimeout": 60}}, Taken=TAKEN)
    ending = playground.execute()
    assert ending.is_rolled_back
    assert not ending.is_success
    assert f"'{playground.stack.name}' already exists" in playground.stack.cause(ending)
    assert playground.propose(Queue=QUEUE) == []


def test_a_stack_that_was_never_made_must_be_removed_first(playground: Playground) -> None:
    playground.propose(Queue=QUEUE, Taken=TAKEN)
    assert not playground.execute().is_success
    with pytest.raises(Stop, match=r"is ROLLBACK_COMPLETE: its creation failed; remove it with make undeploy"):
        playground.propose(Queue=QUEUE)
    assert playground.delete().status == "DELETE_COMPLETE"
    assert playground.propose(Queue=QUEUE)


def test_a_template_that_is_none_is_refused_in_one_line(playground: Playground) -> None:
    with pytest.raises(Exception, match="Nowhere") as refused:
        playground.propose(Queue={"Type": "AWS::Nowhere::Queue"})
    assert "\n" not in str(refused.value)


def test_a_table_is_kept_and_taken_in_again(playground: Playground, ministack: Ministack) -> None:
    dynamodb = ministack.client("dynamodb")
    playground.propose(Table=TABLE)
    playground.execute()
    dynamodb.put_item(TableName=playground.stack.name, Item={"pk": {"S": "kept"}})
    ending = playground.delete()
    skipped = [event.physical for event in ending.events if event.status == "DELETE_SKIPPED"]
    assert skipped == [playground.stack.name]
    assert playground.propose(Table=TABLE) == [ResourceChange("Import", "AWS::DynamoDB::Table", "Table")]
    assert playground.execute().is_success
    assert dynamodb.scan(TableName=playground.stack.name)["Items"] == [{"pk": {"S": "kept"}}]


@pytest.mark.parametrize(
    ("change", "loses"),
    [
        (ResourceChange("Remove", "AWS::DynamoDB::Table", "Table"), True),
        (ResourceChange("Replace", "AWS::S3::Bucket", "Bodies"), True),
        (ResourceChange("Remove", "AWS::SQS::Queue", "OrdersQueue"), True),
        (ResourceChange("Remove", "AWS::Kinesis::Stream", "ClicksStream"), True),
        (ResourceChange("Remove", "AWS::SecretsManager::Secret", "SigningKeys"), True),
        (ResourceChange("Modify", "AWS::DynamoDB::Table", "Table"), False),
        (ResourceChange("Import", "AWS::DynamoDB::Table", "Table"), False),
        (ResourceChange("Replace", "AWS::Lambda::Function", "Pop"), False),
    ],
)
def test_changes_that_leave_messages_behind_are_known(change: ResourceChange, loses: bool) -> None:
    assert change.loses_messages is loses


class Lagging:
    """A CloudFormation client that returns the earlier status for some polls, as eventual consistency may."""

    def __init__(self, real: Any, looks: int) -> None:
        self._real, self._looks = real, looks
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute_change_set(self, **names: str) -> None:
        self._known = self._real.describe_stacks(StackName=names["StackName"])
        self._events = self._real.describe_stack_events(StackName=names["StackName"])
        self._real.execute_change_set(**names)

    def describe_stacks(self, **names: str) -> Any:
        return self._known if self._is_behind() else self._real.describe_stacks(**names)

    def get_paginator(self, name: str) -> Any:
        if name == "describe_stack_events" and self._known and self._looks >= 0:
            return self
        return self._real.get_paginator(name)

    def paginate(self, **_names: str) -> list[Any]:
        return [self._events]

    def _is_behind(self) -> bool:
        self._looks -= bool(self._known)
        return bool(self._known) and self._looks >= 0


def test_a_status_of_before_does_not_end_the_wait(playground: Playground, ministack: Ministack) -> None:
    playground.propose(Queue=QUEUE)
    playground.execute()
    playground.stack = Stack(Lagging(ministack.client("cloudformation"), 2), playground.stack.name)
    playground.propose(Queue={**QUEUE, "Properties": {"VisibilityTimeout": 60}})
    assert playground.execute().status == "UPDATE_COMPLETE"


def test_a_refusal_is_told_as_one_and_leaves_no_change_set(
    playground: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_names: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "ExecuteChangeSet")

    monkeypatch.setattr(playground.stack._client, "execute_change_set", refuse)
    with pytest.raises(ClientError, match="not allowed"):
        deploying._change(playground.stack, playground.upload(Queue=QUEUE), {}, says_yes=True)
    assert playground.stack.status() in ("", "DELETE_COMPLETE")


def test_a_table_of_another_name_is_seen_to_be_replaced(playground: Playground) -> None:
    playground.propose(Table=TABLE)
    playground.execute()
    other = {**TABLE, "Properties": {**TABLE["Properties"], "TableName": "other"}}  # type: ignore[dict-item]
    assert [change.loses_messages for change in playground.propose(Table=other)] == [True]


def test_names_are_written_out_only_where_all_is_known() -> None:
    known = {"AWS::StackName": "decant-dev", "AWS::Region": "eu-central-1"}
    names = [
        {"Ref": "AWS::StackName"},
        {"Fn::Sub": "${AWS::StackName}-${AWS::Region}"},
        {"Fn::Sub": "${AWS::StackName}-${Other}"},
        "mine",
    ]
    kept = {f"R{at}": {"DeletionPolicy": "Retain", "Properties": {"BucketName": name}} for at, name in enumerate(names)}
    passing = {"Properties": {"BucketName": {"Ref": "AWS::StackName"}}}
    resources = with_names({"Resources": {**kept, "Passing": passing}}, known)["Resources"]
    assert [resources[name]["Properties"]["BucketName"] for name in kept] == [
        "decant-dev",
        "decant-dev-eu-central-1",
        names[2],
        "mine",
    ]
    assert resources["Passing"] == passing
