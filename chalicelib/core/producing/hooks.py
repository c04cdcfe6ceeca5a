"""Hooks: the deployment's own code, run before and after each send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import field

from chalicelib.core.base.message import Message, Produced
from chalicelib.core.base.records import mutable

_log = logging.getLogger("decant")

BeforeSend = Callable[[str, Sequence[Message]], None]
"""`before(topic, messages)`: called with the topic's name and the valid messages of one request before any of them is
stored; for a transaction, when it begins. To reject the request, raise one of `chalicelib.hooks.errors`, which
becomes the response. Any other exception is a defect (500)."""

AfterSend = Callable[[str, Sequence[Message], Sequence[Produced] | Exception], None]
"""`after(topic, messages, outcome)`: called once for every request whose `before` hooks were called. `outcome` is the
result of each message in the same order (its place, or its `error`; neither id nor offset when a transaction begins),
or the exception with which the whole request failed, rejections included. Exceptions that the hook raises are logged
and change nothing."""


@mutable
class SendHooks:
    """Hooks run in list order, in the request's thread, which waits for them."""

    before: list[BeforeSend] = field(default_factory=list)
    after: list[AfterSend] = field(default_factory=list)

    def around(
        self, topic_name: str, messages: Sequence[Message], send: Callable[[], list[Produced]]
    ) -> list[Produced]:
        """Sends between the hooks."""
        try:
            for hook in self.before:
                hook(topic_name, messages)
            produced = send()
        except Exception as error:
            self._tell(topic_name, messages, error)
            raise
        self._tell(topic_name, messages, produced)
        return produced

    def _tell(self, topic_name: str, messages: Sequence[Message], outcome: Sequence[Produced] | Exception) -> None:
        for hook in self.after:
            try:
                hook(topic_name, messages, outcome)
            except Exception:  # noqa: BLE001 - a hook cannot change whether the messages are stored
                _log.exception("a hook after a send to %s failed", topic_name)
