"""TLS: one context for each port, from the files that the configuration names."""

import ssl
from collections.abc import Sequence

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
    try:
        context.load_cert_chain(config.cert, config.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls.cert and tls.key: {error.strerror or 'they do not belong together'}") from error
    if config.client_ca:
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls.client_ca: {error.strerror or 'no certificate can be read'}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
