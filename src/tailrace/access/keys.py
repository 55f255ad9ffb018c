"""The keys that the server knows: those of the configuration, and those in the metadata database.

The database may get and lose keys while the server runs, by `tailrace token`. A key that nobody has seen is looked up
when it is first used; whether one was revoked is asked every `POLL_S`.
"""

import logging
from collections.abc import Mapping
from hmac import compare_digest

import msgspec
from msgspec import Struct

from tailrace.access.grant import Grant, check_grant, principal_of
from tailrace.access.key import key_hash, looks_like_key
from tailrace.access.limit import RateLimits
from tailrace.access.principal import Principal
from tailrace.clock import Clock
from tailrace.meta.key_store import KeyStore, StoredKey
from tailrace.model.errors import InvalidRequestError, MetadataError

__all__ = ["Keys", "credential_of"]

logger = logging.getLogger(__name__)

_LOOKUPS_PER_S = 50.0
_LOOKUPS_BURST = 50
"""How often strange keys are looked up; strangers who try more must wait, whoever has a known key need not."""

_UNKNOWN = (-1, -1)
"""Version of the stored keys that is no other's."""


class _Known(Struct, frozen=True):
    hash: str
    principal: Principal


class Keys:
    """Finds the principal of an API key. For tasks of one event loop."""

    def __init__(self, fixed: Mapping[str, Principal], store: KeyStore, pepper: str, clock: Clock) -> None:
        """Know the `fixed` keys of the configuration, by the key itself, besides those in the store."""
        self._pepper = pepper
        self._store = store
        hashed = {key_hash(token, pepper): principal for token, principal in fixed.items()}
        self._fixed = {hash_: _Known(hash_, principal) for hash_, principal in hashed.items()}
        self._stored: dict[str, _Known] = {}
        self._credentials: set[str] = set()
        self._version = _UNKNOWN
        self._lookups = RateLimits(_LOOKUPS_PER_S, _LOOKUPS_BURST, clock)

    async def find(self, token: str) -> Principal | None:
        """Return the principal of a key, whether or not its time is up; None where there is none.

        Raises:
            RateLimitError: Too many keys that nobody knows were tried just now.
            MetadataError: The database refused to look it up.
        """
        hash_ = key_hash(token, self._pepper)
        known = self._fixed.get(hash_) or self._stored.get(hash_)
        if known is None and looks_like_key(token):
            self._lookups.take("")
            known = self._keep(await self._store.find(hash_))
            self._version = _UNKNOWN  # one that goes before the next look must be missed then
        return known.principal if known is not None and compare_digest(known.hash, hash_) else None

    async def refresh(self) -> frozenset[str]:
        """Learn what keys the database has now; return the credentials that it had when last asked, and lost.

        A database that does not answer changes nothing: keys that were known stay known.
        """
        known = frozenset(self._stored)
        try:
            version = await self._store.version()
            if version == self._version:
                return frozenset()
            self._version = version  # before the wait: a key that is found meanwhile makes it unknown again
            stored = await self._store.keys()
        except MetadataError:
            self._version = _UNKNOWN
            logger.warning("the metadata database does not tell which keys there are")
            return frozenset()
        before = self._stored
        self._stored = {hash_: kept for hash_, kept in before.items() if hash_ not in known}
        self._credentials = {kept.principal.credential for kept in self._stored.values()}
        for key in stored:
            self._keep(key)
        gone = before.keys() - self._stored.keys()
        return frozenset(before[hash_].principal.credential for hash_ in gone)

    def admits(self, credential: str) -> bool:
        """Tell whether a stored key was there when the database was last asked; without a name it is none of those."""
        return not credential or credential in self._credentials

    def _keep(self, key: StoredKey | None) -> _Known | None:
        if key is None:
            return None
        try:
            grant = msgspec.json.decode(key.grant, type=Grant)
            check_grant(grant)
        except (msgspec.DecodeError, InvalidRequestError):
            logger.warning("a stored key cannot be read and admits nobody", extra={"key": key.id})
            return None
        principal = principal_of(key.name, grant, expires_time_us=key.expires_time_us, credential=credential_of(key.id))
        self._stored[key.hash] = _Known(key.hash, principal)
        self._credentials.add(principal.credential)
        return self._stored[key.hash]


def credential_of(key_id: int) -> str:
    """Return the name of a stored key among all credentials."""
    return f"key-{key_id}"
