"""Which certificates of servers are trusted."""

import ssl

from tailrace.model.errors import SinkRefusedError

__all__ = ["is_untrusted", "trusting"]


def trusting(authority: str | None) -> ssl.SSLContext:
    """Return what to connect with: certificates of the authorities in a file are trusted, else those of the system's.

    Raises:
        SinkRefusedError: There are none in that file.
    """
    try:
        return ssl.create_default_context(cafile=authority or None)
    except OSError:
        raise SinkRefusedError("the file that the option `ca` of the sink names holds no certificates") from None


def is_untrusted(error: BaseException | None) -> bool:
    """Tell whether an error, or what led to it, is that a server's certificate is not trusted."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # clients have chains that lead back
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
