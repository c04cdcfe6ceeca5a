"""Checks the signatures of clients of MQ over HTTP, in the header `Authorization`.

A signature covers the method, path and query, and the headers `Content-MD5`, `Content-Type`, `Date` and `x-mq-*`. It
covers the body only where the client sends `Content-MD5`.
Source: https://www.alibabacloud.com/help/en/doc-detail/102998.htm
"""

from __future__ import annotations

import base64
import hmac
import re
from calendar import timegm
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from time import strptime
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.doors.http.exchange import Request
from chalicelib.doors.mqhttp.errors import MqError

SKEW_MS_MAX = 15 * MINUTE_MS
"""By how much the clock of a client may differ from ours. A request can be repeated for as long."""

_AUTHORIZATION = re.compile(r"MQ ([^\s:]+):(\S+)")
_DATE = "%a, %d %b %Y %H:%M:%S GMT"

_ORDERS = (
    ("consumer", "numOfMessages", "ns", "waitseconds", "tag", "trans"),  # Python
    ("numOfMessages", "consumer", "ns", "tag", "waitseconds", "trans"),  # Java
    ("consumer", "trans", "ns", "numOfMessages", "waitseconds", "tag"),  # Go
    ("consumer", "ns", "tag", "numOfMessages", "waitseconds", "trans"),  # Node
    ("consumer", "ns", "trans", "numOfMessages", "waitseconds"),  # Node, half messages
)
"""In which SDKs write the query."""
_ENCODINGS: tuple[Callable[[str], str], ...] = (
    partial(quote, errors="surrogatepass"),
    partial(quote, safe="!'()*~", errors="surrogatepass"),
    partial(quote_plus, safe="*", errors="surrogatepass"),
    partial(quote_plus, errors="surrogatepass"),
)
"""By which SDKs encode values: Python, Node, Java, Go."""
_PARAMETERS_MAX = 16
"""Parameters of a query whose spelling has to be guessed: SDKs write six at most, and each is spelled in 24 ways."""


class Signed(NamedTuple):
    """A signature that the secret of this access key may have made, within the last minutes. `texts`: gives what it may
    sign, up to 48 texts as long as the request's head: who has no key is not worth that time."""

    access_key_id: str
    texts: Callable[[], Sequence[bytes]]
    signature: bytes

    def is_proved_by(self, secret: str) -> bool:
        """Raises MqError for a query that no client of MQ signs."""
        made = (base64.b64encode(hmac.digest(secret.encode(), text, "sha1")) for text in self.texts())
        return any(hmac.compare_digest(each, self.signature) for each in made)


def signed(request: Request, now_ms: int) -> Signed:
    """The signature of a request. Raises MqError for a request that has none, or one that is malformed or too old."""
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise MqError("MissingAuthorizationHeader", "Authorization header is required.")
    match = _AUTHORIZATION.fullmatch(authorization)
    if match is None:
        raise MqError("InvalidAuthorizationHeader", "header 'Authorization' must be 'MQ <access key id>:<signature>'")
    date = request.headers.get("date")
    if date is None:
        raise MqError("MissingDateHeader", "Date header is required.")
    _demand_recent(date, now_ms)
    return Signed(match[1], cache(lambda: _texts(request, date)), _encoded(match[2]))


def _demand_recent(date: str, now_ms: int) -> None:
    try:
        sent_at_s = timegm(strptime(date, _DATE))
    except ValueError:
        wanted = "like 'Thu, 01 Jan 2026 00:00:00 GMT'"
        raise MqError("InvalidDateHeader", f"header 'Date' must be {wanted}; it is {quoted(date)}") from None
    if abs(sent_at_s * SECOND_MS - now_ms) > SKEW_MS_MAX:
        minutes = SKEW_MS_MAX // MINUTE_MS
        wanted = f"within {minutes} minutes of the service's clock"
        raise MqError("TimeExpired", f"header 'Date' must be {wanted}; it is {quoted(date)}")


def _texts(request: Request, date: str) -> list[bytes]:
    headers = request.headers
    given_type = headers.get("content-type", "")
    types = [given_type] if request.body else dict.fromkeys([given_type, ""])  # fronts add one where there is no body
    own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-mq-"))
    return [
        _encoded(f"{request.method}\n{headers.get('content-md5', '')}\n{kind}\n{date}\n{own}{target}")
        for kind in types
        for target in _targets(request)
    ]


def _targets(request: Request) -> Iterable[str]:
    """Path and query, as the client may have sent them. Clients do not sign what stands before their own path."""
    queries = _spellings(request.query) if request.raw_query is None else [request.raw_query]
    return [f"{request.path}?{query}" if query else request.path for query in queries]


def _spellings(pairs: Sequence[tuple[str, str]]) -> Iterable[str]:
    """The query, which the front does not tell as it was sent, in each order and encoding of the SDKs. Raises
    MqError."""
    if len(pairs) > _PARAMETERS_MAX:
        wanted = f"at most {_PARAMETERS_MAX} parameters"
        raise MqError("InvalidQueryString", f"the query must have {wanted}; it has {len(pairs)}")
    encoded = dict.fromkeys(tuple((name, encode(value)) for name, value in pairs) for encode in _ENCODINGS)
    ordered = (each for given in encoded for each in (given, *(_in_order(given, order) for order in _ORDERS)))
    return dict.fromkeys("&".join(f"{name}={value}" for name, value in each) for each in ordered)


def _in_order(pairs: Sequence[tuple[str, str]], order: Sequence[str]) -> Sequence[tuple[str, str]]:
    return sorted(pairs, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
