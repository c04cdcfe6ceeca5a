"""Where the service is: the URL, taken apart."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from decant.errors import SettingError


class Address(NamedTuple):
    """The service's address."""

    url: str
    is_tls: bool
    host: str
    port: int
    prefix: str
    """The path before that of each operation, such as `/prod`."""

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def parsed(url: str, source: str = "the url") -> Address:
    """Raises SettingError, which names the source."""
    shown = _without_secret(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose text may show a part of the password
        raise SettingError(f"{source} is no address: {shown!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"{source} must look like http://127.0.0.1:8000; it is {shown!r}")
    if parts.username is not None or parts.query or parts.fragment or re.search(r"[\x00-\x20\x7f-\uffff]", url):
        raise SettingError(f"{source} must have host, port and path alone; it is {shown!r}")
    is_tls = parts.scheme == "https"
    default = 443 if is_tls else 80
    return Address(url.rstrip("/"), is_tls, parts.hostname, default if port is None else port, parts.path.rstrip("/"))


def _without_secret(url: str) -> str:
    return re.sub(r"^(https?://)?.*@", r"\1...@", url, flags=re.DOTALL)
