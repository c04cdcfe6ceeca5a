"""Picks the DynamoDB client: our own (a quarter of boto3's CPU), or boto3 for settings that only boto3 supports. boto3
always resolves region, endpoint and credentials, and renews the credentials."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from time import gmtime, strftime
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

import orjson

from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.connections import Connections
from chalicelib.core.store.dynamodb.requests import Failed, NeverSent, NoAnswer, Trying, Unusable

_VERSION = "DynamoDB_20120810"
_ALWAYS = "content-type:application/x-amz-json-1.0\r\naccept-encoding:identity\r\nuser-agent:decant\r\n"

_FOR_BOTO = ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""Settings, in capitals or not, that need boto3's client."""
_OF_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE")

_COMMON_REGION = re.compile(r"(?!cn-)[a-z]{2}-(gov-)?[a-z]+-\d")
"""Regions whose endpoint has the common name. boto3 knows the others."""


class Client(Protocol):
    """Sends requests to DynamoDB. Parameters and responses follow its API, but bytes in responses may be in base64."""

    def ask(self, action: str, parameters: dict[str, Any], timeout_ms: int) -> Trying[Any]:
        """One try, of at most this time. Raises Trouble."""


_MEMBERS = {"BatchGetItem": "Responses", "Query": "Items"}
"""The member that each DynamoDB response has. A response without it is not from DynamoDB."""


class OwnClient:
    def __init__(self, connections: Connections, signer: Signer, now: Callable[[], int]) -> None:
        self._connections = connections
        self._signer = signer
        self._now = now

    def ask(self, action: str, parameters: dict[str, Any], timeout_ms: int) -> Trying[Any]:
        body = orjson.dumps(parameters, default=_in_base64)
        headers = self._signer.headers(f"{_VERSION}.{action}", body, self._now()) + _ALWAYS
        status, content = yield from self._connections.ask(headers, body, timeout_ms)
        return _content(status, content, _MEMBERS.get(action))


def open_client(runtime: Runtime, environ: Mapping[str, str]) -> Client:
    """Opens a client for the endpoint, region and credentials of the environment and boto3's files. If the environment
    has all of them, as in Lambda, it does not import boto3. Raises ValueError for unusable settings."""
    if any(environ.get(name) for name in (*_FOR_BOTO, *_PROXIES, *map(str.lower, _PROXIES))):
        return boto.Boto(boto.connect("dynamodb"))
    return _of_environment(runtime, environ) or _of_session(runtime)


def _of_environment(runtime: Runtime, environ: Mapping[str, str]) -> Client | None:
    """None outside Lambda and without an endpoint, since boto3's files may then have more settings."""
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    is_in_lambda = "AWS_LAMBDA_FUNCTION_NAME" in environ
    region = environ.get("AWS_DEFAULT_REGION") or (environ.get("AWS_REGION") if is_in_lambda else None)
    if not access_key or not secret_key or not region or any(name in environ for name in _OF_PROFILES):
        return None
    endpoint = environ.get("AWS_ENDPOINT_URL_DYNAMODB") or environ.get("AWS_ENDPOINT_URL")
    if not endpoint and not (is_in_lambda and _COMMON_REGION.fullmatch(region)):
        return None
    token = environ.get("AWS_SESSION_TOKEN", "").strip() or None
    found = Credentials(access_key.strip(), secret_key.strip(), token)
    trust = environ.get("AWS_CA_BUNDLE")
    return _own(endpoint or f"https://dynamodb.{region}.amazonaws.com", region, lambda: found, runtime, trust)


def _of_session(runtime: Runtime) -> Client:
    from botocore.session import get_session

    session, client = get_session(), boto.connect("dynamodb")
    setting = session.get_config_variable
    if setting("use_fips_endpoint") or setting("use_dualstack_endpoint"):
        return boto.Boto(client)

    def credentials() -> Credentials:
        """The session caches credentials. If it found none, each call looks again."""
        try:
            provider = boto.translated(session.get_credentials)
            frozen = boto.translated(provider.get_frozen_credentials) if provider else None
        except (NoAnswer, RuntimeError) as error:  # of the service that stores or renews them
            raise NeverSent(str(error)) from error
        if frozen is None:
            raise Unusable(boto.NO_CREDENTIALS)
        return Credentials(str(frozen.access_key), str(frozen.secret_key), frozen.token)

    return _own(client.meta.endpoint_url, client.meta.region_name, credentials, runtime, setting("ca_bundle"))


def _own(
    endpoint: str, region: str, credentials: Callable[[], Credentials], runtime: Runtime, trust: str | None
) -> Client:
    parts = urlsplit(endpoint)
    if not _is_address(parts):
        raise ValueError(f"the endpoint of DynamoDB must be http:// or https:// and a host; it is {endpoint!r}")
    if parts.path.strip("/"):
        return boto.Boto(boto.connect("dynamodb"))
    connections = Connections(endpoint, runtime.uptime, trust)
    return OwnClient(connections, Signer(connections.host, region, credentials), runtime.now)


def _is_address(parts: SplitResult) -> bool:
    try:
        port = parts.port
    except ValueError:
        return False
    is_bare = not (parts.query or parts.fragment or parts.username)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and is_bare


def _content(status: int, body: bytes, member: str | None) -> Any:
    """The response, which must have this member."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    is_object = isinstance(content, dict)
    if status < 300:
        if not is_object:
            raise NoAnswer("an answer that is not JSON, or no object")
        if member and member not in content:
            raise NoAnswer(f"an answer without {member}")
        return content
    content = content if is_object else {}
    code = str(content.get("__type", status)).rpartition("#")[2]
    message = content.get("message") or content.get("Message") or ""
    raise Failed(code, message, status, content.get("Item"), content.get("CancellationReasons") or [])


def _in_base64(value: Any) -> str:
    if not isinstance(value, bytes):
        raise TypeError
    return b64encode(value).decode()


# -- signatures -------------------------------------------------------------------------------------------------------

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None


class Signer:
    """`credentials` is called for each request, since they may be temporary."""

    def __init__(self, host: str, region: str, credentials: Callable[[], Credentials], service: str = "dynamodb"):
        self._host = host
        self._region = region
        self._credentials = credentials
        self._service = service
        self._kept: tuple[str, str, bytes] = ("", "", b"")

    def headers(self, target: str, body: bytes, now_ms: int) -> str:
        """The headers of `POST /` with this `x-amz-target` and body, each with the end of its line."""
        access_key, secret_key, token = self._credentials()
        at = strftime("%Y%m%dT%H%M%SZ", gmtime(now_ms // SECOND_MS))
        day = at[:8]
        signed = f"host:{self._host}\nx-amz-date:{at}\n"
        names = "host;x-amz-date"
        if token:
            signed += f"x-amz-security-token:{token}\n"
            names += ";x-amz-security-token"
        if target:
            signed += f"x-amz-target:{target}\n"
            names += ";x-amz-target"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        request = f"POST\n/\n\n{signed}\n{names}\n{sha256(body).hexdigest()}"
        to_sign = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key(secret_key, day), to_sign.encode(), "sha256").hex()
        authorization = f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return f"{signed}authorization:{authorization}\n".replace("\n", "\r\n")

    def _key(self, secret_key: str, day: str) -> bytes:
        """The key of the day, which takes four of the five digests of a signature."""
        kept_secret, kept_day, key = self._kept
        if (kept_secret, kept_day) != (secret_key, day):
            key = f"AWS4{secret_key}".encode()
            for step in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, step.encode(), "sha256")
            self._kept = (secret_key, day, key)
        return key
