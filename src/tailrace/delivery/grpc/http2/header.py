"""Headers of gRPC calls: what a request says, and how answers and their ends are written. Pure."""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable

from msgspec import Struct

from tailrace.delivery.grpc.call import Metadata, StatusCode, StatusError
from tailrace.delivery.grpc.http2.message import ENCODINGS

__all__ = [
    "BEGIN",
    "Header",
    "NotGrpcError",
    "RequestHeaders",
    "metadata_headers",
    "percent_encoded",
    "read_request",
    "status_headers",
]

Header = tuple[bytes, bytes]

BEGIN: tuple[Header, ...] = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", ",".join(ENCODINGS).encode()),
)
"""How every answer begins."""

_MESSAGE_BYTES_MAX = 4096
"""Most bytes of a status message, encoded: clients bound what they take."""

_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_TIMEOUT_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_NAME = re.compile(r"[0-9a-z_.\-]+")
_TEXT = re.compile(r"[ -~]*")
_RESERVED = frozenset((b"te", b"content-type", b"host"))


class NotGrpcError(Exception):
    """The request is HTTP, but not gRPC. Answered with an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class RequestHeaders(Struct, frozen=True):
    """What the headers of a call say."""

    path: str
    authority: str | None
    metadata: Metadata
    timeout_s: float | None
    encoding: str


def read_request(headers: Iterable[Header]) -> RequestHeaders:
    """Read the headers of a request; HTTP/2 itself has been checked.

    Raises:
        NotGrpcError: It is another kind of request.
        StatusError: It is gRPC, but wrong or beyond us.
    """
    fields: dict[bytes, bytes] = {}
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name.startswith((b":", b"grpc-")) or name in _RESERVED:
            fields.setdefault(name, value)
        else:
            metadata.extend(_read_metadata(name.decode("latin-1"), value))
    if fields.get(b":method") != b"POST":
        raise NotGrpcError(405)
    kind = fields.get(b"content-type", b"").partition(b";")[0].strip()
    if kind not in (b"application/grpc", b"application/grpc+proto"):
        raise NotGrpcError(415)
    if fields.get(b"te") != b"trailers":
        raise StatusError(StatusCode.INTERNAL, "the header te: trailers is missing; something on the way dropped it")
    encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
    if encoding not in ENCODINGS:
        raise StatusError(StatusCode.UNIMPLEMENTED, f"grpc-encoding is not one of {', '.join(ENCODINGS)}")
    authority = fields.get(b":authority", fields.get(b"host"))
    return RequestHeaders(
        fields[b":path"].decode("latin-1"),
        None if authority is None else authority.decode("latin-1"),
        metadata,
        _read_timeout_s(fields),
        encoding,
    )


def metadata_headers(metadata: Metadata) -> list[Header]:
    """Return metadata of ours as headers.

    Raises:
        ValueError: A name or text has characters that headers cannot carry, or a name is not ours to send.
    """
    headers = []
    for name, value in metadata:
        if not _NAME.fullmatch(name) or (name.startswith("grpc-") and name != "grpc-status-details-bin"):
            raise ValueError(f"{name!r} cannot be the name of metadata")
        if isinstance(value, bytes) != name.endswith("-bin"):
            raise ValueError(
                f"metadata {name} has a value of the wrong kind: bytes where the name ends in -bin, else text"
            )
        if isinstance(value, bytes):
            headers.append((name.encode(), b64encode(value).rstrip(b"=")))
        elif _TEXT.fullmatch(value):
            headers.append((name.encode(), value.encode()))
        else:
            raise ValueError(f"metadata {name} has characters that a header cannot carry")
    return headers


def status_headers(code: StatusCode, message: str, trailing: Metadata) -> list[Header]:
    """Return the headers that end a call.

    Raises:
        ValueError: As `metadata_headers`.
    """
    headers: list[Header] = [(b"grpc-status", b"%d" % code)]
    if message:
        headers.append((b"grpc-message", percent_encoded(message)))
    headers += metadata_headers(trailing)
    return headers


def percent_encoded(message: str) -> bytes:
    """Return a status message as headers carry it, cut where it is too long."""
    data = bytearray()
    for character in message:
        encoded = b"".join(
            b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
            for byte in character.encode("utf-8", "replace")
        )
        if len(data) + len(encoded) > _MESSAGE_BYTES_MAX:
            break
        data += encoded
    return bytes(data)


def _read_metadata(name: str, value: bytes) -> Iterable[tuple[str, str | bytes]]:
    if not name.endswith("-bin"):
        return [(name, value.decode("latin-1"))]
    try:
        return [(name, _read_base64(part)) for part in value.split(b",")]
    except Base64Error:
        raise StatusError(StatusCode.INVALID_ARGUMENT, f"the value of {name} is not base64") from None


def _read_base64(text: bytes) -> bytes:
    text = text.strip().rstrip(b"=")
    return b64decode(text + b"=" * (-len(text) % 4), validate=True)


def _read_timeout_s(fields: dict[bytes, bytes]) -> float | None:
    text = fields.get(b"grpc-timeout")
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise StatusError(
            StatusCode.INVALID_ARGUMENT, "grpc-timeout must be up to eight digits and one of H, M, S, m, u, n"
        )
    return int(match[1]) * _TIMEOUT_UNIT_S[match[2]]
