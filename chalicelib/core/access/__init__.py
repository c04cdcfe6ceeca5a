"""Access control: tokens, their rights, and the check of a caller's token."""

from __future__ import annotations

from chalicelib.core.access.callers import Callers
from chalicelib.core.access.tokens import Tokens
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey


class Access:
    """`has_access_keys`: False if the signing key is stored in the table, since any reader of the table or an export
    could derive every secret access key."""

    def __init__(self, env: Env, signing_key: SigningKey, has_access_keys: bool) -> None:
        self.has_access_keys = has_access_keys
        self.callers = Callers(env, signing_key)
        self.tokens = Tokens(env, signing_key if has_access_keys else None, self.callers.forget)
