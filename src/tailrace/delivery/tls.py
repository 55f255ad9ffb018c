"""TLS: one context for each port, from the files that the configuration names."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tailrace.model.errors import ConfigError

__all__ = ["TlsConfig", "tls_context"]


class TlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The files of TLS, in PEM. Without `cert` the ports speak in clear; with `client_ca` clients must have one too."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""


def tls_context(config: TlsConfig, protocols: Sequence[str]) -> ssl.SSLContext | None:
    """Return the context of a port that offers these protocols by ALPN; None where the ports speak in clear.

    Raises:
        ConfigError: A file is missing, or not what it should be.
    """
    if not config.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(protocols))
    _require_file("tls.cert", config.cert)
    _require_file("tls.key", config.key)
    try:
        context.load_cert_chain(config.cert, config.key)
    except (OSError, ssl.SSLError) as error:
        files = f"tls.cert and tls.key: {config.cert!r} and {config.key!r}"
        raise ConfigError(f"{files} are not a certificate in PEM and its own private key, unencrypted") from error
    if config.client_ca:
        _require_file("tls.client_ca", config.client_ca)
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls.client_ca: {config.client_ca!r} has no certificate in PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _require_file(path: str, name: str) -> None:
    """Refuse a file that cannot be read, with its name: the errors of the TLS library have none."""
    try:
        with Path(name).open("rb"):
            return
    except OSError as error:
        raise ConfigError(f"{path}: cannot read {name!r}: {error.strerror}") from error
