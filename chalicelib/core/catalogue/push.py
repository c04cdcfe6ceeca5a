"""A group's `push`: the consumer to call, a URL or a function, and the secrets that sign calls to a URL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import SplitResult, urlsplit

from chalicelib.core.base import limits
from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import Label, given, integer, optional, request, shown, string
from chalicelib.core.catalogue.settings import AsGiven

_URL = "an absolute https URL without user name, password and fragment"
_URL_PATTERN = r"[!-~]+"
_FUNCTION_PATTERN = r"[A-Za-z0-9_$:.-]+"
"""A name, a partial or a full ARN, each with or without a version or an alias."""


_BOTH = {"url": {"type": "string"}, "function": {"type": "string"}}


@request
class PushTarget:
    """The consumer that the queue calls with a group's messages: exactly one of `url` and `function`. New values
    replace all old ones. An empty object ends the push.

    url: The webhook. Each batch is a POST.
    function: The name or ARN of a Lambda function.
    batch: The most messages of a call.
    concurrency: The most calls under way at once.
    timeout_ms: How long a call may take, in milliseconds.
    secret_id: The newest secret that signs; older secrets sign too, newer ones do not sign yet. By default the newest
        secret. Only with `url`."""

    RULES: ClassVar[Any] = {"not": {"type": "object", "required": ["url", "function"], "properties": _BOTH}}

    url: str | None = optional(string(limits.URL_CHARS_MAX, examples=["https://shop.example/hooks/orders"]))
    function: str | None = optional(string(limits.FUNCTION_CHARS_MAX))
    batch: int | None = optional(integer(1, limits.BATCH_MESSAGES_MAX))
    concurrency: int | None = optional(integer(1, limits.PUSH_CONCURRENCY_MAX))
    timeout_ms: int | None = optional(integer(limits.PUSH_TIMEOUT_MS_MIN, limits.PUSH_TIMEOUT_MS_MAX))
    secret_id: str | None = optional(string(limits.ID_CHARS_MAX))


class Push(AsGiven):
    """`given`: the fields that are set, by their names; empty: the group is not pushed."""

    @property
    def url(self) -> str | None:
        return self._text("url")

    @property
    def function(self) -> str | None:
        return self._text("function")

    @property
    def batch(self) -> int:
        return int(self.given.get("batch", limits.POP_MESSAGES_DEFAULT))

    @property
    def concurrency(self) -> int:
        return int(self.given.get("concurrency", 1))

    @property
    def timeout_ms(self) -> int:
        return int(self.given.get("timeout_ms", limits.PUSH_TIMEOUT_MS_DEFAULT))

    @property
    def secret_id(self) -> str | None:
        return self._text("secret_id")


def parse(data: object, label: Label) -> Push:
    """Raises InvalidField, UnknownField."""
    values = given(PushTarget, data, label)
    if values and ("url" in values) == ("function" in values):
        both = "both are" if "url" in values else "neither is"
        raise InvalidField(f"exactly one of {label.inside('url')} and {label.inside('function')} must be given; {both}")
    if "function" in values and "secret_id" in values:
        raise InvalidField(f"{label.inside('secret_id')} needs a 'url': calls of a function are not signed")
    if "url" in values:
        split_url(values["url"], label.inside("url"))
    if "function" in values and not re.fullmatch(_FUNCTION_PATTERN, values["function"]):
        raise label.inside("function").wrong("the name or ARN of a Lambda function", values["function"])
    return Push(values)


def split_url(url: str, label: Label) -> SplitResult:
    """The parts of a URL. Accepts `http`; the push itself decides where `http` is allowed."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("https", "http") and parts.port != 0 and bool(parts.hostname)
    except ValueError:
        raise label.wrong(_URL, url) from None
    if not is_valid or "@" in parts.netloc or "#" in url or not re.fullmatch(_URL_PATTERN, url) or "\\" in url:
        raise label.wrong(_URL, url)
    return parts


# -- secrets ----------------------------------------------------------------------------------------------------------


class PushSecret(NamedTuple):
    """A key that signs calls to a URL. `value`: the key, or the name of the signing key that it is derived from."""

    id: str
    value: bytes
    created_at_ms: int


def signing(secrets: Sequence[PushSecret], push: Push) -> list[PushSecret]:
    """The secrets that sign, the newest first: the one that the setting names and the older ones. `secrets`: the oldest
    first. Empty if the named secret is missing."""
    ids = [secret.id for secret in secrets]
    if push.secret_id is None:
        return list(secrets)[::-1]
    return list(secrets)[ids.index(push.secret_id) :: -1] if push.secret_id in ids else []


def demand_pushable(push: Push | None, is_broadcast: bool, secrets: Sequence[PushSecret]) -> None:
    """Raises InvalidField if a group of this mode and with these secrets cannot have this setting."""
    if push is None or not push.given:
        return
    if is_broadcast:
        raise InvalidField("field 'push' needs a clustering group: a push has no 'consumer_id' to broadcast to")
    if push.secret_id is not None and push.secret_id not in [secret.id for secret in secrets]:
        raise InvalidField(
            f"field 'push.secret_id' must be the id of a secret of the group; it is {shown(push.secret_id)}"
        )


def as_stored(secrets: Sequence[PushSecret]) -> list[list[Any]]:
    return [list(secret) for secret in secrets]


def of_stored(items: Sequence[Sequence[Any]]) -> tuple[PushSecret, ...]:
    return tuple(PushSecret(*item) for item in items)
