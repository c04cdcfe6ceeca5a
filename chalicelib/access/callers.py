"""Knows callers by the tokens that they show, or by what they signed with a token's access key. An instance caches a
token for a few seconds, and that an id is unknown as well, so a token that is deleted or rotated stops everywhere
within `METADATA_AGE_MS_MAX`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from chalicelib.access.rights import Need, Right, Verb, allow, allow_somewhere
from chalicelib.access.token import Token, id_of_access_key, parts_of
from chalicelib.base.cache import BoundedCache
from chalicelib.base.errors import Forbidden, Unauthenticated
from chalicelib.base.limits import METADATA_AGE_MS_MAX
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.signing_key import SigningKey
from chalicelib.table import keys

_TOKENS_MAX = 10_000
"""Tokens that one instance caches, and ids that are none: some KB each at most."""

_SCHEME = re.compile("bearer +", re.IGNORECASE)

_rights: ContextVar[list[Right] | None] = ContextVar("rights", default=None)


class WrongSignature(Exception):
    """No secret of the access key fits the signature."""


class Callers:
    def __init__(self, env: Env, signing_key: SigningKey) -> None:
        self._runtime, self._catalogue, self._key = env.runtime, env.catalogue, signing_key
        self._tokens: BoundedCache[tuple[int, Token | None]] = BoundedCache(_TOKENS_MAX)

    def bearer(self, authorization: str | None, topic_name: str | None = None) -> Token:
        """The token that an `Authorization` header shows. `topic_name`: the topic that the call will look up, to be
        read in the same round trip. Raises Unauthenticated."""
        text = authorization or ""
        scheme = _SCHEME.match(text)
        if scheme is None:
            raise Unauthenticated("a token is needed, in the header 'Authorization: Bearer <token>'")
        return self.holder(text[scheme.end() :], topic_name)

    def holder(self, text: str, topic_name: str | None = None) -> Token:
        """The same for the token's own text. One answer for all that is wrong with it: it tells nothing of what
        exists."""
        parts = parts_of(text)
        token = self._token(parts[0], topic_name) if parts else None
        if parts is None or token is None or not token.is_proved_by(parts[1], self._runtime.now()):
            raise Unauthenticated("the token is not valid: it is malformed, unknown, expired or revoked")
        return token

    def signer(self, access_key_id: str, fits: Callable[[str], bool], topic_name: str | None = None) -> Token:
        """The token whose access key signed a request. `fits`: whether a secret access key fits the signature.
        `topic_name`: as for a bearer. Raises Unauthenticated, with one answer for all that is wrong with the key, and
        WrongSignature."""
        token_id, now = id_of_access_key(access_key_id), self._runtime.now()
        token = self._token(token_id, topic_name) if token_id else None
        if token is None or token.is_expired(now):
            raise Unauthenticated("the access key is not valid: it is malformed, unknown, expired or revoked")
        if not token.has_signed(fits, self._key.accepted(token.id), now):
            raise WrongSignature
        return token

    def forget(self, token_id: str) -> None:
        self._tokens.forget(token_id)

    def _token(self, token_id: str, topic_name: str | None) -> Token | None:
        """The token, as it was `METADATA_AGE_MS_MAX` ago or later. Its age counts from before the read: what was
        deleted since then may still have been read."""
        asked_at_ms = self._runtime.uptime()
        read_at_ms, token = self._tokens.get(token_id) or (None, None)
        if read_at_ms is None or asked_at_ms - read_at_ms > METADATA_AGE_MS_MAX:
            items = self._catalogue.read_beside([keys.token(token_id)], topic_name)
            token = Token.of(items[0]) if items else None
            self._tokens.keep(token_id, (asked_at_ms, token))
        return token


def demand(token: Token, need: Need, is_filtered: bool = False) -> None:
    """Raises Forbidden unless the token allows it. `is_filtered`: the operation shows what the caller may see, so a
    right on anything will do."""
    is_allowed = allow_somewhere(token.rights, need.verb) if is_filtered else allow(token.rights, need)
    if not is_allowed:
        raise Forbidden(f"the token has no right to {need}")


@contextmanager
def called_by(token: Token) -> Iterator[None]:
    """Runs a call of the token's holder."""
    set_before = _rights.set(token.rights)
    try:
        yield
    finally:
        _rights.reset(set_before)


def is_limited() -> bool:
    """Whether the caller may do only what rights allow: without access control, everybody may do everything."""
    return _rights.get() is not None


def may(need: Need) -> bool:
    rights = _rights.get()
    return rights is None or allow(rights, need)


def may_somewhere(verb: Verb) -> bool:
    """Whether the caller has a right to it at all."""
    rights = _rights.get()
    return rights is None or allow_somewhere(rights, verb)


def may_read(topic_name: str) -> bool:
    """Whether the caller may know of the topic."""
    return may(Need("read", topic_name))
