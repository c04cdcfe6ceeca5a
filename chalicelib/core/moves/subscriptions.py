"""A subscription: a name for a group of a topic, between which move tasks carry messages."""

from __future__ import annotations

from typing import Protocol

from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic


class SubscriptionGone(Exception):
    """There is no subscription of this name."""


class Subscription(Protocol):
    """`id`: the incarnation. `owns_topic`: the topic was made for it: messages that move here are sent to the topic."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def owns_topic(self) -> bool: ...

    @property
    def topic(self) -> Topic: ...

    @property
    def group(self) -> Group: ...


class Subscriptions(Protocol):
    """Where subscriptions are looked up. A door keeps them: the core does not say what they are to its clients."""

    def find(self, name: str) -> Subscription:
        """May be some seconds old. Raises SubscriptionGone."""

    def id_of(self, name: str) -> str:
        """From the cheapest read: its topic or group may be gone. Raises SubscriptionGone."""

    def forget(self, name: str) -> None:
        """The next `find` reads it again."""
