"""Access control. If it is on, every request except `GET /health` needs a token, as `Authorization: Bearer`. A token
allows the operations that one of its rights allows and none denies. Otherwise the answer is 403, whether or not the
named topic or group exists.

A token has a secret, shown once and never stored. Its second secret, `secret_access_key`, is derived from the service's
key; clients of SQS and of MQ over HTTP sign their requests with it instead of sending it."""

from __future__ import annotations

from chalicelib.api.operation import DELETED, Family, Json, Page, page_of
from chalicelib.core.access.rights import RIGHTS, Right, parse
from chalicelib.core.access.tokens import ID_PATTERN
from chalicelib.core.base.fields import Answer, array, instant, integer, nullable, optional, request, required, string
from chalicelib.core.base.limits import OLD_SECRET_MS_DEFAULT, OLD_SECRET_MS_MAX, TOKEN_NAME_CHARS_MAX
from chalicelib.service import Service

TOKENS = Family("Tokens", __doc__)

_TOKENS = "/tokens"
_TOKEN = _TOKENS + "/{token_id}"

TOKEN_ID = string(pattern=f"^{ID_PATTERN}$", examples=["QJ7ZK3XW5B2NDM4T"], description="The token's id.")
_NAME = string(TOKEN_NAME_CHARS_MAX, examples=["billing service"])
_IN_2100_MS = 4_102_444_800_000
_KEY_ID = string(examples=["DCTKQJ7ZK3XW5B2NDM4T"])


@request
class TokenRequest:
    """The token to make.

    name: A name for people. Several tokens may have the same.
    rights: The rights of the token.
    expires_at_ms: When the token expires. It is listed for another day."""

    name: str = required(_NAME)
    rights: list[Right] = required(RIGHTS, parse)
    expires_at_ms: int | None = optional(instant(examples=[_IN_2100_MS]))


@request
class RotateRequest:
    """How long older secrets stay valid.

    old_valid_ms: How long older secrets and their access keys stay valid, in milliseconds from now, unless an earlier
        rotation ends them sooner. 0: they are revoked."""

    old_valid_ms: int = optional(integer(0, OLD_SECRET_MS_MAX, default=OLD_SECRET_MS_DEFAULT))


class NewToken(Answer):
    """A token's secrets, shown this once.

    token: The token to send as `Authorization: Bearer`.
    access_key_id: The id of the access key, for clients that sign their requests.
    secret_access_key: The secret of the access key. Null: the deployment has no access keys, since its signing key is
        stored in the table."""

    token_id = TOKEN_ID
    token = string(examples=["dct_QJ7ZK3XW5B2NDM4T_sN0xWvU3jq1bDk9hZr5tYy2mGc8aPf4eLi6oRu7wQzA"])
    access_key_id = _KEY_ID
    secret_access_key = nullable(string(examples=["c0kQfOZ1yVn8bJr3mLw5xTz7dHs2gEu9iKa4pNq6"]))


class GrantedRight(Answer, Right):
    """A right of a token."""


class Token(Answer):
    """A token, without its secrets.

    name: A name for people.
    rights: The rights of the token.
    expires_at_ms: When the token expires. Null: never.
    created_at_ms: When the token was created.
    access_key_id: The id of its access key."""

    token_id = TOKEN_ID
    name = _NAME
    rights = array(GrantedRight)
    expires_at_ms = nullable(instant())
    created_at_ms = instant()
    access_key_id = _KEY_ID


@TOKENS.operation("POST", _TOKENS, "admin", {201: NewToken}, TokenRequest)
def make_token(service: Service, request: TokenRequest) -> tuple[int, Json]:
    """Make a token.

    The caller needs the right `admin` on all topics and a token without denied rights, since a new token can allow
    anything. If the response is lost, make another token and delete the first, which the list shows."""
    return 201, service.access.tokens.make(request.name, request.rights, request.expires_at_ms)


@TOKENS.operation("GET", _TOKENS, "admin", page_of("tokens", Token), Page)
def list_tokens(service: Service, request: Page) -> Json:
    """List the tokens.

    The list is ordered by id and has no secrets."""
    tokens, rest = service.access.tokens.page(request.limit, request.next)
    return {"tokens": [token.as_json() for token in tokens], "next": rest}


@TOKENS.operation("GET", _TOKEN, "admin", Token)
def get_token(service: Service, token_id: str) -> Json:
    """Get a token.

    Without its secrets."""
    return service.access.tokens.get(token_id).as_json()


@TOKENS.operation("DELETE", _TOKEN, "admin", DELETED)
def delete_token(service: Service, token_id: str) -> None:
    """Delete a token.

    Every instance refuses the token within {METADATA_AGE_MS_MAX} ms. Calls under way continue."""
    service.access.tokens.delete(token_id)


@TOKENS.operation("POST", _TOKEN + "/rotate", "admin", {200: NewToken}, RotateRequest)
def rotate_token(service: Service, token_id: str, request: RotateRequest) -> Json:
    """Rotate a token.

    The token gets a new secret and a new secret access key. The older ones stay valid for `old_valid_ms`: if the
    response is lost, rotate again. With 0, every instance refuses them within {METADATA_AGE_MS_MAX} ms."""
    return service.access.tokens.rotate(token_id, request.old_valid_ms)
