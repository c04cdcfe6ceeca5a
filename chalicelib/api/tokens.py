"""Who may call. Where access control is on, every request but `GET /health` needs a token, as `Authorization: Bearer`,
and a token allows what its rights say: nothing that no right allows, and nothing that a right denies. 403 is the answer
whether or not what the request names exists.

A token has a secret, shown once and never stored. `secret_access_key` is a second one, with which clients of SQS and of
MQ over HTTP sign their requests instead of sending it; it is derived from the service's key."""

from __future__ import annotations

from chalicelib.api.operation import DELETED, Family, Json, Page, page_of
from chalicelib.core.access.rights import RIGHTS, Right, parse
from chalicelib.core.access.token import ID_PATTERN
from chalicelib.core.base.fields import Answer, optional, request, required
from chalicelib.core.base.limits import OLD_SECRET_MS_DEFAULT, OLD_SECRET_MS_MAX, TOKEN_NAME_CHARS_MAX
from chalicelib.core.base.schema import array, instant, integer, nullable, string
from chalicelib.service import Service

TOKENS = Family("Tokens", __doc__)

_TOKENS = "/tokens"
_TOKEN = _TOKENS + "/{token_id}"

TOKEN_ID = string(pattern=f"^{ID_PATTERN}$", examples=["QJ7ZK3XW5B2NDM4T"], description="The token's id.")
_NAME = string(TOKEN_NAME_CHARS_MAX, examples=["billing service"])
_KEY_ID = string(examples=["DCTKQJ7ZK3XW5B2NDM4T"])


@request
class TokenRequest:
    """The token to make.

    name: A name for people. Several tokens may have the same.
    rights: What the token allows.
    expires_at_ms: From then on the token is not valid, and a day later it is not listed any more."""

    name: str = required(_NAME)
    rights: list[Right] = required(RIGHTS, parse)
    expires_at_ms: int | None = optional(instant())


@request
class RotateRequest:
    """How the new secret replaces the others.

    old_valid_ms: How long older secrets, and the access keys that came with them, stay valid, in milliseconds from now;
        those that an earlier rotation ends sooner, until then. 0: they are revoked."""

    old_valid_ms: int = optional(integer(0, OLD_SECRET_MS_MAX, default=OLD_SECRET_MS_DEFAULT))


class NewToken(Answer):
    """A token's secrets, shown this once.

    token: What `Authorization: Bearer` takes.
    access_key_id: The name of the access key, for clients that sign their requests.
    secret_access_key: The secret of the access key. Null: the deployment has none, since its signing key is kept in the
        table."""

    token_id = TOKEN_ID
    token = string(examples=["dct_QJ7ZK3XW5B2NDM4T_sN0xWvU3jq1bDk9hZr5tYy2mGc8aPf4eLi6oRu7wQzA"])
    access_key_id = _KEY_ID
    secret_access_key = nullable(string(examples=["c0kQfOZ1yVn8bJr3mLw5xTz7dHs2gEu9iKa4pNq6"]))


class GrantedRight(Answer, Right):
    """What is allowed, or denied."""


class Token(Answer):
    """A token, without its secrets.

    name: A name for people.
    rights: What it allows.
    expires_at_ms: From then on it is not valid. Null: it does not expire.
    created_at_ms: When it was made.
    access_key_id: The name of its access key."""

    token_id = TOKEN_ID
    name = _NAME
    rights = array(GrantedRight)
    expires_at_ms = nullable(instant())
    created_at_ms = instant()
    access_key_id = _KEY_ID


@TOKENS.operation("POST", _TOKENS, "admin", {201: NewToken}, TokenRequest)
def make_token(service: Service, request: TokenRequest) -> tuple[int, Json]:
    """Make a token.

    It needs the right `admin` on all topics, and a token to which nothing is denied: with it, one can make tokens that
    allow anything. If the answer is lost, make another one, and delete the first, which the list shows."""
    return 201, service.access.tokens.make(request.name, request.rights, request.expires_at_ms)


@TOKENS.operation("GET", _TOKENS, "admin", page_of("tokens", Token), Page)
def list_tokens(service: Service, request: Page) -> Json:
    """List the tokens.

    They come by id, without their secrets."""
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

    It is not valid any more, everywhere within {METADATA_AGE_MS_MAX} ms. Calls that have begun go on."""
    service.access.tokens.delete(token_id)


@TOKENS.operation("POST", _TOKEN + "/rotate", "admin", {200: NewToken}, RotateRequest)
def rotate_token(service: Service, token_id: str, request: RotateRequest) -> Json:
    """Rotate a token.

    It gets a new secret and a new secret access key. The older ones stay valid for `old_valid_ms`, so that a lost
    answer locks nobody out: rotate again. With 0 they are revoked, everywhere within {METADATA_AGE_MS_MAX} ms."""
    return service.access.tokens.rotate(token_id, request.old_valid_ms)
