"""Deploys a stage, and removes it. People read stderr; stdout has one line of JSON."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib import VERSION
from infra import concurrency, leftovers, packaging
from infra.aws import Aws
from infra.code_bucket import CodeBucket
from infra.console import Progress, Stop, ask, say, show
from infra.deployed import addresses
from infra.packaging import commit
from infra.stack import NOT_THERE, Ending, ResourceChange, Stack, Waiting
from infra.stage import Stage
from infra.templates import EMULATOR_CHANGE_SET, Template, for_emulators, with_names


def deploy(aws: Aws, stage: Stage, own: Sequence[Path], out: Path, says_yes: bool) -> None:
    """Packages, shows what would change, asks, and carries it out. Raises Stop if it fails or is declined."""
    stack = Stack(aws.client("cloudformation"), stage.stack, EMULATOR_CHANGE_SET if aws.endpoint else {})
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    stack.check_ready()
    package = packaging.package(stage, own, aws.region, out)
    say(f"packaged {package.code.stat().st_size / 1e6:.1f} MB")
    concurrency.check(aws, stack, package.template)
    bucket = CodeBucket(aws, stage)
    bucket.ensure()
    template = with_names(package.template, leftovers.pseudo_parameters(aws, stage))
    url = bucket.put(package.code.read_bytes(), for_emulators(template) if aws.endpoint else template)
    _change(stack, url, {**stage.tags, **_release()}, says_yes)
    _tell(aws, stage, stack, package.template)


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
    "ROLLBACK_COMPLETE": "it was rolled back: nothing runs; table and buckets are left; make undeploy lists them and "
    "removes the rest, then deploy again: it takes them in",
}


def _agree(stack: Stack, changes: Sequence[ResourceChange], says_yes: bool) -> None:
    """Raises Stop if the user declines."""
    losses = [change.name for change in changes if change.loses_messages]
    if losses:
        say(f"This removes {', '.join(losses)}, or leaves it behind, with all that it contains. Is an INFRA= missing?")
    leftovers.tell_of_keys(changes)
    if losses and says_yes:
        raise Stop("YES=1 does not say yes to that; deploy at a terminal without it")
    if not ask(f"Carry this out on {stack.name}?", says_yes):
        raise Stop("declined; nothing has changed")


def _tell(aws: Aws, stage: Stage, stack: Stack, template: Template) -> None:
    """Raises Stop, as `addresses` does."""
    found = addresses(aws, stack)
    if found.url == found.rest_url:
        say("function URL: none")
    else:
        say(f"function URL: {found.url}{'' if concurrency.is_capped(template, 'APIHandler') else NO_CAP}")
    say(f"REST API:     {found.rest_url} (for consumers that wait, which have instances of their own there)")
    say(f"SQS clients:  {found.sqs_url}{_how_to_find(urlsplit(found.sqs_url).hostname)}")
    for name, function in sorted(found.functions.items()):
        say(f"  {name:10} {function}")
    if stage.access == "tokens":
        say(f"A first token:  make token STAGE={stage.name} REGION={aws.region} NAME=admin RIGHTS='{FIRST_RIGHTS}'")
    elif stage.access == "none":
        say("Everybody who knows these URLs may do everything: the stage says access: none.")
    print(json.dumps(found.as_json()))


def _how_to_find(host: str | None) -> str:
    """Emulators have names in `localhost`, which some machines find by themselves."""
    if not host or not host.endswith(".localhost"):
        return ""
    with suppress(OSError):
        socket.getaddrinfo(host, None)
        return ""
    return f" (this machine does not find it: add '127.0.0.1 {host}' to /etc/hosts)"


NO_CAP = " (may use all instances of the account: 'concurrency' in the stage says how many)"
FIRST_RIGHTS = '[{"operations":["produce","consume","read","admin"],"topics":"*","groups":"*"}]'


# -- the end ----------------------------------------------------------------------------------------------------------


def undeploy(aws: Aws, stage: Stage, says_yes: bool) -> None:
    """Removes the stack. Table and buckets stay: only a person removes messages. The queue Failures goes with its
    events."""
    stack = Stack(aws.client("cloudformation"), stage.stack)
    if stack.status() in ("", "DELETE_COMPLETE"):
        say(f"there is no stack {stack.name} in {aws.region}")
        leftovers.tell(aws, stage, [])
        return
    say(f"{stack.name} in account {aws.account}, region {aws.region}")
    resources = list(stack.resources())
    if leftovers.SECRET in [kind for kind, _, _ in resources]:
        say(f"A deployment after this makes a new secret: {leftovers.KEYS_END}.")
    if not ask(f"Remove its {REMOVED}? Table and buckets are kept.", says_yes):
        raise Stop("declined; nothing has changed")
    before = stack.events()
    ending = _watched(len(resources), stack.delete())
    if ending.status not in NOT_THERE:
        raise Stop(f"{stack.cause(ending)}; run this again when that is mended")
    say("Removed.")
    leftovers.tell(aws, stage, [*before, *ending.events])


REMOVED = "functions, URLs and alarms, and the queue Failures with what waits in it"


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
