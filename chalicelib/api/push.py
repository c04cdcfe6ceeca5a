"""A group with a `push` cannot be popped: the queue calls its consumer, a webhook or a function. A call sends
`{"topic", "group", "messages"}`, with messages as a pop returns them but without receipts. A 2xx response, or a normal
return, acks them; a body of `{"batchItemFailures": [{"itemIdentifier": message_id, "reason": text, "delay_ms": n}]}`
nacks the listed messages and acks the others. Any other response, or a timeout, nacks all, and the queue calls less
often. `Retry-After` delays the retry. 410 pauses the group.

Calls to a webhook are signed as Standard Webhooks specifies, with each of the group's secrets, so that a secret can be
replaced while calls arrive."""

from __future__ import annotations

from chalicelib.api.operation import DELETED, GROUP, GROUP_NAME, TOPIC_NAME, Family, Json, Page, page_of
from chalicelib.core.base.fields import Answer, instant, string
from chalicelib.core.catalogue.topic import Topic
from chalicelib.service import Service

PUSH = Family("Push", __doc__)

SECRET_ID = string(minLength=1, examples=["5c0a7f3e91d2b846"], description="The secret's id.")
_SECRETS = GROUP + "/push/secrets"


class NewSecret(Answer):
    """A secret, shown this once.

    secret: `whsec_` and the key in base64, the form that libraries for Standard Webhooks take."""

    secret_id = SECRET_ID
    secret = string(examples=["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])


class Secret(Answer):
    """A secret that signs calls, without the key.

    created_at_ms: When the secret was created."""

    secret_id = SECRET_ID
    topic = TOPIC_NAME
    group = GROUP_NAME
    created_at_ms = instant()


@PUSH.operation("POST", _SECRETS, "admin", {201: NewSecret})
def make_push_secret(service: Service, topic: Topic, group_name: str) -> tuple[int, Json]:
    """Make a secret.

    The new secret signs calls at once, in addition to older ones, unless `push.secret_id` names another. A group has at
    most {PUSH_SECRETS_MAX} secrets. Without any, calls are not signed."""
    made = service.pushing.secrets.make(topic, group_name)
    return 201, {"secret_id": made.id, "secret": service.pushing.secret_text(made)}


@PUSH.operation("GET", _SECRETS, "read", page_of("secrets", Secret), Page)
def list_push_secrets(service: Service, topic: Topic, group_name: str, request: Page) -> Json:
    """List the secrets of a group.

    Returns their ids, never the keys."""
    secrets, rest = service.pushing.secrets.page(topic, group_name, request.limit, request.next)
    place = {"topic": topic.name, "group": group_name}
    listed = [{"secret_id": secret.id, **place, "created_at_ms": secret.created_at_ms} for secret in secrets]
    return {"secrets": listed, "next": rest}


@PUSH.operation("DELETE", _SECRETS + "/{secret_id}", "admin", DELETED)
def delete_push_secret(service: Service, topic: Topic, group_name: str, secret_id: str) -> None:
    """Delete a secret.

    The secret signs no call that begins later. The secret that `push.secret_id` names cannot be deleted."""
    service.pushing.secrets.delete(topic, group_name, secret_id)
