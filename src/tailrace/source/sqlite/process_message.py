"""What a server and its query processes say to each other. Pure.

A message is four bytes of length, then MessagePack. The server sends one request and gets one answer. A statement that
writes asks for leave before it commits: a server that has not given it knows that killing the process undoes it all.
"""

import struct
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.model.errors import (
    InvalidRequestError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
    TailraceError,
)
from tailrace.source.reader import Reader
from tailrace.source.result import ResultRows, RunLimits, StatementResult

__all__ = [
    "HEADER",
    "Answer",
    "AskCommit",
    "Commit",
    "FootprintRequest",
    "ProcessFailure",
    "ProcessLimits",
    "QueryAnswer",
    "QueryRequest",
    "Request",
    "StatementRequest",
    "Touched",
    "Written",
    "answer_bytes_max",
    "decode_answer",
    "decode_request",
    "encode",
    "failure_of",
]

HEADER = struct.Struct(">I")

Cells = tuple[Any, ...]
"""Values of type `Stored`. MessagePack tells text and bytes apart; msgspec has no type for either of them."""

_CELLS_MAX = 2000
"""Most columns of a result in SQLite."""


class ProcessLimits(Struct, frozen=True):
    """What one query process may use. Beyond, the statement fails; the process and the server stay."""

    memory_bytes: int = 1 << 30
    """Address space, which bounds what Python makes of a row."""

    heap_bytes: int = 256 << 20
    """Memory of SQLite itself."""

    temporary_bytes: int = 1 << 30
    """Largest temporary file, into which SQLite sorts. Only for processes that do not write."""


class QueryRequest(Struct, frozen=True, tag="query"):
    """Run a query. `left_s` is what is left of its time."""

    sql: str
    arguments: Cells
    limits: RunLimits
    left_s: float


class FootprintRequest(Struct, frozen=True, tag="footprint"):
    """Look what a query with this many arguments touches, without running it."""

    sql: str
    arguments: int
    left_s: float


class StatementRequest(Struct, frozen=True, tag="statement"):
    """Run a statement that may write. `reader` is who captures the database."""

    sql: str
    arguments: Cells
    limits: RunLimits
    left_s: float
    reader: Reader | None


class Commit(Struct, frozen=True, tag="commit"):
    """The answer to `AskCommit`."""


Request = QueryRequest | FootprintRequest | StatementRequest | Commit


class QueryAnswer(Struct, frozen=True, tag="found"):
    """The result of a query."""

    columns: tuple[str, ...]
    rows: list[Cells]
    catalog: str

    def result(self) -> ResultRows:
        """Return it as callers want it."""
        return ResultRows(self.columns, self.rows, self.catalog)


class Touched(Struct, frozen=True, tag="touched"):
    """The tables that a query reads, the functions that it calls, and the roots of the trees that it opens.

    `catalog` names the version of the schema in which the roots mean something.
    """

    tables: list[str]
    functions: list[str]
    roots: list[int]
    catalog: str


class Written(Struct, frozen=True, tag="written"):
    """The result of a statement, which is committed."""

    columns: tuple[str, ...]
    rows: list[Cells]
    changes: int

    def result(self) -> StatementResult:
        """Return it as callers want it."""
        return StatementResult(self.columns, self.rows, self.changes)


class AskCommit(Struct, frozen=True, tag="ask_commit"):
    """The statement ran; nothing is committed before the server agrees."""


class ProcessFailure(Struct, frozen=True, tag="failure"):
    """Why a request failed. `detail` is for the log of the server alone: it may name files."""

    kind: str
    message: str
    detail: str = ""

    def error(self) -> TailraceError:
        """Return the error to raise."""
        return _KINDS[self.kind](self.message)


Answer = QueryAnswer | Touched | Written | AskCommit | ProcessFailure

_KINDS: dict[str, type[TailraceError]] = {
    kind.__name__: kind
    for kind in (InvalidRequestError, ResultTooLargeError, QueryTimeoutError, SourceUnavailableError)
}

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def failure_of(error: TailraceError) -> ProcessFailure:
    """Return the message for an error. It is of one of the kinds above, or of a class derived from one."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
    return ProcessFailure(kind, str(error))


def encode(message: Any) -> bytes:
    """Return a message with its header.

    Raises:
        InvalidRequestError: A text in it is not Unicode, or a number has more than 64 bits.
    """
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidRequestError("SQL and values must be Unicode text and 64-bit numbers") from error
    return HEADER.pack(len(body)) + body


def decode_request(body: bytes | bytearray) -> Request:
    """Return a request."""
    return _requests.decode(body)


def decode_answer(body: bytes | bytearray) -> Answer:
    """Return an answer."""
    return _answers.decode(body)


def answer_bytes_max(limits: RunLimits) -> int:
    """Return how long an answer within its limits can be: 4 bytes for a character, and one for an empty cell."""
    return 5 * limits.bytes_max + _CELLS_MAX * limits.rows_max + (4 << 20)
