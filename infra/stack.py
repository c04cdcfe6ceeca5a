"""One CloudFormation stack: proposes changes to it, shows them, carries them out, and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from infra.console import Stop

CAPABILITIES = ["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
"""The stack may make roles, and uses the SAM transform."""

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX, SLOWER = 0.2, 3.0, 1.3

UNCHANGED = ("didn't contain changes", "No updates are to be performed")
CANCELLED = ("creation cancelled", "update cancelled", "deletion cancelled")
"""Reasons of resources that fail because another one failed."""

WITH_MESSAGES = (
    "AWS::DynamoDB::GlobalTable",
    "AWS::DynamoDB::Table",
    "AWS::KMS::Key",
    "AWS::Kinesis::Stream",
    "AWS::S3::Bucket",
    "AWS::SQS::Queue",
    "AWS::SSM::Parameter",
    "AWS::SecretsManager::Secret",
)
"""Types that hold messages, or keys without which messages are worth nothing."""

NOT_THERE = ("", "REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
"""A stack under review has a change set that was never carried out, and nothing else."""

UNUSABLE = {
    "CREATE_FAILED": "its creation failed; remove it with make undeploy, then deploy again",
    "ROLLBACK_COMPLETE": "its creation failed; remove it with make undeploy, then deploy again",
    "ROLLBACK_FAILED": "its creation failed; remove it with make undeploy, then deploy again",
    "DELETE_FAILED": "its removal failed; finish that with make undeploy",
    "UPDATE_ROLLBACK_FAILED": "it could not be rolled back; `aws cloudformation continue-update-rollback` does that",
}


@dataclass(frozen=True)
class ResourceChange:
    action: str
    """Add, Modify, Remove, Import, or Replace: a new one is made, and the old one removed or left alone."""
    kind: str
    name: str

    @property
    def loses_messages(self) -> bool:
        """Whether the change removes messages, or leaves them outside the stack, where nobody looks for them."""
        return self.kind in WITH_MESSAGES and self.action in ("Remove", "Replace")


@dataclass(frozen=True)
class StackEvent:
    kind: str
    name: str
    physical: str
    status: str
    reason: str

    @property
    def is_first_cause(self) -> bool:
        return self.status.endswith("_FAILED") and not any(text in self.reason for text in CANCELLED)


@dataclass(frozen=True)
class Ending:
    """How an operation ended: the stack's status, and all events from first to last."""

    status: str
    events: list[StackEvent]

    @property
    def is_rolled_back(self) -> bool:
        return self.status.endswith("ROLLBACK_COMPLETE")

    @property
    def is_success(self) -> bool:
        return self.status.endswith("_COMPLETE") and not self.is_rolled_back


Waiting = Callable[[Callable[[StackEvent], None]], Ending]
"""Waits for the end of an operation, and passes each event on."""


class Stack:
    def __init__(self, cloudformation: Any, name: str, options: Mapping[str, Any] | None = None) -> None:
        """`options`: further parameters of its change sets."""
        self._client = cloudformation
        self._options = options or {}
        self.name = name

    def status(self) -> str:
        """Empty if there is no such stack."""
        described = self._described()
        return described["StackStatus"] if described else ""

    def exists(self) -> bool:
        return self.status() not in NOT_THERE

    def outputs(self) -> dict[str, str]:
        described = self._described() or {}
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}

    def resources(self) -> Iterator[tuple[str, str, str]]:
        """The type, the name in the template, and the name in AWS."""
        for page in self._client.get_paginator("list_stack_resources").paginate(StackName=self.name):
            for found in page["StackResourceSummaries"]:
                yield found["ResourceType"], found["LogicalResourceId"], found.get("PhysicalResourceId", "")

    # -- changes ------------------------------------------------------------------------------------------------------

    def propose(self, change_set: str, template_url: str, tags: dict[str, str]) -> list[ResourceChange]:
        """Makes a change set of this name. Returns an empty text if nothing would change; the change set is then
        removed again. A new stack takes in resources that an earlier one left under the same names."""
        is_new = self.check_ready()
        self._client.create_change_set(
            StackName=self.name,
            ChangeSetName=change_set,
            ChangeSetType="CREATE" if is_new else "UPDATE",
            TemplateURL=template_url,
            Capabilities=CAPABILITIES,
            ImportExistingResources=is_new,
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            **self._options,
        )
        described = self._wait_for_change_set(change_set)
        if described["Status"] != "FAILED":
            return list(self._changes(change_set))
        reason = self._in_full(described.get("StatusReason", ""), ChangeSetName=change_set)
        self.discard(change_set)
        if any(text in reason for text in UNCHANGED):
            return []
        raise Stop(f"CloudFormation refuses the template: {reason}")

    def execute(self, change_set: str) -> Waiting:
        """Begins to carry out a change set; discards one that AWS refuses. The returned function waits for the end."""
        seen, stack = self._newest_event(), self._describe(self.name)["StackId"]
        try:
            self._client.execute_change_set(StackName=self.name, ChangeSetName=change_set)
        except ClientError:
            with suppress(ClientError):
                self.discard(change_set)
            raise
        return partial(self._wait, seen, stack)

    def cause(self, ending: Ending) -> str:
        """The reason of a failure: the first resource that failed, and why."""
        first = next((event for event in ending.events if event.is_first_cause), None)
        if first is None:
            return f"the stack is {ending.status}"
        return f"{first.name} {first.status}: {self._in_full(first.reason)}"

    def _in_full(self, reason: str, **of: str) -> str:
        """CloudFormation explains a failed validation in events of its own, and refers to them in the reason."""
        if "DescribeEvents" in reason:
            pages = self._client.get_paginator("describe_events").paginate(StackName=self.name, **of)
            events = [event for page in pages for event in page["OperationEvents"]]
            found = [event["ValidationStatusReason"] for event in events if event.get("ValidationStatus") == "FAILED"]
            reason = "; ".join(found) or reason
        return " ".join(reason.split())

    def discard(self, change_set: str) -> None:
        """Discards a change set. A new stack without its only change set is removed as well."""
        self._client.delete_change_set(StackName=self.name, ChangeSetName=change_set)
        if self.status() == "REVIEW_IN_PROGRESS":
            self._client.delete_stack(StackName=self.name)

    def delete(self) -> Waiting:
        """Begins to remove the stack. The returned function waits for the end. Resources that the template retains
        stay."""
        described = self._described()
        if described is None:
            return lambda _on_event: Ending("DELETE_COMPLETE", [])
        seen = self._newest_event()
        self._client.delete_stack(StackName=self.name)
        return partial(self._wait, seen, described["StackId"])

    def check_ready(self) -> bool:
        """Returns whether the stack is new. Raises Stop if its status forbids changes."""
        status = self.status()
        if status in NOT_THERE:
            return True
        if status in UNUSABLE:
            raise Stop(f"the stack {self.name} is {status}: {UNUSABLE[status]}")
        if status.endswith("_IN_PROGRESS"):
            raise Stop(f"the stack {self.name} is {status}: another operation is going on; wait until it has ended")
        return False

    def _wait_for_change_set(self, change_set: str) -> dict[str, Any]:
        pauses = _pauses()
        while True:
            described: dict[str, Any] = self._client.describe_change_set(StackName=self.name, ChangeSetName=change_set)
            if described["Status"] not in ("CREATE_PENDING", "CREATE_IN_PROGRESS"):
                return described
            time.sleep(next(pauses))

    def _changes(self, change_set: str) -> Iterator[ResourceChange]:
        paginator = self._client.get_paginator("describe_change_set")
        for page in paginator.paginate(StackName=self.name, ChangeSetName=change_set):
            for change in page.get("Changes", []):
                proposed = change["ResourceChange"]
                action = "Replace" if proposed.get("Replacement") == "True" else proposed["Action"]
                yield ResourceChange(action, proposed["ResourceType"], proposed["LogicalResourceId"])

    # -- events -------------------------------------------------------------------------------------------------------

    def _wait(self, seen: str | None, stack: str, on_event: Callable[[StackEvent], None]) -> Ending:
        """`stack`: its id, which still names it after deletion. A status without an event since `seen` is an earlier
        one: AWS may return it for a while."""
        events: list[StackEvent] = []
        pauses = _pauses()
        while True:
            status = self._describe(stack)["StackStatus"]
            ids, new = self._events_since(seen, stack)
            seen = ids[-1] if ids else seen
            events += new
            for event in new:
                on_event(event)
            if status == "DELETE_COMPLETE" or (events and not status.endswith("_IN_PROGRESS")):
                return Ending(status, events)
            time.sleep(next(pauses))

    def events(self) -> list[StackEvent]:
        """All events of the stack since it was first proposed, oldest first."""
        return self._events_since(None, self.name)[1]

    def _events_since(self, seen: str | None, stack: str) -> tuple[list[str], list[StackEvent]]:
        """The ids and the events after this one, oldest first."""
        ids: list[str] = []
        events: list[StackEvent] = []
        for page in self._client.get_paginator("describe_stack_events").paginate(StackName=stack):
            for found in page["StackEvents"]:
                if found["EventId"] == seen:
                    return ids[::-1], events[::-1]
                ids.append(found["EventId"])
                events.append(_event(found))
        return ids[::-1], events[::-1]

    def _newest_event(self) -> str | None:
        found = self._client.describe_stack_events(StackName=self.name)["StackEvents"]
        return str(found[0]["EventId"]) if found else None

    def _described(self) -> dict[str, Any] | None:
        """None if there is no such stack."""
        try:
            return self._describe(self.name)
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise

    def _describe(self, stack: str) -> dict[str, Any]:
        described: dict[str, Any] = self._client.describe_stacks(StackName=stack)["Stacks"][0]
        return described


def _event(found: dict[str, Any]) -> StackEvent:
    return StackEvent(
        found["ResourceType"],
        found["LogicalResourceId"],
        found.get("PhysicalResourceId", ""),
        found["ResourceStatus"],
        " ".join(found.get("ResourceStatusReason", "").split()),
    )


def _pauses() -> Iterator[float]:
    """Yields seconds between two polls: longer and longer."""
    seconds = LOOK_SECONDS_MIN
    while True:
        yield seconds
        seconds = min(seconds * SLOWER, LOOK_SECONDS_MAX)
