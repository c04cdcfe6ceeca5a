"""Checks AWS Signature Version 4, which clients of SQS send in the header `Authorization`, and those of DynamoDB too.

A signature covers the method, the path, the query, some headers, and the body.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from itertools import pairwise
from time import gmtime, strftime
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.doors.http.exchange import Request
from chalicelib.doors.sqs.errors import SqsError

SKEW_S_MAX = 15 * 60
"""By how much the clock of a client may differ from ours, as in AWS. A request can be repeated for as long."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_ASYMMETRIC = "AWS4-ECDSA-P256-SHA256"
SERVICE, _END = "sqs", "aws4_request"
_DATE, _HASH, _TARGET = "x-amz-date", "x-amz-content-sha256", "x-amz-target"

_PARAMETERS = re.compile(r"(Credential|SignedHeaders|Signature)=([^\s,]*)")
_CREDENTIAL = re.compile("([^/]*)/([0-9]{8})/([^/]+)/([^/]+)/([^/]+)")
_NAMES = re.compile("[!-9<-@\\[-~]++(;[!-9<-@\\[-~]++)*+")
"""Names of headers: anything but capitals, `:` and `;`."""
_SIGNATURE = re.compile("[0-9a-f]{64}")
_STAMP = re.compile("([0-9]{8})T[0-9]{6}Z")
_SPACES = re.compile("[ \t]+")
_KEYS_MAX = 1_000
"""Keys of a day that an instance keeps: one for each secret in use."""


class Signed(NamedTuple):
    """A signature that the secret of this access key may have made, within the last minutes. `day`, `region`,
    `service`: those that it is good for. `text`: gives what it signs, for which the whole request is read: who has no
    key is not worth that time."""

    access_key_id: str
    day: str
    region: str
    text: Callable[[], bytes]
    signature: str
    service: str

    def is_proved_by(self, secret: str) -> bool:
        """Raises SqsError if no secret would make the signature right."""
        made = hmac.digest(_key(secret, self.day, self.region, self.service), self.text(), "sha256")
        return hmac.compare_digest(made.hex(), self.signature)


def signed(request: Request, region: str | None, now_ms: int, service: str = SERVICE) -> Signed:
    """The signature of a request to a service of AWS, as its clients name it. `region`: this deployment's; None: any.
    Raises SqsError for a request that has none, or one that is malformed, too old or of another place."""
    parameters, headers = _parameters(request), _headers(request)
    access_key_id, day, own_region = _scope(parameters["Credential"], region, service)
    if not _SIGNATURE.fullmatch(parameters["Signature"]):
        raise _incomplete("Signature in the header Authorization must be 64 hexadecimal digits in lower case.")
    names = _names(headers, parameters["SignedHeaders"])
    stamp = _stamp(headers[_DATE], day, now_ms)
    scope = f"{day}/{own_region}/{service}/{_END}"

    @cache
    def text() -> bytes:
        canonical = sha256(_canonical(request, headers, names)).hexdigest()
        return _encoded(f"{_ALGORITHM}\n{stamp}\n{scope}\n{canonical}")

    return Signed(access_key_id, day, own_region, text, parameters["Signature"], service)


def claimed_key(request: Request, region: str | None) -> str:
    """The id of the access key that the head names, proved or not. Raises SqsError."""
    return _scope(_parameters(request)["Credential"], region, SERVICE)[0]


@lru_cache(_KEYS_MAX)
def _key(secret: str, day: str, region: str, service: str) -> bytes:
    """The key with which the secret signs on this day: four of the five digests of a signature."""
    key = f"AWS4{secret}".encode()
    for step in (day, region, service, _END):
        key = hmac.digest(key, _encoded(step), "sha256")
    return key


def _encoded(text: str) -> bytes:
    """Different texts stay different, also those that UTF-8 does not have."""
    return text.encode(errors="surrogatepass")


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignature", message)


def _mismatch(message: str) -> SqsError:
    return SqsError("SignatureDoesNotMatch", message)


# -- what the client says of its signature ----------------------------------------------------------------------------


def _parameters(request: Request) -> Mapping[str, str]:
    """Those of the header `Authorization`, whose values may be anything but missing."""
    if any(name.lower() == "x-amz-signature" for name, _ in request.query):
        raise _incomplete("Presigned URLs are not accepted: the signature must be in the header Authorization.")
    authorization = request.headers.get("authorization")
    if not authorization:
        raise SqsError("MissingAuthenticationToken", f"The request must have a header Authorization with {_ALGORITHM}.")
    algorithm, _, rest = authorization.strip().partition(" ")
    if algorithm == _ASYMMETRIC:
        raise _incomplete(f"Signature Version 4A ({_ASYMMETRIC}) is not accepted: sign with {_ALGORITHM}.")
    if algorithm != _ALGORITHM:
        raise _incomplete(f"The header Authorization must begin with {_ALGORITHM}.")
    parts = rest.split(",", 3)
    parameters = {found[1]: found[2] for part in parts if (found := _PARAMETERS.fullmatch(part.strip()))}
    if len(parameters) < 3 or len(parts) > 3:
        wanted = "Credential, SignedHeaders and Signature, each once, separated by commas"
        raise _incomplete(f"The header Authorization must have {wanted}.")
    return parameters


def _scope(credential: str, region: str | None, service: str) -> Sequence[str]:
    """The access key id, the day and the region."""
    match = _CREDENTIAL.fullmatch(credential)
    if match is None:
        wanted = f"<access key id>/<YYYYMMDD>/<region>/{service}/{_END}"
        raise _incomplete(f"Credential must be {wanted}; it is {quoted(credential)}.")
    access_key_id, day, own_region, own_service, end = match.groups()
    if not access_key_id:
        raise _incomplete("Anonymous requests are not accepted: Credential has no access key id.")
    for name, value, wanted in (
        ("region", own_region, region or own_region),
        ("service", own_service, service),
        ("end", end, _END),
    ):
        if value != wanted:
            raise _mismatch(f"The {name} in Credential must be {quoted(wanted)}; it is {quoted(value)}.")
    return access_key_id, day, own_region


def _names(headers: Mapping[str, str], text: str) -> Sequence[str]:
    """The signed headers. In any other order or number, one header could be signed thousands of times."""
    names = text.split(";")
    if not _NAMES.fullmatch(text) or any(name >= later for name, later in pairwise(names)):
        wanted = "names in lower case, in order, each once, separated by ';'"
        raise _incomplete(f"SignedHeaders must be {wanted}; it is {quoted(text)}.")
    for name in ("host", _DATE, *([_TARGET] if _TARGET in headers else [])):
        if name not in names:
            raise _incomplete(f"The header {name} must be signed; SignedHeaders is {quoted(text)}.")
    for name in names:
        if name not in headers:
            raise _incomplete(f"The header {quoted(name)} is signed, and did not arrive.")
    return names


def _stamp(stamp: str, day: str, now_ms: int) -> str:
    """When the request was signed. Stamps sort by time."""
    match = _STAMP.fullmatch(stamp)
    if match is None:
        raise _incomplete(f"The header {_DATE} must be <YYYYMMDD>T<HHMMSS>Z; it is {quoted(stamp)}.")
    if match[1] != day:
        raise _mismatch(f"The day in Credential must be that of {_DATE}, {match[1]}; it is {day}.")
    now_s = now_ms // SECOND_MS
    now, earliest, latest = (_spelled(second) for second in (now_s, now_s - SKEW_S_MAX, now_s + SKEW_S_MAX))
    if stamp < earliest:
        raise _mismatch(f"Signature expired: {stamp} is now earlier than {earliest} ({now} - 15 min.)")
    if stamp > latest:
        raise _mismatch(f"Signature not yet current: {stamp} is still later than {latest} ({now} + 15 min.)")
    return stamp


def _spelled(second: int) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(second))


# -- what is signed ---------------------------------------------------------------------------------------------------


def _canonical(request: Request, headers: Mapping[str, str], names: Sequence[str]) -> bytes:
    """No longer than the request, but for its percent signs: each header is in it once."""
    lines = [
        request.method,
        quote(_encoded(request.prefix + request.path or "/"), safe="/~"),
        _query(request),
        *(f"{name}:{_folded(headers[name])}" for name in names),
        "",
        ";".join(names),
        _body_hash(request),
    ]
    return _encoded("\n".join(lines))


def _query(request: Request) -> str:
    """Sorted, and each part encoded in one way, whatever way it was sent in."""
    if request.raw_query is None:
        pairs = [(_encoded(name), _encoded(value)) for name, value in request.query]
    else:
        parts = [part.replace("+", " ").partition("=") for part in request.raw_query.split("&") if part]
        pairs = [(unquote_to_bytes(_encoded(name)), unquote_to_bytes(_encoded(value))) for name, _, value in parts]
    return "&".join(f"{name}={value}" for name, value in sorted((quote(n, ""), quote(v, "")) for n, v in pairs))


def _headers(request: Request) -> Mapping[str, str]:
    """With the length of the body, which a REST API does not hand on, and some clients sign."""
    return {"content-length": str(len(request.body)), **request.headers}


def _folded(value: str) -> str:
    return _SPACES.sub(" ", value).strip(" ")


def _body_hash(request: Request) -> str:
    digest = sha256(request.body).hexdigest()
    given = request.headers.get(_HASH, digest)
    if given == digest:
        return digest
    if given.startswith(("UNSIGNED-PAYLOAD", "STREAMING-")):
        raise _incomplete(f"The body must be signed: {_HASH} must be its SHA-256; it is {quoted(given)}.")
    raise _mismatch(f"The header {_HASH} must be the SHA-256 of the body, {digest}; it is {quoted(given)}.")
