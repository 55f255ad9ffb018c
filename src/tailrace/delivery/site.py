"""Which names a server answers to, and which web pages may call it. Pure.

A browser sends what any page asks it to, to any address that the page names, this machine's loopback included. Two
headers tell: `Origin` is the page's own site, `Host` the name by which it reached the server. A page that had its own
name resolve to our address (DNS rebinding) counts as the same origin, and is known by its name in `Host` alone.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from tailrace.model.errors import ConfigError, HostRefusedError, InvalidRequestError, OriginRefusedError

__all__ = ["Site", "check_site", "is_loopback", "only_one"]

ANY = "*"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\\s]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#@\\\s]+)", re.ASCII)
_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_OWN_SITE = frozenset({"same-origin", "none"})
"""What `Sec-Fetch-Site` says of a page of our own, and of an address that a person typed."""

_AUTHORITY_CHARACTERS_MAX = 300
"""Longest name with a port that is looked at; DNS has none of more than 253."""

_REMEMBERED = 256
"""Names whose verdict is kept: a client sends the same one with each call."""


class Site:
    """The names and origins that a server serves.

    Where it is `guarded`, credentials are what keeps strangers out: then names and origins are looked at only where
    some are configured. Otherwise `Host` must be a loopback name, the address that the connection came to, the name
    of the setting `host`, or one of `hosts`; and a page must be of the same origin or of `origins`.
    """

    def __init__(
        self,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        *,
        listening: str = "127.0.0.1",
        guarded: bool = False,
    ) -> None:
        named = [name.lower() for name in hosts]
        self.origins = frozenset(map(_plain_origin, origins))
        self._names = frozenset(_plain_host(name) for name in (*named, listening) if "*" not in name)
        self._suffixes = tuple(name[1:] for name in named if name.startswith("*."))
        self._any_host = ANY in named or (guarded and not named)
        self._any_origin = ANY in self.origins or (guarded and not self.origins)
        self._serves = lru_cache(_REMEMBERED)(self._judge)

    def check_host(self, authority: str | None, local: str | None) -> None:
        """Check the name by which a client calls the server; `local` is the address that its connection came to.

        Raises:
            HostRefusedError: The server does not answer to that name.
        """
        if authority is None or self._any_host:
            return
        if len(authority) > _AUTHORITY_CHARACTERS_MAX or not self._serves(authority, local):
            raise HostRefusedError(authority)

    def check_origin(
        self, origin: str | None, authority: str | None, scheme: str = "http", fetch_site: str | None = None
    ) -> None:
        """Check which page calls. `scheme` is what the connection speaks, `fetch_site` what the browser says of it.

        Without an origin the caller is no page, or a page of which only `Sec-Fetch-Site` tells whether it is ours.

        Raises:
            OriginRefusedError: A page of another site calls.
        """
        if self._any_origin:
            return
        if origin is None:
            if fetch_site is not None and fetch_site.lower() not in _OWN_SITE:
                raise OriginRefusedError(None)
        elif _plain_origin(origin) not in self.origins and not _is_same(origin, authority, scheme):
            raise OriginRefusedError(origin)

    def _judge(self, authority: str, local: str | None) -> bool:
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        host = _plain_host(match["host"])
        if host in self._names or host.endswith(self._suffixes):
            return True
        return is_loopback(host) or (local is not None and host == _plain_host(local))


def check_site(hosts: Iterable[str], origins: Iterable[str]) -> None:
    """Check the two lists as they are configured.

    Raises:
        ConfigError: One of them is no name, or no origin.
    """
    for host in hosts:
        if host != ANY and not _NAME.fullmatch(host) and not _is_address(host):
            raise ConfigError(
                f"allowed_hosts: {host!r} is not a host name or address: write it without scheme and port"
            )
    for origin in origins:
        match = _ORIGIN.fullmatch(origin)
        is_origin = match is not None and ANY not in origin and _AUTHORITY.fullmatch(match["authority"])
        if origin not in (ANY, "null") and not is_origin:
            raise ConfigError(f"allowed_origins: {origin!r} is not an origin: write it as https://app.example.com")


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address is one of this machine alone."""
    name = _plain_host(host)
    if _is_address(name):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def only_one(values: Iterable[str], name: str) -> str | None:
    """Return the only value of a header; None where there is none.

    Raises:
        InvalidRequestError: There are several, so that others may have read another one.
    """
    found = list(values)
    if len(found) > 1:
        raise InvalidRequestError(f"the request has {len(found)} headers {name}; send one")
    return found[0] if found else None


def _is_same(origin: str, authority: str | None, scheme: str) -> bool:
    """Tell whether an origin is that of the server. A proxy may speak TLS for us, so a secure origin is as good."""
    match = _ORIGIN.fullmatch(origin)
    if match is None or authority is None:
        return False
    spoken = match["scheme"].lower()
    if spoken not in _DEFAULT_PORTS or (scheme == "https" and spoken != "https"):
        return False
    ours = _place(authority, spoken)
    return ours is not None and ours == _place(match["authority"], spoken)


def _place(authority: str, scheme: str) -> tuple[str, int] | None:
    match = _AUTHORITY.fullmatch(authority)
    return None if match is None else (_plain_host(match["host"]), int(match["port"] or _DEFAULT_PORTS[scheme]))


def _plain_origin(origin: str) -> str:
    """Return an origin as browsers write it: in lower case, without the default port of its scheme."""
    match = _ORIGIN.fullmatch(origin)
    if match is None or (scheme := match["scheme"].lower()) not in _DEFAULT_PORTS:
        return origin.lower()
    place = _place(match["authority"], scheme)
    if place is None:
        return origin.lower()
    host, port = f"[{place[0]}]" if ":" in place[0] else place[0], place[1]
    return f"{scheme}://{host}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"


def _plain_host(host: str) -> str:
    """Return a name or an address as it compares."""
    name = host.removeprefix("[").removesuffix("]").partition("%")[0].lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
