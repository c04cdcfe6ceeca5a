"""All parts of the push of one instance."""

from __future__ import annotations

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.push import Push
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.consuming import Consuming
from chalicelib.push import addresses
from chalicelib.push.courier import secret_text
from chalicelib.push.dispatcher import Dispatcher
from chalicelib.push.outside import Outside
from chalicelib.push.secrets import Keyring, Secrets


class Pushing:
    def __init__(self, env: Env, signing_key: SigningKey, consuming: Consuming, outside: Outside) -> None:
        self._outside, keyring = outside, Keyring(signing_key)
        self.run = Dispatcher(env, keyring, consuming, outside).run
        self.secrets, self.secret_text = Secrets(env, keyring), secret_text

    def demand_reachable(self, push: Push) -> None:
        """Raises InvalidField for a URL that would be refused at each call."""
        addresses.demand_reachable(push, self._outside.allows_loopback)
