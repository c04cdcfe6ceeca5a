"""Public names for programs that import Decant: hooks around every send, and messages that a caller sends in a
transaction of its own. The names of this module stay."""

from __future__ import annotations

from typing import Any

from chalicelib import wiring
from chalicelib.core.base import errors
from chalicelib.core.producing.hooks import AfterSend, BeforeSend

__all__ = ["AfterSend", "BeforeSend", "errors", "on_send", "outbox_item"]


def on_send(before: BeforeSend | None = None, after: AfterSend | None = None) -> None:
    """Adds hooks to every send of this process. `BeforeSend` and `AfterSend` document their arguments and the
    exceptions they may raise. Call it once, in the module that `DECANT_HOOKS` names, or in `app.py`."""
    if before:
        wiring.parts.hooks.before.append(before)
    if after:
        wiring.parts.hooks.after.append(after)


def outbox_item(topic: str, message: dict[str, Any]) -> dict[str, Any]:
    """A message as one of the `TransactItems` of the caller's own `TransactWriteItems`, for callers inside AWS that
    write something and send a message, both or neither. `message` has the fields of `produce`. Send the item once,
    within 15 minutes. The message is delivered if the transaction commits, and never otherwise. Raises what `produce`
    raises."""
    from chalicelib.core.store.dynamodb.expressions import outbox_put

    return outbox_put(wiring.settings.table, wiring.api().outbox_item(topic, message))
