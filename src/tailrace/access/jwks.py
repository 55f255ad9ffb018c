"""Public keys of web tokens, out of a JWKS file that may be replaced while the server runs."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import msgspec
from msgspec import Struct

from tailrace.clock import Clock
from tailrace.model.errors import ConfigError

__all__ = ["JwksFile", "read_jwks"]

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
"""How often the file is looked at, when keys are asked for."""

_RSA_BITS_MIN = 2048


class JwksFile:
    """The RSA public keys of a JWKS file, read again when the file has changed. For tasks of one event loop."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Read the file.

        Raises:
            ConfigError: It cannot be read, or holds nothing that verifies RS256.
        """
        self._path = path
        self._clock = clock
        self._due_s = clock.monotonic_s() + _LOOK_EVERY_S
        try:
            self._stamp = self._stamp_now()
            self._keys = read_jwks(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"auth.jwks_file: cannot read {path}: {error.strerror}") from error

    def keys(self) -> Mapping[str, Any]:
        """Return the keys by their ids. A file that cannot be read leaves those of the last one that could."""
        if self._clock.monotonic_s() >= self._due_s:
            self._due_s = self._clock.monotonic_s() + _LOOK_EVERY_S
            try:
                stamp = self._stamp_now()
                if stamp != self._stamp:
                    self._keys = read_jwks(self._path.read_bytes())
                    self._stamp = stamp
            except (OSError, ConfigError):
                logger.warning("the JWKS file cannot be read: its keys stay as they were")
        return self._keys

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino


def read_jwks(document: bytes) -> Mapping[str, Any]:
    """Return the RSA public keys of a JWKS document by their ids; those for other uses are left out.

    Raises:
        ConfigError: It is not one, or holds nothing that verifies RS256.
    """
    try:
        entries = msgspec.json.decode(document, type=_Jwks).keys
        keys: dict[str, Any] = {}
        for place, entry in enumerate(entries):
            if entry.get("kty") != "RSA" or entry.get("use", "sig") != "sig" or entry.get("alg", "RS256") != "RS256":
                continue
            public = {name: entry[name] for name in ("kty", "n", "e")}
            key = jwt.PyJWK(public, algorithm="RS256").key
            if key.key_size < _RSA_BITS_MIN:
                raise ConfigError(f"auth.jwks_file: a key has {key.key_size} bits, fewer than {_RSA_BITS_MIN}")
            keys[str(entry.get("kid", f"#{place}"))] = key
    except (msgspec.DecodeError, jwt.PyJWTError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"auth.jwks_file is not a JWKS document: {type(error).__name__}") from error
    if not keys:
        raise ConfigError("auth.jwks_file holds no RSA key for signatures")
    return keys


class _Jwks(Struct, frozen=True):
    keys: list[dict[str, Any]]
