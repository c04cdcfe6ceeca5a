"""Who may do what: tokens, what they allow, and the check of what a caller shows."""

from __future__ import annotations

from chalicelib.access.callers import Callers
from chalicelib.access.tokens import Tokens
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.signing_key import SigningKey


class Access:
    def __init__(self, env: Env, signing_key: SigningKey) -> None:
        self.callers = Callers(env, signing_key)
        self.tokens = Tokens(env, signing_key, self.callers.forget)
