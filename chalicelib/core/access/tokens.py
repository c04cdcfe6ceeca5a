"""Makes, lists, rotates and deletes tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.core.access import token as writes
from chalicelib.core.access.rights import Right
from chalicelib.core.access.token import ID_PATTERN, Token, first, new_id, new_secret, rotated, text_of
from chalicelib.core.base.errors import InvalidField, TokenNotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import TOKEN_SECRETS_MAX
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.store import Keys
from chalicelib.core.store.paging import page
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused


class Tokens:
    """`signing_key`: derives secret access keys; None: there are none. `changed`: called with the id of each token that
    this instance changes."""

    def __init__(self, env: Env, signing_key: SigningKey | None, changed: Callable[[str], None]) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._key, self._changed = signing_key, changed

    def make(self, name: str, rights: list[Right], expires_at_ms: int | None = None) -> dict[str, Any]:
        """Makes a token. Returns its secrets, shown only once. Raises InvalidField if it would already have expired."""
        now = self._runtime.now()
        if expires_at_ms is not None and expires_at_ms <= now:
            raise InvalidField(f"field 'expires_at_ms' must be in the future, after {now}; it is {expires_at_ms}")
        secret = new_secret(self._runtime)
        made = Token(new_id(self._runtime), name, rights, expires_at_ms, now, first(secret))
        self._store.write_together([writes.make(made)])
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
        self._store.write(writes.remove(token_id))
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
                self._store.write(writes.rotate(token, secrets))
            except Refused:
                continue  # another caller has rotated or deleted it since it was read
            self._changed(token_id)
            return self._shown(token_id, secrets[-1].generation, secret)

    def _shown(self, token_id: str, generation: int, secret: str) -> dict[str, Any]:
        return {
            "token_id": token_id,
            "token": text_of(token_id, secret),
            "access_key_id": writes.access_key_id(token_id),
            "secret_access_key": self._key and writes.secret_access_key(token_id, generation, self._key.of(token_id)),
        }
