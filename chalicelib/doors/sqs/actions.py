"""All actions of the door."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.core.base.fields import quoted
from chalicelib.doors.sqs.action import Action
from chalicelib.doors.sqs.errors import SqsError
from chalicelib.doors.sqs.queues import PERMISSIONS, QUEUES
from chalicelib.doors.sqs.receiving import RECEIVING, SETTLING
from chalicelib.doors.sqs.redrives import MOVE_TASKS, REDRIVES
from chalicelib.doors.sqs.sending import SENDING

ACTIONS: Mapping[str, Action] = {
    **QUEUES,
    **PERMISSIONS,
    **REDRIVES,
    **MOVE_TASKS,
    **SENDING,
    **RECEIVING,
    **SETTLING,
}


def named(name: str, at_queue: bool) -> Action:
    """The action of this name. `at_queue`: the request went to the URL of a queue. Raises SqsError."""
    action = ACTIONS.get(name)
    if action is None or (at_queue and action.is_of_account):
        raise SqsError("InvalidAction", f"The action {quoted(name)[1:-1]} is not valid for this endpoint.")
    return action
