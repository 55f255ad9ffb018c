"""Access, joined: the gate and the keeper that a configuration makes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tailrace.access.gate import Gate, OpenGate, TokenGate
from tailrace.access.grant import ROLES, Grant, check_grant, principal_of
from tailrace.access.keeper import Keeper
from tailrace.access.key import key_hash
from tailrace.access.keys import Keys
from tailrace.access.limit import RateLimits
from tailrace.access.options import AuthConfig
from tailrace.access.principal import Principal
from tailrace.clock import Clock
from tailrace.meta.key_store import KeyStore
from tailrace.model.errors import ConfigError, InvalidRequestError
from tailrace.quantity import parse_duration_s

if TYPE_CHECKING:
    from tailrace.access.web_token import WebTokens

__all__ = ["AccessControl", "open_access"]


class AccessControl(Struct, frozen=True):
    """What interfaces need to know who calls. `keeper.run` belongs in a task."""

    gate: Gate
    keeper: Keeper
    limits: RateLimits | None = None
    """How often principals may ask for something; None where all are anonymous."""


def open_access(config: AuthConfig, store: KeyStore, clock: Clock) -> AccessControl:
    """Return what a configuration says about access.

    Raises:
        ConfigError: A file cannot be read, a secret is too short, a grant is mistyped, or two have the same token.
    """
    keys = Keys(_fixed(config), store, config.key_pepper, clock)
    keeper = Keeper(keys, clock, config.streams_max)
    if not config.enabled:
        return AccessControl(OpenGate(), keeper)
    limits = RateLimits(config.requests_per_s, config.burst, clock)
    return AccessControl(TokenGate(keys, _web_tokens(config, clock), limits, clock), keeper, limits)


def _fixed(config: AuthConfig) -> Mapping[str, Principal]:
    """Return the principals of the configuration by their tokens."""
    found: dict[str, Principal] = {}
    for token in config.tokens:
        short = key_hash(token, config.key_pepper)[:8]
        found[token] = Principal(f"apikey-{short}", capabilities=ROLES["owner"])
    for name, given in config.principals.items():
        try:
            grant = Grant(**{field: getattr(given, field) for field in Grant.__struct_fields__})
            check_grant(grant)
        except InvalidRequestError as error:
            raise ConfigError(f"auth.principals.{name}: {error}") from error
        for token in given.tokens:
            if not token or token in found:
                raise ConfigError(f"auth.principals.{name}: a token is empty, or another principal has it")
            found[token] = principal_of(name, grant)
    return found


def _web_tokens(config: AuthConfig, clock: Clock) -> "WebTokens | None":
    """Return what verifies web tokens, loaded only where it is needed; None where nothing could verify one."""
    secret = config.jwt_secret.encode()
    if config.jwt_secret_file:
        if secret:
            raise ConfigError("auth.jwt_secret and auth.jwt_secret_file: set one of the two")
        try:
            secret = Path(config.jwt_secret_file).read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise ConfigError(f"auth.jwt_secret_file: {error.strerror}") from error
    if not secret and not config.jwks_file:
        return None
    from tailrace.access.web_token import WebTokenOptions, WebTokens

    leeway_s = parse_duration_s(config.jwt_leeway) or 0.0
    options = WebTokenOptions(secret, config.jwt_issuer, config.jwt_audience, leeway_s)
    if config.jwks_file:
        from tailrace.access.jwks import JwksFile

        return WebTokens(options, clock, JwksFile(Path(config.jwks_file), clock).keys)
    return WebTokens(options, clock)
