"""Keeps web pages away from a server without access control.

A browser lets any page send requests to this machine: their answers stay hidden from the page, but the server carries
them out. With a name of its own that resolves to 127.0.0.1 a page even reads the answers. Browsers send headers that
identify such a page; other clients send none of them, and pass.

<https://www.w3.org/TR/fetch-metadata/>, <https://fetch.spec.whatwg.org/#origin-header>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from chalicelib.core.base.errors import Forbidden
from chalicelib.core.base.fields import shown

_OWN = ("same-origin", "none")
"""Sites of a page of this server, and of an address that a person has typed."""
_LOOPBACK = re.compile(r"(.+\.)?localhost\.?|127(\.[0-9]{1,3}){3}|\[::1\]", re.IGNORECASE)
_SQS_PATH = re.compile(r"/?([0-9].*)?")
"""Where a query can name an action of SQS, which does more than show a page."""


@dataclass(frozen=True)
class OwnNames:
    """The names under which clients reach this server, in lower case, besides those of loopback. `numeric`: any address
    in digits too, since no page can have a name of its own resolve to a `Host` in digits."""

    names: frozenset[str] = frozenset()
    numeric: bool = False

    def has(self, name: str) -> bool:
        if _LOOPBACK.fullmatch(name) or name.lower().rstrip(".") in self.names:
            return True
        return self.numeric and _is_numeric(name)


LOOPBACK = OwnNames()


def _is_numeric(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def refuse_pages(method: str, path: str, query: str, headers: Mapping[str, str], own: OwnNames = LOOPBACK) -> None:
    """Raises Forbidden for a request that a page of another site makes. `headers`: by their names in lower case."""
    host = headers.get("host", "")
    name = re.sub(":[0-9]*$", "", host)
    if name and not own.has(name):
        raise _refused("host", "a name of this server, such as 'localhost' or what ALLOW_HOST lists", host)
    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[1:] != ("://", host.lower()):
        raise _refused("origin", f"that of the host, {shown(host)}", origin)
    site = headers.get("sec-fetch-site", "none")
    if site not in _OWN and not _shows_page(method, path, query, headers):
        raise _refused("sec-fetch-site", " or ".join(map(repr, _OWN)), site)


def _shows_page(method: str, path: str, query: str, headers: Mapping[str, str]) -> bool:
    """Whether a person follows a link to here: the page that has it reads nothing of the answer."""
    navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return navigates and headers.get("sec-fetch-dest") == "document" and not (query and _SQS_PATH.fullmatch(path))


def _refused(header: str, wanted: str, value: str) -> Forbidden:
    why = "a server without access control takes no requests of web pages; ACCESS=on has it ask for tokens instead"
    return Forbidden(f"header '{header}' must be {wanted}; it is {shown(value)}: {why}")
