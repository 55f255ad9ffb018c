"""Messages of SochDB's WebSocket gateway: what a client may ask for, and how it is answered. Pure.

Each text frame is one JSON object with `id`, `type` and `payload`, both ways and in this order. Members that nobody
knows are passed over. The `id` of the request says what an answer or an event belongs to.
"""

import base64
import binascii
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import Op
from tailrace.model.table import ANY_COLUMN
from tailrace.model.value import Json, Value, from_natural, to_natural

__all__ = [
    "Encoding",
    "GatewayRequest",
    "GatewaySubscribe",
    "GatewayUnsubscribe",
    "KvGet",
    "KvPut",
    "RequestError",
    "Sql",
    "answer_of",
    "decode_payload",
    "decode_request",
    "error_of",
    "event_front",
    "ops_of",
    "parameters_of",
    "rows_of",
]

ID_CHARACTERS_MAX = 256
"""Longest id of a request: it stands in every answer and event."""


class RequestError(InvalidRequestError):
    """A message of a client that cannot be read; the text is SochDB's."""


class GatewayRequest(Struct, frozen=True):
    """One message of a client."""

    id: Annotated[str, Meta(max_length=ID_CHARACTERS_MAX)]
    type: str
    payload: Raw = Raw(b"null")


class Encoding(StrEnum):
    """How a key and a value are written as JSON strings."""

    UTF8 = "utf8"
    BASE64 = "base64"

    def to_bytes(self, text: str) -> bytes:
        """Return the bytes that a text stands for.

        Raises:
            RequestError: It stands for none.
        """
        try:
            return text.encode() if self is Encoding.UTF8 else base64.b64decode(text, validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError):
            raise RequestError(f"Invalid payload: a key or value is not {self.value}") from None

    def to_text(self, data: bytes) -> str:
        """Return the text of some bytes.

        Raises:
            RequestError: They cannot be written so.
        """
        try:
            return data.decode() if self is Encoding.UTF8 else base64.b64encode(data).decode()
        except UnicodeDecodeError:
            raise RequestError('the value is not text: request it with "encoding":"base64"') from None


class Sql(Struct, frozen=True):
    """Run one statement; `params` are for its `?`, plain or typed literals."""

    query: str
    params: list[Json] = []
    namespace: str = ""


class KvGet(Struct, frozen=True):
    """Ask for the value of a key, or remove it."""

    key: str
    namespace: str = ""
    encoding: Encoding = Encoding.UTF8


class KvPut(Struct, frozen=True):
    """Keep a value, for `ttl_seconds` where that is not 0."""

    key: str
    value: str
    namespace: str = ""
    ttl_seconds: Annotated[int, Meta(ge=0)] = 0
    encoding: Encoding = Encoding.UTF8


class GatewaySubscribe(Struct, frozen=True):
    """Send the changes of some tables, from a sequence number on; 0 is from now on."""

    tables: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    start_sequence: Annotated[int, Meta(ge=0)] = 0
    namespace: str = ""
    where: str | None = None


class GatewayUnsubscribe(Struct, frozen=True):
    """End the events of the subscribe request that had this id."""

    id: str


_P = TypeVar("_P")
_REQUEST = msgspec.json.Decoder(GatewayRequest)
_BROKEN = (msgspec.DecodeError, UnicodeError, RecursionError)
_OPS = {
    "insert": Op.INSERT,
    "update": Op.UPDATE,
    "delete": Op.DELETE,
    "schemachange": Op.SCHEMA,
    "schema_change": Op.SCHEMA,
}


def decode_request(text: str) -> GatewayRequest:
    """Return the request in a text frame.

    Raises:
        RequestError: It is none.
    """
    try:
        return _REQUEST.decode(text)
    except _BROKEN as error:
        raise RequestError(f"Invalid JSON: {_reason(error)}") from error


def decode_payload(payload: Raw, kind: type[_P], complaint: str = "Invalid payload") -> _P:
    """Return the payload of a request.

    Raises:
        RequestError: It is not of that kind.
    """
    try:
        return msgspec.json.decode(payload, type=kind)
    except _BROKEN as error:
        raise RequestError(f"{complaint}: {_reason(error)}") from error


def ops_of(names: tuple[str, ...]) -> tuple[Op, ...]:
    """Return the ops that names stand for, case-insensitively; all where there is no name.

    Raises:
        RequestError: A name stands for none.
    """
    ops = {_OPS.get(name.lower()) for name in names}
    if None in ops:
        raise RequestError("Invalid payload: operations are Insert, Update, Delete and SchemaChange")
    if Op.SCHEMA in ops:
        ops.add(Op.TRUNCATE)  # on this wire a truncation is a schema change
    return tuple(op for op in Op if op in ops) if ops else tuple(Op)


def answer_of(request_id: str, kind: str, payload: object) -> bytes:
    """Return the answer to a request."""
    return msgspec.json.encode({"id": request_id, "type": kind, "payload": payload})


def error_of(request_id: str, message: str) -> bytes:
    """Return the refusal of a request, or the end of its events."""
    return answer_of(request_id, "error", {"message": message})


def event_front(request_id: str) -> bytes:
    """Return what stands before the payload of each event of a subscribe request; `}` follows it."""
    return b'{"id":%s,"type":"event","payload":' % msgspec.json.encode(request_id)


def parameters_of(params: list[Json]) -> list[Value]:
    """Return the values of a statement's parameters.

    Raises:
        InvalidRequestError: One is neither a plain value nor a typed literal.
    """
    return [from_natural(param, ANY_COLUMN) for param in params]


def rows_of(rows: Sequence[Sequence[Value]]) -> list[list[Json]]:
    """Return rows as JSON: plain where that says exactly which value it is, as typed literals otherwise."""
    return [[to_natural(cell, ANY_COLUMN) for cell in row] for row in rows]


def _reason(error: BaseException) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)
