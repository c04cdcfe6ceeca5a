"""Identifies callers by their tokens, or by signatures with a token's access key. An instance caches tokens and unknown
ids for a few seconds, so a deleted or rotated token is refused everywhere within `METADATA_AGE_MS_MAX`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from chalicelib.core.access.rights import Need, Right, Verb, allow, allow_somewhere
from chalicelib.core.access.tokens import Token, id_of_access_key, parts_of
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.deadline import set_during
from chalicelib.core.base.errors import Forbidden, Unauthenticated
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.table import keys
from chalicelib.core.telemetry.record import note

_TOKENS_MAX = 10_000
"""Tokens and unknown ids that one instance caches: some KB each at most."""

_SCHEME = re.compile("bearer +", re.IGNORECASE)


class Caller(NamedTuple):
    """The caller. `name`: the id of a token or of an access key, or an IAM principal; never a secret. Empty without
    access control. `rights`: None: everything is allowed."""

    name: str
    rights: Sequence[Right] | None


_NOBODY = Caller("", None)
_caller: ContextVar[Caller] = ContextVar("caller", default=_NOBODY)


class WrongSignature(Exception):
    """No secret of the access key fits the signature."""


class Callers:
    def __init__(self, env: Env, signing_key: SigningKey) -> None:
        self._runtime, self._catalogue, self._key = env.runtime, env.catalogue, signing_key
        self._tokens: BoundedCache[tuple[int, Token | None]] = BoundedCache(_TOKENS_MAX)

    def bearer(self, authorization: str | None, topic_name: str | None = None) -> Caller:
        """The caller with the token of an `Authorization` header. `topic_name`: the topic that the call will look up,
        to read it in the same round trip. Raises Unauthenticated."""
        text = authorization or ""
        scheme = _SCHEME.match(text)
        if scheme is None:
            raise Unauthenticated("a token is needed, in the header 'Authorization: Bearer <token>'")
        return self.holder(text[scheme.end() :], topic_name)

    def holder(self, text: str, topic_name: str | None = None) -> Caller:
        """The same for the token's own text. Every invalid token gets the same answer, which does not reveal which
        tokens exist."""
        parts = parts_of(text)
        token = self._token(parts[0], topic_name) if parts else None
        if parts is None or token is None or not token.is_proved_by(parts[1], self._runtime.now()):
            raise Unauthenticated("the token is not valid: it is malformed, unknown, expired or revoked")
        return _told(Caller(token.id, token.rights))

    def signer(self, access_key_id: str, fits: Callable[[str], bool], topic_name: str | None = None) -> Caller:
        """The caller whose access key signed a request. `fits`: whether a secret access key fits the signature.
        `topic_name`: as for a bearer. Raises Unauthenticated, with the same answer for every invalid key, and
        WrongSignature."""
        token_id, now = id_of_access_key(access_key_id), self._runtime.now()
        token = self._token(token_id, topic_name) if token_id else None
        if token is None or token.is_expired(now):
            raise Unauthenticated("the access key is not valid: it is malformed, unknown, expired or revoked")
        if not token.has_signed(fits, self._key.accepted(token.id), now):
            raise WrongSignature
        return _told(Caller(access_key_id, token.rights))

    def forget(self, token_id: str) -> None:
        self._tokens.forget(token_id)

    def _token(self, token_id: str, topic_name: str | None) -> Token | None:
        """The token, at most `METADATA_AGE_MS_MAX` old. Its age counts from before the read, which may miss a deletion
        made meanwhile."""
        asked_at_ms = self._runtime.uptime()
        read_at_ms, token = self._tokens.get(token_id) or (None, None)
        if read_at_ms is None or asked_at_ms - read_at_ms > METADATA_AGE_MS_MAX:
            items = self._catalogue.read_beside([keys.token(token_id)], topic_name)
            token = Token.of(items[0]) if items else None
            self._tokens.keep(token_id, (asked_at_ms, token))
        return token


def _told(caller: Caller) -> Caller:
    """Adds the caller to the log line of the call, even if the call is refused later."""
    note(caller=caller.name)
    return caller


def principal(name: str) -> Caller:
    """A caller that IAM has admitted, with all rights."""
    return _told(Caller(name, None))


def demand(caller: Caller, need: Need, is_filtered: bool = False) -> None:
    """Raises Forbidden unless the caller has the right. `is_filtered`: the operation shows only what the caller may
    see, so a right for any topic is enough."""
    is_allowed = allows_somewhere(caller, need.verb) if is_filtered else allows(caller, need)
    if not is_allowed:
        raise Forbidden(f"the token has no right to {need}")


def allows(caller: Caller, need: Need) -> bool:
    return caller.rights is None or allow(caller.rights, need)


def allows_somewhere(caller: Caller, verb: Verb) -> bool:
    return caller.rights is None or allow_somewhere(caller.rights, verb)


def called_by(caller: Caller) -> AbstractContextManager[None]:
    """Runs a call as this caller."""
    return set_during(_caller, caller)


def current() -> Caller:
    """The caller of the running call."""
    return _caller.get()


def is_limited() -> bool:
    """Whether rights limit the caller. Without access control, they do not."""
    return current().rights is not None


def may(need: Need) -> bool:
    return allows(current(), need)


def may_somewhere(verb: Verb) -> bool:
    """Whether any right of the caller allows this."""
    return allows_somewhere(current(), verb)


def may_read(topic_name: str) -> bool:
    """Whether the caller may see the topic."""
    return may(Need("read", topic_name))
