"""Deploys a stage, and removes it. People read stderr; stdout has one line of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from infra import packaging
from infra.addresses import addresses
from infra.aws import Aws
from infra.code_bucket import CodeBucket
from infra.emulating import for_emulators
from infra.errors import Stop
from infra.naming import with_names
from infra.stack import NOT_THERE, Change, Ending, Event, Stack
from infra.stage import Stage
from infra.telling import Progress, ask, say, show


def deploy(aws: Aws, stage: Stage, own: Sequence[Path], out: Path, says_yes: bool) -> None:
    """Packages, shows what would change, asks, and carries it out. Raises Stop if it fails or is declined."""
    stack = Stack(aws.client("cloudformation"), stage.stack)
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    stack.check_ready()
    package = packaging.package(stage, own, aws.region, out)
    say(f"packaged {package.code.stat().st_size / 1e6:.1f} MB")
    bucket = CodeBucket(aws, stage)
    bucket.ensure()
    known = {"AWS::StackName": stack.name, "AWS::AccountId": aws.account, "AWS::Region": aws.region}
    template = with_names(package.template, known)
    url = bucket.put(package.code.read_bytes(), for_emulators(template) if aws.endpoint else template)
    _change(stack, url, {"application": "decant", "stage": stage.name}, says_yes)
    _tell(aws, stage, stack)


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
    ending = _watched(len(changes), lambda on_event: stack.execute(change_set, on_event))
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
        say(f"This leaves {', '.join(losses)} with its messages behind: what is deployed then is empty.")
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
    """Removes the stack. Table and buckets stay: only a person removes messages."""
    stack = Stack(aws.client("cloudformation"), stage.stack)
    if stack.status() in ("", "DELETE_COMPLETE"):
        say(f"there is no stack {stack.name} in {aws.region}")
        return
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    if not ask("Remove its functions, URLs and alarms? Table and buckets are kept.", says_yes):
        raise Stop("declined; nothing has changed")
    total = len(list(stack.resources()))
    ending = _watched(total, stack.delete)
    if ending.status not in NOT_THERE:
        raise Stop(f"{stack.cause(ending)}; run this again when that is mended")
    _tell_what_is_kept(ending, CodeBucket(aws, stage).name)


def _tell_what_is_kept(ending: Ending, code_bucket: str) -> None:
    kept = [event for event in ending.events if event.status == "DELETE_SKIPPED"]
    say("Removed. The next deployment takes these in again; to remove them with what they contain:")
    for event in kept:
        if event.kind == "AWS::DynamoDB::Table":
            say(f"  aws dynamodb delete-table --table-name {event.physical}")
        elif event.kind == "AWS::S3::Bucket":
            say(f"  aws s3 rb --force s3://{event.physical}")
    say(f"  aws s3 rb --force s3://{code_bucket}")


def _watched(total: int, run: Callable[[Callable[[Event], None]], Ending]) -> Ending:
    progress = Progress(total)
    try:
        return run(progress)
    except KeyboardInterrupt:
        progress.close()
        say("CloudFormation goes on without us; run this again to see how it ended")
        raise
    except (BotoCoreError, ClientError) as error:
        raise Stop(f"lost touch with CloudFormation, which goes on; run this again to see: {error}") from error
    finally:
        progress.close()
