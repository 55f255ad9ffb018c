"""Signatures in the form of Standard Webhooks, by which a receiver can tell that a request is ours. Pure."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from tailrace.model.errors import ConfigError

__all__ = ["secrets_of", "signed"]

_PREFIX = "whsec_"


def secrets_of(text: str) -> list[bytes]:
    """Return the secrets of an option: one, or while they are being exchanged several, with spaces between.

    Raises:
        ConfigError: One is not in base64. It is not shown.
    """
    try:
        found = [base64.b64decode(one.removeprefix(_PREFIX) + "==", validate=False) for one in text.split()]
    except binascii.Error:
        found = [b""]
    if not found or not all(found):
        raise ConfigError("the secret of a web hook is whsec_ and then base64")
    return found


def signed(secrets: Sequence[bytes], id_: str, time_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a request: its id, its time, and a signature by each secret."""
    content = b"%s.%d.%s" % (id_.encode(), time_s, body)
    signatures = [base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets]
    headers = {"webhook-id": id_, "webhook-timestamp": str(time_s)}
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{one}" for one in signatures)
    return headers
