"""Web tokens (JWT): signatures, times and claims. Pure but for the clock: keys are read elsewhere.

A token is verified by the kind of key that its algorithm goes with, HS256 by the secret and RS256 by a public key of
the JWKS document; so a public key is never taken for a secret. An algorithm without a key is refused, as is `none`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jwt
import msgspec
from msgspec import Struct

from tailrace.access.grant import Grant, check_grant, principal_of
from tailrace.access.principal import Principal
from tailrace.clock import Clock
from tailrace.model.errors import ConfigError, InvalidRequestError, UnauthenticatedError

__all__ = ["PublicKeys", "WebTokenOptions", "WebTokens"]

_SECRET_BYTES_MIN = 32
_EXPIRES_S_MAX = 1 << 40
_SUBJECT_MAX = 128

PublicKeys = Callable[[], Mapping[str, Any]]
"""Returns the RSA public keys that are good now, by their ids."""


def _no_keys() -> Mapping[str, Any]:
    return {}


class WebTokenOptions(Struct, frozen=True):
    """What web tokens are checked against."""

    secret: bytes = b""
    """Secret of HS256; empty for none."""

    issuer: str = ""
    """The `iss` that a token must have; empty for any."""

    audience: str = ""
    """What a token's `aud` must be or contain; empty for any."""

    leeway_s: float = 60.0
    """How long a token lives on after its `exp`, for clocks that differ."""


class _Claims(Struct, frozen=True):
    """The claims that we look at; others may be there."""

    sub: str
    exp: float
    tenant_id: str | None = None
    role: str | None = None
    capabilities: list[str] | None = None
    namespaces: list[str] | None = None
    tables: list[str] | None = None
    rows: dict[str, str] = {}


class WebTokens:
    """Verifies web tokens. For tasks of one event loop."""

    def __init__(self, options: WebTokenOptions, clock: Clock, public_keys: PublicKeys = _no_keys) -> None:
        """Check the options. RS256 is verified by the public keys, HS256 by the secret of the options.

        Raises:
            ConfigError: The secret is too short.
        """
        if options.secret and len(options.secret) < _SECRET_BYTES_MIN:
            raise ConfigError(f"auth.jwt_secret is shorter than {_SECRET_BYTES_MIN} bytes: HS256 needs a longer one")
        self._options = options
        self._clock = clock
        self._public_keys = public_keys

    def verify(self, token: str) -> Principal:
        """Return who a token names.

        Raises:
            UnauthenticatedError: It is none of ours, malformed, not valid yet or not any more.
        """
        claims = self._claims(token)
        ends_s = claims.exp + self._options.leeway_s
        if not 0 <= ends_s < _EXPIRES_S_MAX or not 0 < len(claims.sub) <= _SUBJECT_MAX:
            raise UnauthenticatedError
        if ends_s * 1_000_000 <= self._clock.now_us():
            raise UnauthenticatedError(expired=True)
        grant = Grant(
            tenant=claims.tenant_id or None,
            role=claims.role if claims.role is not None else "" if claims.capabilities is not None else None,
            capabilities=tuple(claims.capabilities or ()),
            namespaces=None if claims.namespaces is None else tuple(claims.namespaces),
            tables=None if claims.tables is None else tuple(claims.tables),
            rows=claims.rows,
        )
        try:
            check_grant(msgspec.structs.replace(grant, role=None))
        except InvalidRequestError as error:
            raise UnauthenticatedError from error
        return principal_of(claims.sub, grant, expires_time_us=round(ends_s * 1_000_000), tenanted=True)

    def _claims(self, token: str) -> _Claims:
        """Return the claims of a token whose signature is right."""
        options = self._options
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key = self._key(header)
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=options.issuer or None,
                audience=options.audience or None,
                # Our clock tells the time: `exp` and `nbf` are looked at below.
                options={
                    "require": ["sub", "exp"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(options.audience),
                    "verify_iss": bool(options.issuer),
                },
            )
            self._refuse_early(claims)
            return msgspec.convert(claims, _Claims)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
            raise UnauthenticatedError from error

    def _key(self, header: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the algorithm of a token and the one key that goes with it."""
        options = self._options
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm == "HS256" and options.secret:
            return algorithm, options.secret
        if algorithm == "RS256":
            known = self._public_keys()
            if key_id is None and len(known) == 1:
                return algorithm, next(iter(known.values()))
            if isinstance(key_id, str) and key_id in known:
                return algorithm, known[key_id]
        raise UnauthenticatedError

    def _refuse_early(self, claims: Mapping[str, Any]) -> None:
        begins_s = claims.get("nbf")
        if begins_s is None:
            return
        if not isinstance(begins_s, int | float) or isinstance(begins_s, bool):
            raise UnauthenticatedError
        if (begins_s - self._options.leeway_s) * 1_000_000 > self._clock.now_us():
            raise UnauthenticatedError
