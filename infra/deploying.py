"""Deploys a stage, and removes it. People read stderr; stdout has one line of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib import VERSION
from infra import concurrency, packaging
from infra.addresses import addresses
from infra.aws import Aws
from infra.code_bucket import CodeBucket
from infra.commit import commit
from infra.emulating import for_emulators
from infra.errors import Stop
from infra.naming import with_names
from infra.stack import NOT_THERE, Change, Ending, Stack, Waiting
from infra.stage import Stage
from infra.telling import Progress, ask, say, show


def deploy(aws: Aws, stage: Stage, own: Sequence[Path], out: Path, says_yes: bool) -> None:
    """Packages, shows what would change, asks, and carries it out. Raises Stop if it fails or is declined."""
    stack = Stack(aws.client("cloudformation"), stage.stack)
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    stack.check_ready()
    package = packaging.package(stage, own, aws.region, out)
    say(f"packaged {package.code.stat().st_size / 1e6:.1f} MB")
    concurrency.check(aws, stack, package.template)
    bucket = CodeBucket(aws, stage)
    bucket.ensure()
    known = {"AWS::StackName": stack.name, "AWS::AccountId": aws.account, "AWS::Region": aws.region}
    template = with_names(package.template, known)
    url = bucket.put(package.code.read_bytes(), for_emulators(template) if aws.endpoint else template)
    _change(stack, url, {"application": "decant", "stage": stage.name, **_release()}, says_yes)
    _tell(aws, stage, stack)


def _release() -> dict[str, str]:
    known = commit()
    return {"version": VERSION, **({"commit": known} if known else {})}


def _change(stack: Stack, template_url: str, tags: dict[str, str], says_yes: bool) -> None:
    change_set = f"deploy-{time.time_ns()}"
    changes = stack.propose(change_set, template_url, tags)
    if not changes:
        say("nothing has changed")
        return
    show(changes)
    try:
        _agree(stack, changes, says_yes)
    except BaseException:
        stack.discard(change_set)
        raise
    ending = _watched(len(changes), stack.execute(change_set))
    if not ending.is_success:
        raise Stop(f"{stack.cause(ending)}; {AFTERWARDS.get(ending.status, f'the stack is {ending.status}')}")


AFTERWARDS = {
    "UPDATE_ROLLBACK_COMPLETE": "it was rolled back: what was deployed before runs",
    "ROLLBACK_COMPLETE": "it was rolled back: nothing runs; make undeploy removes the rest, then deploy again",
}


def _agree(stack: Stack, changes: Sequence[Change], says_yes: bool) -> None:
    """Raises Stop if the person does not."""
    losses = [change.name for change in changes if change.loses_messages]
    if losses:
        say(f"This removes {', '.join(losses)}, or leaves it behind, with all that it contains. Is an INFRA= missing?")
    if losses and says_yes:
        raise Stop("YES=1 does not say yes to that; deploy at a terminal without it")
    if not ask(f"Carry this out on {stack.name}?", says_yes):
        raise Stop("declined; nothing has changed")


def _tell(aws: Aws, stage: Stage, stack: Stack) -> None:
    """Raises Stop, as `addresses` does."""
    found = addresses(aws, stack)
    say(f"REST API:     {found.url}")
    say(f"function URL: {found.function_url or 'none'}")
    for name, function in sorted(found.functions.items()):
        say(f"  {name:10} {function}")
    if stage.access == "tokens":
        say(f"A first token:  make token STAGE={stage.name} REGION={aws.region} NAME=admin RIGHTS='{FIRST_RIGHTS}'")
    elif stage.access == "none":
        say("Everybody who knows these URLs may do everything: the stage says access: none.")
    print(json.dumps(found.as_json()))


FIRST_RIGHTS = '[{"operations":["produce","consume","read","admin"],"topics":"*","groups":"*"}]'


# -- the end ----------------------------------------------------------------------------------------------------------


def undeploy(aws: Aws, stage: Stage, says_yes: bool) -> None:
    """Removes the stack. Table and buckets stay: only a person removes messages. What waits in Failures goes."""
    stack = Stack(aws.client("cloudformation"), stage.stack)
    if stack.status() in ("", "DELETE_COMPLETE"):
        say(f"there is no stack {stack.name} in {aws.region}")
        return
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    if not ask(f"Remove its {REMOVED}? Table and buckets are kept.", says_yes):
        raise Stop("declined; nothing has changed")
    total = len(list(stack.resources()))
    ending = _watched(total, stack.delete())
    if ending.status not in NOT_THERE:
        raise Stop(f"{stack.cause(ending)}; run this again when that is mended")
    _tell_what_is_kept(aws, ending, CodeBucket(aws, stage).name)


REMOVED = "functions, URLs and alarms, and the queue Failures with what waits in it"


def _tell_what_is_kept(aws: Aws, ending: Ending, code_bucket: str) -> None:
    say("Removed. The next deployment takes in again what the template names: its table, and the buckets of bodies and")
    say("exports. To remove what is kept, with what it contains:")
    for event in ending.events:
        if event.status == "DELETE_SKIPPED" and event.kind in REMOVALS:
            if event.kind == "AWS::DynamoDB::Table" and _is_protected(aws, event.physical):
                say(f"  aws {UNPROTECT} {event.physical} --region {aws.region}")
            say(f"  aws {REMOVALS[event.kind]}{event.physical} --region {aws.region}")
    say(f"  aws {REMOVALS['AWS::S3::Bucket']}{code_bucket} --region {aws.region}")


UNPROTECT = "dynamodb update-table --no-deletion-protection-enabled --table-name"

REMOVALS = {
    "AWS::DynamoDB::Table": "dynamodb delete-table --table-name ",
    "AWS::Kinesis::Stream": "kinesis delete-stream --stream-name ",
    "AWS::S3::Bucket": "s3 rb --force s3://",
    "AWS::SQS::Queue": "sqs delete-queue --queue-url ",
    "AWS::SecretsManager::Secret": "secretsmanager delete-secret --secret-id ",
}
"""Of what is kept, by type: the command, before the name."""


def _is_protected(aws: Aws, table: str) -> bool:
    """From deletion. True, too, if the caller may not know."""
    try:
        described = aws.client("dynamodb").describe_table(TableName=table)["Table"]
    except ClientError:
        return True
    return bool(described.get("DeletionProtectionEnabled"))


def _watched(total: int, waiting: Waiting) -> Ending:
    progress = Progress(total)
    try:
        return waiting(progress)
    except KeyboardInterrupt:
        progress.close()
        say("CloudFormation goes on without us; run this again to see how it ended")
        raise
    except (BotoCoreError, ClientError) as error:
        raise Stop(f"lost touch with CloudFormation, which goes on; run this again to see: {error}") from error
    finally:
        progress.close()
