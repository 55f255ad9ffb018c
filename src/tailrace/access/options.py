"""Settings of access: the tables `[auth]` and `[auth.principals.NAME]` of the configuration."""

from msgspec import Struct

from tailrace.access.grant import Grant

__all__ = ["AuthConfig", "PrincipalConfig"]


class PrincipalConfig(Grant, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One principal of the configuration: the tokens by which it is known, and what they give."""

    tokens: tuple[str, ...]


class AuthConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may call. With `enabled`, every interface but the health checks wants credentials."""

    enabled: bool = False

    tokens: tuple[str, ...] = ()
    """Keys that may do everything."""

    principals: dict[str, PrincipalConfig] = {}

    key_pepper: str = ""
    """Secret under which API keys are hashed; empty for a plain hash. Another one makes all stored keys void."""

    jwt_secret: str = ""
    jwt_secret_file: str = ""
    jwks_file: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_leeway: str = "60s"

    requests_per_s: float = 1000.0
    """Calls that each principal may make a second, in the long run."""

    burst: int = 1000
    """Calls that each principal may make at once."""

    streams_max: int = 10_000
    """Streams that each principal may have open at one time."""

    subscriptions_max: int = 100_000
    """Subscriptions that each principal may own at one time."""
