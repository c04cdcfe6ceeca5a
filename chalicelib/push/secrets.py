"""Makes, lists and deletes the secrets of a group. The group's item holds them, so each change demands that no setting
or secret has changed since it was read. If the signing keys are stored outside the table, a secret is derived from one
of them, and the item has only the name of that key: nothing in the table can sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chalicelib.core.base.errors import InvalidField, NotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import PUSH_SECRETS_MAX
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group, keep_secrets
from chalicelib.core.catalogue.push import PushSecret
from chalicelib.core.catalogue.signing_key import SigningKey, derived, name_of
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store.paging import place_of, token_of
from chalicelib.core.table.writes import Refused

_ID_BYTES = 8
_ID_PATTERN = f"[0-9a-f]{{{2 * _ID_BYTES}}}"
_SECRET_BYTES = 32
"""The convention asks for 24 to 64."""
_DOMAIN = b"push-secret"


class Keyring:
    """Turns stored secrets into the keys that sign."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._signing_key = signing_key

    def made(self, topic_id: str, runtime: Runtime) -> PushSecret:
        """A new secret, in its stored form."""
        secret_id = runtime.entropy(_ID_BYTES).hex()
        is_derived = self._signing_key.is_kept_elsewhere
        value = name_of(self._signing_key.of(topic_id)) if is_derived else runtime.entropy(_SECRET_BYTES)
        return PushSecret(secret_id, value, runtime.now())

    def opened(self, topic_id: str, secrets: Sequence[PushSecret]) -> list[PushSecret]:
        """The secrets in the form that signs, except those whose signing key was removed. Raises StoreUnavailable."""
        keys = {name_of(key): key for key in self._signing_key.accepted(topic_id)}
        opened = [secret._replace(value=_value(topic_id, secret, keys)) for secret in secrets]
        return [secret for secret in opened if secret.value]


def _value(topic_id: str, secret: PushSecret, keys: Mapping[bytes, bytes]) -> bytes:
    """Empty if the key that it is derived from was removed."""
    if len(secret.value) == _SECRET_BYTES:
        return secret.value
    key = keys.get(secret.value)
    return derived(key, _DOMAIN, f"{topic_id}\0{secret.id}".encode()) if key else b""


class Secrets:
    def __init__(self, env: Env, keyring: Keyring) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._keyring = keyring

    def make(self, topic: Topic, group_name: str) -> PushSecret:
        """The new secret, in the form that signs. Raises GroupNotFound, and InvalidField if the group already has the
        maximum."""
        made = self._keyring.made(topic.id, self._runtime)
        [opened] = self._keyring.opened(topic.id, [made])

        def changed(group: Group) -> Sequence[PushSecret]:
            if len(group.secrets) >= PUSH_SECRETS_MAX:
                raise InvalidField(
                    f"group '{group_name}' has {PUSH_SECRETS_MAX} secrets, the maximum; delete one first"
                )
            return (*group.secrets, made)

        self._change(topic, group_name, changed)
        return opened

    def page(
        self, topic: Topic, group_name: str, limit: int, token: str | None
    ) -> tuple[Sequence[PushSecret], str | None]:
        """Up to `limit` secrets by id, and the token of the next page (None: no more)."""
        after = "" if token is None else place_of(token, _ID_PATTERN)
        left = sorted(secret for secret in self._catalogue.group(topic, group_name).secrets if secret.id > after)
        return left[:limit], token_of(left[limit - 1].id) if len(left) > limit else None

    def delete(self, topic: Topic, group_name: str, secret_id: str) -> None:
        """Raises GroupNotFound, NotFound, and InvalidField for the secret that the group's `push` names."""

        def changed(group: Group) -> Sequence[PushSecret]:
            left = [secret for secret in group.secrets if secret.id != secret_id]
            if len(left) == len(group.secrets):
                raise NotFound(f"group '{group_name}' has no secret {quoted(secret_id)}")
            if group.push is not None and group.push.secret_id == secret_id:
                raise InvalidField(f"field 'push.secret_id' of group '{group_name}' names this secret: change it first")
            return left

        self._change(topic, group_name, changed)

    def _change(self, topic: Topic, group_name: str, changed: Callable[[Group], Sequence[PushSecret]]) -> None:
        while True:
            group = self._catalogue.group(topic, group_name)
            try:
                self._store.write(keep_secrets(group, changed(group)))
                return
            except Refused:
                continue  # another caller has changed or deleted the group since it was read
