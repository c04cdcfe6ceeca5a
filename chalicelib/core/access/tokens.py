"""Makes, lists, rotates and deletes tokens.

A token: its text, its item, and the writes that make, rotate and delete it.

The text is `dct_<id>_<secret>`. The item holds a hash of the secret, never the secret itself; secrets are random, and
long enough that a plain hash cannot be reversed. After a rotation the older secrets stay valid for some time. Each
secret has a *generation*, counted from 1, and a *secret access key*, for clients that sign their requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from chalicelib.core.access.rights import Right
from chalicelib.core.base.errors import InvalidField, TokenNotFound
from chalicelib.core.base.fields import base64url, quoted
from chalicelib.core.base.limits import EXPIRED_KEPT_MS, SECOND_MS, TOKEN_SECRETS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey, derived
from chalicelib.core.store import Keys
from chalicelib.core.store.paging import page
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Equals, Item, Refused, RemoveItem, Set, Write, sets

_ID_BYTES = 10
_SECRET_BYTES = 32
_TEXT = re.compile(r"dct_([A-Z2-7]{16})_([A-Za-z0-9_-]{43})")

ID_PATTERN = "[A-Z2-7]{16}"

_ACCESS_KEY_PREFIX = "DCTK"
"""The prefix of access key ids, which are 20 capitals and digits, as AWS clients expect."""
_ACCESS_KEY_CHARS = 40
"""The length of AWS's own, which clients may check."""


class TokenSecret(NamedTuple):
    """`until_ms`: when a replaced secret expires; 0: it is the newest."""

    generation: int
    digest: bytes
    until_ms: int = 0

    def is_valid(self, now: int) -> bool:
        return not self.until_ms or now < self.until_ms


@record
class Token:
    """`secrets`: the oldest first; the last is the newest."""

    id: str
    name: str
    rights: list[Right]
    expires_at_ms: int | None
    created_at_ms: int
    secrets: tuple[TokenSecret, ...]

    @classmethod
    def of(cls, item: Item) -> Token:
        rights = [Right(**right) for right in orjson.loads(item["rights"])]
        secrets = tuple(TokenSecret(*secret) for secret in item["secrets"])
        return cls(item["sk"], item["name"], rights, item.get("expires_at_ms"), item["created_at_ms"], secrets)

    def as_json(self) -> dict[str, Any]:
        return {
            "token_id": self.id,
            "name": self.name,
            "rights": [right.as_json() for right in self.rights],
            "expires_at_ms": self.expires_at_ms,
            "created_at_ms": self.created_at_ms,
            "access_key_id": self.access_key_id,
        }

    @property
    def access_key_id(self) -> str:
        return access_key_id(self.id)

    @property
    def generation(self) -> int:
        return self.secrets[-1].generation

    def is_proved_by(self, secret: str, now: int) -> bool:
        """Compares with every secret, so that the time reveals nothing."""
        digest = _digest(secret)
        valid = [hmac.compare_digest(digest, own.digest) and own.is_valid(now) for own in self.secrets]
        return any(valid) and not self.is_expired(now)

    def has_signed(self, fits: Callable[[str], bool], signing_keys: Iterable[bytes], now: int) -> bool:
        """Whether one of its valid secret access keys fits a signature. Tries all, so that the time reveals nothing."""
        fitting = [
            fits(secret_access_key(self.id, own.generation, key)) and own.is_valid(now)
            for key in signing_keys
            for own in self.secrets
        ]
        return any(fitting)

    def is_expired(self, now: int) -> bool:
        return self.expires_at_ms is not None and now >= self.expires_at_ms


def parts_of(text: str) -> tuple[str, str] | None:
    """The id and the secret that a token's text holds; None of any other text."""
    parts = _TEXT.fullmatch(text)
    return (parts[1], parts[2]) if parts else None


def text_of(token_id: str, secret: str) -> str:
    return f"dct_{token_id}_{secret}"


def access_key_id(token_id: str) -> str:
    return _ACCESS_KEY_PREFIX + token_id


def id_of_access_key(text: str) -> str | None:
    """The token id that an access key id holds; None of any other text."""
    found = re.fullmatch(f"{_ACCESS_KEY_PREFIX}({ID_PATTERN})", text)
    return found[1] if found else None


def secret_access_key(token_id: str, generation: int, signing_key: bytes) -> str:
    """The secret with which clients sign their requests. Verifying a signature needs the secret itself, not a hash, so
    it is derived from the service's key, and the item does not hold it."""
    secret = derived(signing_key, b"access-key", f"{token_id}\0{generation}".encode())
    return base64url(secret)[:_ACCESS_KEY_CHARS]


def new_id(runtime: Runtime) -> str:
    return base64.b32encode(runtime.entropy(_ID_BYTES)).decode()


def new_secret(runtime: Runtime) -> str:
    return base64url(runtime.entropy(_SECRET_BYTES))


def first(secret: str) -> tuple[TokenSecret, ...]:
    return (TokenSecret(1, _digest(secret)),)


def rotated(token: Token, secret: str, now: int, old_valid_ms: int) -> tuple[TokenSecret, ...]:
    """The secrets with this one as the newest. Older ones stay valid for at most this long; expired ones are
    dropped."""
    until_ms = now + old_valid_ms
    older = [own._replace(until_ms=min(own.until_ms or until_ms, until_ms)) for own in token.secrets]
    return (*(own for own in older if own.is_valid(now)), TokenSecret(token.generation + 1, _digest(secret)))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


# -- writes -----------------------------------------------------------------------------------------------------------


def make(token: Token) -> Write:
    """Send it as a transaction; otherwise a late repeat could restore a deleted token."""
    rights = orjson.dumps([right.as_json() for right in token.rights]).decode()
    expires_at_ms = token.expires_at_ms
    end = {} if expires_at_ms is None else {"expires_at_ms": expires_at_ms, "ttl": _ttl(expires_at_ms)}
    made = {"name": token.name, "rights": rights, "created_at_ms": token.created_at_ms, **end}
    made |= {"generation": token.generation, "secrets": _stored(token.secrets)}
    return Write(
        keys.token(token.id),
        (Absent(("generation",)),),
        sets(made),
        landed=lambda before: before["secrets"] == made["secrets"],
    )


def rotate(token: Token, secrets: tuple[TokenSecret, ...]) -> Write:
    """Replaces the secrets, if they are unchanged since they were read."""
    stored = _stored(secrets)
    return Write(
        keys.token(token.id),
        (Equals(("generation",), token.generation),),
        (Set(("generation",), secrets[-1].generation), Set(("secrets",), stored)),
        landed=lambda before: before.get("secrets") == stored,
    )


def remove(token_id: str) -> Write:
    """An id is never used again, so even a late repeat deletes nothing else."""
    return Write(keys.token(token_id), (), (RemoveItem(),))


def _stored(secrets: tuple[TokenSecret, ...]) -> list[list[Any]]:
    return [list(secret) for secret in secrets]


def _ttl(expires_at_ms: int) -> int:
    return (expires_at_ms + EXPIRED_KEPT_MS) // SECOND_MS


class Tokens:
    """`signing_key`: derives secret access keys; None: there are none. `changed`: called with the id of each token that
    this instance changes."""

    def __init__(self, env: Env, signing_key: SigningKey | None, changed: Callable[[str], None]) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._key, self._changed = signing_key, changed

    def make(
        self, name: str, rights: list[Right], expires_at_ms: int | None = None, text: str | None = None
    ) -> dict[str, Any]:
        """Makes a token. Returns its secrets, shown only once. `text`: the token's, in place of a random one; its
        repeat makes nothing. Raises InvalidField if it would already have expired, or if the text is that of none."""
        now = self._runtime.now()
        if expires_at_ms is not None and expires_at_ms <= now:
            raise InvalidField(f"field 'expires_at_ms' must be in the future, after {now}; it is {expires_at_ms}")
        parts = parts_of(text) if text else (new_id(self._runtime), new_secret(self._runtime))
        if parts is None:
            raise InvalidField("a token must be dct_<16 of A-Z, 2-7>_<43 of A-Z, a-z, 0-9, -, _>; the given one is not")
        token_id, secret = parts
        made = Token(token_id, name, rights, expires_at_ms, now, first(secret))
        self._store.write_together([make(made)])
        return self._shown(made.id, made.generation, secret)

    def page(self, limit: int, token: str | None) -> tuple[Sequence[Token], str | None]:
        items, rest = page(self._store, keys.tokens(), limit, token, ID_PATTERN)
        return [Token.of(item) for item in items], rest

    def get(self, token_id: str) -> Token:
        """The token, read again. Raises TokenNotFound."""
        is_possible = re.fullmatch(ID_PATTERN, token_id)
        items = self._store.read([Keys([keys.token(token_id)], strong=True)])[0] if is_possible else []
        if not items:
            raise TokenNotFound(f"there is no token {quoted(token_id)}")
        return Token.of(items[0])

    def delete(self, token_id: str) -> None:
        """Raises TokenNotFound."""
        self.get(token_id)
        self._store.write(remove(token_id))
        self._changed(token_id)

    def rotate(self, token_id: str, old_valid_ms: int) -> dict[str, Any]:
        """Gives the token a new secret; older ones stay valid for at most this long. Raises TokenNotFound, and
        InvalidField if too many are still valid."""
        secret = new_secret(self._runtime)
        while True:
            token = self.get(token_id)
            secrets = rotated(token, secret, self._runtime.now(), old_valid_ms)
            if len(secrets) > TOKEN_SECRETS_MAX:
                raise InvalidField(
                    f"token '{token_id}' has {TOKEN_SECRETS_MAX} valid secrets, the maximum; a smaller"
                    " 'old_valid_ms' ends older ones"
                )
            try:
                self._store.write(rotate(token, secrets))
            except Refused:
                continue  # another caller has rotated or deleted it since it was read
            self._changed(token_id)
            return self._shown(token_id, secrets[-1].generation, secret)

    def _shown(self, token_id: str, generation: int, secret: str) -> dict[str, Any]:
        return {
            "token_id": token_id,
            "token": text_of(token_id, secret),
            "access_key_id": access_key_id(token_id),
            "secret_access_key": self._key and secret_access_key(token_id, generation, self._key.of(token_id)),
        }
