"""Which addresses a webhook may have: public ones, so that a URL cannot reach what only this service can."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from chalicelib.base.fields import Label
from chalicelib.catalogue.push import Push, split_url

_NAT64 = IPv6Network("64:ff9b::/96")
_LOOPBACK_NAME = "localhost"


def demand_reachable(push: Push, allows_loopback: bool) -> None:
    """Raises InvalidField for a URL that is refused whatever its name resolves to. What that is now is for each call to
    check."""
    if push.url is None:
        return
    label = Label("push.url")
    parts = split_url(push.url, label)
    host = (parts.hostname or "").rstrip(".")
    address = literal(host)
    is_loopback = host == _LOOPBACK_NAME or host.endswith(f".{_LOOPBACK_NAME}")
    if parts.scheme != "https" and not allows_loopback:
        raise label.wrong("an https URL", push.url)
    if (is_loopback and not allows_loopback) or (address and not is_allowed(address, allows_loopback)):
        raise label.wrong("a URL with a public address, not a private, loopback or link-local one", push.url)


def literal(host: str) -> str | None:
    """The address that a host stands for without being resolved: `127.0.0.1` also for `127.1` and `0x7f000001`. None
    for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except (OSError, ValueError):
        return None


def is_allowed(address: str, allows_loopback: bool) -> bool:
    """Whether the address is public. One that carries another, as IPv6 does with those of IPv4, is as that one."""
    known: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(known, IPv6Address):
        carried = known.ipv4_mapped or known.sixtofour
        known = carried or (IPv4Address(known.packed[-4:]) if known in _NAT64 else known)
    if known.is_loopback:
        return allows_loopback
    return known.is_global and not (known.is_multicast or known.is_reserved)
