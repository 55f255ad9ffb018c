"""Addresses that a web hook may go to: whoever may name a URL shall not thereby reach inside the network we run in."""

import ipaddress
import socket
from collections.abc import Callable

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError

__all__ = ["Resolve", "resolved", "system_addresses"]

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that stand for those of IPv4, which are their last bits."""

_GLOBAL = ipaddress.IPv6Network("2000::/3")
"""Where public addresses of IPv6 are; all others are of no network but one's own, or stand for those of IPv4."""

Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host. Raises OSError where there are none."""


def system_addresses(host: str, port: int) -> list[str]:
    """Return the addresses that the system knows for a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolved(host: str, port: int, *, allow_private: bool, resolve: Resolve = system_addresses) -> list[str]:
    """Return the addresses to connect to, one of which is then connected to whatever the name says a moment later.

    Raises:
        SinkUnavailableError: The name cannot be looked up now.
        SinkRefusedError: One of its addresses is not public, and only those are allowed.
    """
    try:
        addresses = resolve(host, port)
    except OSError:
        raise SinkUnavailableError(f"the host {host!r} cannot be looked up") from None
    if not allow_private and not all(_is_public(address) for address in addresses):
        raise SinkRefusedError(
            f"the host {host!r} is in a private network: web hooks go there only with the option allow_private=true"
        )
    return addresses


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        translated = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _TRANSLATED else None
        inner = parsed.ipv4_mapped or parsed.sixtofour or translated
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if parsed not in _GLOBAL:
            return False
    return parsed.is_global and not parsed.is_multicast
