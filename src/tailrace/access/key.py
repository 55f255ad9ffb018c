"""API keys: how they are made, and the hash by which they are known. Pure but for randomness.

A key is shown once, when it is made. What is kept is the hex SHA-256 of it, or with a pepper the hex HMAC-SHA256 under
that: whoever reads the metadata database learns no key.
"""

import hashlib
import hmac
import secrets

__all__ = ["key_hash", "looks_like_key", "make_key"]

_PREFIX = "tr_"
_SECRET_BYTES = 32
_CHARACTERS = len(_PREFIX) + 43
"""Length of a key: the prefix, and 32 bytes in base64 for URLs without padding."""


def make_key() -> str:
    """Return a new key, as hard to guess as 256 random bits are."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def looks_like_key(token: str) -> bool:
    """Tell whether a token may be one that `make_key` made."""
    return token.startswith(_PREFIX) and len(token) == _CHARACTERS


def key_hash(token: str, pepper: str) -> str:
    """Return the hash under which a key is kept."""
    data = token.encode("utf-8", "surrogatepass")
    if pepper:
        return hmac.new(pepper.encode(), data, hashlib.sha256).hexdigest()
    return hashlib.sha256(data).hexdigest()
