"""All actions of the door."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.base.fields import quoted
from chalicelib.protocols.sqs.action import Action
from chalicelib.protocols.sqs.errors import SqsError
from chalicelib.protocols.sqs.move_tasks import MOVE_TASKS
from chalicelib.protocols.sqs.permissions import PERMISSIONS
from chalicelib.protocols.sqs.queues import QUEUES
from chalicelib.protocols.sqs.receiving import RECEIVING
from chalicelib.protocols.sqs.redrive_policies import REDRIVES
from chalicelib.protocols.sqs.sending import SENDING
from chalicelib.protocols.sqs.settling import SETTLING

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
    """The action of this name. `at_queue`: it is asked for at the URL of a queue. Raises SqsError."""
    action = ACTIONS.get(name)
    if action is None or (at_queue and action.is_of_account):
        raise SqsError("InvalidAction", f"The action {quoted(name)[1:-1]} is not valid for this endpoint.")
    return action
