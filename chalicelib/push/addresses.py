"""The addresses that a webhook may have: public ones, so that a URL cannot reach hosts that only this service can
reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from chalicelib.core.base.fields import Label
from chalicelib.core.catalogue.push import Push, split_url

# The tables are of this module, since `is_global` differs from one version of Python to the next. They follow
# https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry, as of October 2025.

_SPECIAL_V4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared: of carriers, and of Alibaba Cloud's metadata
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, also those of it that are global: no webhook is a NAT or a relay
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # Azure's wire server: public by the registries, and reached from every machine there
    )
]
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All networks assigned to hosts. The rest is loopback, local, multicast, deprecated or reserved."""
_SPECIAL_V6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID; as those of IPv4
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
_NAT64 = IPv6Network("64:ff9b::/96")
"""The one prefix of translators that is global; 64:ff9b:1::/48 is for local use."""
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")
"""Precedes an IPv4 address in the second half of an IPv6 address."""
_LOOPBACK_NAME = "localhost"


def demand_reachable(push: Push, allows_loopback: bool) -> None:
    """Raises InvalidField for a URL that is refused whatever its name resolves to. Each call checks the resolved
    addresses."""
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
    """The address that a host spells without a look-up: `127.0.0.1` also for `127.1` and `0x7f000001`. None for a
    name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except (OSError, ValueError):
        return None


def is_allowed(address: str, allows_loopback: bool) -> bool:
    """Whether the address is public, and so is each IPv4 address embedded in it."""
    known = ip_address(address.partition("%")[0])
    return all(_is_public(each) or (each.is_loopback and allows_loopback) for each in _with_carried(known))


def _with_carried(known: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The addresses that traffic to it may reach. If its prefix only marks an embedded address, that address alone
    counts."""
    if isinstance(known, IPv4Address):
        yield known
    elif carried := known.ipv4_mapped or (IPv4Address(known.packed[-4:]) if known in _NAT64 else None):
        yield carried
    else:
        yield known
        if known.sixtofour:
            yield known.sixtofour
        if known.packed[8:12] in _ISATAP:
            yield IPv4Address(known.packed[-4:])


def _is_public(known: IPv4Address | IPv6Address) -> bool:
    if isinstance(known, IPv4Address):
        return not any(known in network for network in _SPECIAL_V4)
    return known in _GLOBAL_V6 and not any(known in network for network in _SPECIAL_V6)
