"""Lists the resources that stay when a stage is removed: all that hold messages, or keys without which messages are
worth nothing. Only a person removes these, with the commands printed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import Aws, is_missing
from infra.code_bucket import CodeBucket
from infra.console import say
from infra.packaging import complete
from infra.stack import ResourceChange, StackEvent
from infra.stage import Stage
from infra.templates import NAME_PROPERTIES, with_names

TABLE, BUCKET, SECRET = "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SecretsManager::Secret"

REMOVALS = {
    TABLE: "dynamodb delete-table --table-name ",
    "AWS::Kinesis::Stream": "kinesis delete-stream --stream-name ",
    BUCKET: "s3 rb --force s3://",
    "AWS::SQS::Queue": "sqs delete-queue --queue-url ",
    SECRET: "secretsmanager delete-secret --secret-id ",
}
"""By type: the command, before the name."""
UNPROTECT = "dynamodb update-table --no-deletion-protection-enabled --table-name "

KEYS_END = (
    "with new signing keys all access keys of SQS and MQ clients end, and all receipts and correlation ids that are "
    "out; infra/examples/signing-keys.yaml says how to name the old secret instead"
)

Left = tuple[str, str]
"""Its type and its name in AWS."""


def tell(aws: Aws, stage: Stage, events: Iterable[StackEvent]) -> None:
    """`events`: all of the stack. They lack resources that the stack found in place and did not take in, so `tell` also
    looks for those that the template names."""
    skipped = [(event.kind, event.physical) for event in events if event.status == "DELETE_SKIPPED"]
    named = [*_named(aws, stage), (BUCKET, CodeBucket(aws, stage).name)]
    left = [each for each in dict.fromkeys([*skipped, *named]) if each[0] in REMOVALS and _exists(aws, *each)]
    if not left:
        return
    say("The next deployment takes in again what the template names: its table, and the buckets of bodies and exports.")
    if any(kind == SECRET for kind, _ in left):
        say(f"It makes a new secret: {KEYS_END}.")
    say("To remove what is kept, with what it contains:")
    for kind, name in left:
        if kind == TABLE and _is_protected(aws, name):
            say(f"  aws {UNPROTECT}{name} --region {aws.region}")
        say(f"  aws {REMOVALS[kind]}{name} --region {aws.region}")


def tell_of_keys(changes: Sequence[ResourceChange]) -> None:
    """Says which keys end when an earlier table gets new signing keys."""
    made = {(change.action, change.kind) for change in changes}
    if {("Import", TABLE), ("Add", SECRET)} <= made:
        say(f"This makes new keys for a table that is there: {KEYS_END}.")


def pseudo_parameters(aws: Aws, stage: Stage) -> dict[str, str]:
    return {"AWS::StackName": stage.stack, "AWS::AccountId": aws.account, "AWS::Region": aws.region}


def _named(aws: Aws, stage: Stage) -> list[Left]:
    """The resources that the stage's template retains under known names."""
    resources = with_names(complete({}, stage, []), pseudo_parameters(aws, stage))["Resources"].values()
    retained = [resource for resource in resources if resource.get("DeletionPolicy") == "Retain"]
    return [(r["Type"], r["Properties"][name]) for r in retained for name in NAME_PROPERTIES if name in r["Properties"]]


def _exists(aws: Aws, kind: str, name: str) -> bool:
    """Whether the resource exists. True, too, if the caller may not know, and for types without a look-up."""
    looks: dict[str, Callable[[], Any]] = {
        TABLE: lambda: aws.client("dynamodb").describe_table(TableName=name),
        BUCKET: lambda: aws.client("s3").head_bucket(Bucket=name, ExpectedBucketOwner=aws.account),
    }
    try:
        looks.get(kind, lambda: None)()
    except ClientError as error:
        return not is_missing(error)
    return True


def _is_protected(aws: Aws, table: str) -> bool:
    """Whether the table has deletion protection. True, too, if the caller may not know."""
    try:
        described = aws.client("dynamodb").describe_table(TableName=table)["Table"]
    except ClientError:
        return True
    return bool(described.get("DeletionProtectionEnabled"))
