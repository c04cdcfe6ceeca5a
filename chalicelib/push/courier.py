"""Builds the call of a batch: the body and, for a webhook, the headers of the Standard Webhooks convention.

<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

import orjson

from chalicelib import VERSION
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.push import Push, PushSecret, signing
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.telemetry.record import shared_trace
from chalicelib.push.outside import ConsumerResponse, Outside
from chalicelib.push.secrets import Keyring

_SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, not one


def secret_text(secret: PushSecret) -> str:
    """The secret as text, for its receiver."""
    return _SECRET_PREFIX + base64.b64encode(secret.value).decode()


class Courier:
    def __init__(self, runtime: Runtime, outside: Outside, keyring: Keyring) -> None:
        self._runtime, self._outside, self._keyring = runtime, outside, keyring

    def demand_keys(self, group: Group, push: Push) -> None:
        """Raises StoreUnavailable if calls must be signed and no key is available: they are never sent unsigned."""
        if push.url is not None:
            self._signing(group, push)

    def _signing(self, group: Group, push: Push) -> list[PushSecret]:
        secrets = signing(group.secrets, push)
        opened = self._keyring.opened(group.topic_id, secrets)
        if secrets and not opened:
            raise StoreUnavailable("the signing key of its secrets was removed: make a new secret")
        return opened

    def send(self, topic_name: str, group: Group, push: Push, deliveries: Sequence[Delivery]) -> ConsumerResponse:
        body = body_of(topic_name, group.name, deliveries)
        if push.function is not None:
            return self._outside.invoke(push.function, body, push.timeout_ms)
        message_ids = [delivery.stored.message_id for delivery in deliveries]
        headers = {"content-type": "application/json", "user-agent": f"Decant/{VERSION}"}
        secrets = self._signing(group, push)
        headers |= shared_trace([delivery.stored.message.properties for delivery in deliveries])
        headers |= signed(webhook_id(group.id, message_ids), self._runtime.now() // SECOND_MS, body, secrets)
        return self._outside.post(push.url or "", headers, body, push.timeout_ms)


def body_of(topic_name: str, group_name: str, deliveries: Sequence[Delivery]) -> bytes:
    """The messages as a pop returns them but without receipts, since the response to the call settles them."""
    messages = [delivery.in_topic(topic_name) for delivery in deliveries]
    for message in messages:
        del message["receipt"]
    return orjson.dumps({"topic": topic_name, "group": group_name, "messages": messages})


def webhook_id(group_id: str, message_ids: Sequence[str]) -> str:
    """An id that is the same whenever exactly these messages are sent to the group again, and different for any others.
    A receiver that remembers ids therefore skips exactly the batches that it has received."""
    return "msg_" + hashlib.blake2b("\0".join([group_id, *message_ids]).encode(), digest_size=16).hexdigest()


def signed(webhook_id: str, seconds: int, body: bytes, secrets: Sequence[PushSecret]) -> dict[str, str]:
    """The headers of a call. One header has the signatures of all secrets, separated by spaces."""
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(seconds)}
    content = f"{webhook_id}.{seconds}.".encode() + body
    signatures = [hmac.digest(secret.value, content, hashlib.sha256) for secret in secrets]
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(made).decode()}" for made in signatures)
    return headers
