"""What the owner of a deployment wants done before and after each send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chalicelib.base.message import Message
from chalicelib.producing.produce import Produced

_log = logging.getLogger("decant")

BeforeSend = Callable[[str, Sequence[Message]], None]
"""`before(topic, messages)`: the topic's name, and the messages of one request, which are valid. Called before any of
them is stored. To refuse the request it raises one of `chalicelib.errors`, which then is the answer; what else it
raises is a defect (500)."""

AfterSend = Callable[[str, Sequence[Message], Sequence[Produced] | Exception], None]
"""`after(topic, messages, outcome)`: called once for every request for which the hooks before were. `outcome` is what
became of each message, in the same order (where it is, or its `error`), or why the whole request failed, a refusal
included. What it raises is logged, and changes nothing."""


@dataclass(slots=True)
class SendHooks:
    """Called in the order of the lists, in the thread of the request, which waits for them."""

    before: list[BeforeSend] = field(default_factory=list)
    after: list[AfterSend] = field(default_factory=list)

    def around(self, topic: str, messages: Sequence[Message], send: Callable[[], list[Produced]]) -> list[Produced]:
        """Sends, between the hooks."""
        try:
            for hook in self.before:
                hook(topic, messages)
            produced = send()
        except Exception as error:
            self._tell(topic, messages, error)
            raise
        self._tell(topic, messages, produced)
        return produced

    def _tell(self, topic: str, messages: Sequence[Message], outcome: Sequence[Produced] | Exception) -> None:
        for hook in self.after:
            try:
                hook(topic, messages, outcome)
            except Exception:  # noqa: BLE001 - whatever it is: the messages are stored, or not, all the same
                _log.exception("a hook after a send to %s failed", topic)
