"""Changes to a stack: shown, carried out, refused. The stacks are small; `test_deployment` deploys all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from infra.errors import Stop
from infra.naming import with_names
from infra.stack import Change, Ending, Event, Stack
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
        self.events: list[Event] = []
        self._proposed = 0

    def propose(self, **resources: object) -> list[Change]:
        self._proposed += 1
        template = with_names({"Resources": resources}, {"AWS::StackName": self.stack.name})
        self._s3.put_object(Bucket=self.stack.name, Key="template", Body=json.dumps(template))
        url = f"{self._s3.meta.endpoint_url}/{self.stack.name}/template"
        return self.stack.propose(f"c{self._proposed}", url, {"stage": "test"})

    def execute(self) -> Ending:
        return self.stack.execute(f"c{self._proposed}", self.events.append)

    def discard(self) -> None:
        self.stack.discard(f"c{self._proposed}")


@pytest.fixture
def playground(ministack: Ministack, request: pytest.FixtureRequest) -> Iterator[Playground]:
    name = request.node.name.replace("_", "-").removeprefix("test-")[:40].strip("-")
    playground = Playground(ministack, name)
    yield playground
    playground.stack.delete(lambda _event: None)


def test_a_stack_is_made_changed_and_found_unchanged(playground: Playground) -> None:
    assert not playground.stack.exists()
    assert playground.propose(Queue=QUEUE) == [Change("Add", "AWS::SQS::Queue", "Queue")]
    assert not playground.stack.exists()
    assert playground.execute().is_success
    assert [kind for kind, name, _ in playground.stack.resources() if name == "Queue"] == ["AWS::SQS::Queue"]
    assert playground.propose(Queue=QUEUE) == []
    more = {**QUEUE, "Properties": {"VisibilityTimeout": 60}}
    assert set(playground.propose(Queue=more, Other=QUEUE)) == {
        Change("Modify", "AWS::SQS::Queue", "Queue"),
        Change("Add", "AWS::SQS::Queue", "Other"),
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
    assert playground.stack.delete(lambda _event: None).status == "DELETE_COMPLETE"
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
    ending = playground.stack.delete(lambda _event: None)
    skipped = [event.physical for event in ending.events if event.status == "DELETE_SKIPPED"]
    assert skipped == [playground.stack.name]
    assert playground.propose(Table=TABLE) == [Change("Import", "AWS::DynamoDB::Table", "Table")]
    assert playground.execute().is_success
    assert dynamodb.scan(TableName=playground.stack.name)["Items"] == [{"pk": {"S": "kept"}}]


@pytest.mark.parametrize(
    ("change", "loses"),
    [
        (Change("Remove", "AWS::DynamoDB::Table", "Table"), True),
        (Change("Replace", "AWS::S3::Bucket", "Bodies"), True),
        (Change("Modify", "AWS::DynamoDB::Table", "Table"), False),
        (Change("Import", "AWS::DynamoDB::Table", "Table"), False),
        (Change("Replace", "AWS::Lambda::Function", "Pop"), False),
    ],
)
def test_changes_that_leave_messages_behind_are_known(change: Change, loses: bool) -> None:
    assert change.loses_messages is loses


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
