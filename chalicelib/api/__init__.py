"""The operations as JSON in, JSON out: the contract without HTTP. Routes and functions call these.

Every operation checks its whole input before it stores anything, and raises a `DecantError` that names what is wrong.
"""

from __future__ import annotations

from chalicelib.api.consuming import Consuming
from chalicelib.api.dead_letters import DeadLetters
from chalicelib.api.groups import Groups
from chalicelib.api.messages import Messages
from chalicelib.api.sweeping import Sweeping
from chalicelib.api.topics import Topics


class Api(Topics, Messages, Groups, Consuming, DeadLetters, Sweeping):
    """One instance of the service, as its clients see it."""
