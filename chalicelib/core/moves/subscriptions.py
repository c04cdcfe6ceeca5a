"""A subscription: a name for a group of a topic. Move tasks carry messages between subscriptions."""

from __future__ import annotations

from typing import Protocol

from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic


class SubscriptionGone(Exception):
    """No subscription has this name."""


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
    """Looks subscriptions up. A door implements it and defines what they are to its clients."""

    def find(self, name: str) -> Subscription:
        """The subscription, at most some seconds old. Raises SubscriptionGone."""

    def id_of(self, name: str) -> str:
        """Its id, from the cheapest read; its topic or group may no longer exist. Raises SubscriptionGone."""

    def forget(self, name: str) -> None:
        """Makes the next `find` read it again."""
