"""Why a server was not reached, in words that say what to do. Pure."""

import socket
import ssl
from collections.abc import Iterator
from http.client import RemoteDisconnected

__all__ = ["unreached"]

_SILENT = ("without sending a response", "without response")
"""How the libraries put it that a server hung up before it answered."""


def unreached(url: str, error: BaseException) -> str:
    """Return what is said of a server at `url` that could not be reached, or did not answer, because of `error`."""
    causes = list(_causes(error))
    secure = url.startswith("https:")
    if any(isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER" for cause in causes):
        return f"{url}: what answers there speaks http without TLS: write http:// instead of https://"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"{url}: its certificate is not trusted ({cause.verify_message}); "
                "SSL_CERT_FILE names a file with further authorities"
            )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"{url}: there is no host of that name"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"{url}: nothing listens there; is the server running, and is this its address?"
    said = str(error) or type(error).__name__
    silent = isinstance(error, RemoteDisconnected) or any(words in said for words in _SILENT)
    return f"{url}: {said}; write https:// if the server has TLS" if silent and not secure else f"{url}: {said}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came from, members of groups included."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__
