"""All actions of the door."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.protocols.sqs.action import Action

ACTIONS: Mapping[str, Action] = {}
