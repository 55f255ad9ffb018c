"""Messages of pgoutput, the output plugin of logical replication, protocol versions 1 to 4. Pure.

Chapter "Logical Replication Message Formats" of PostgreSQL's documentation. Numbers are big-endian, strings end with a
zero byte. Between `StreamStart` and `StreamStop`, changes carry the number of their (sub)transaction after the first
byte: whoever reads a stream says so by `streamed`.

    tuple   int16 count, then for each column one of
            n               null
            u               unchanged and not sent (TOAST)
            t int32 bytes   the value as text
            b int32 bytes   the value in binary form
"""

import struct
from collections.abc import Callable
from struct import Struct as Layout
from typing import Final, TypeAlias

from msgspec import Struct

from tailrace.model.errors import SourceStateError

__all__ = [
    "UNCHANGED",
    "Begin",
    "BeginPrepare",
    "Cells",
    "Commit",
    "CommitPrepared",
    "Delete",
    "Insert",
    "LogicalMessage",
    "Message",
    "Origin",
    "Prepare",
    "Relation",
    "RelationColumn",
    "RollbackPrepared",
    "StreamAbort",
    "StreamCommit",
    "StreamPrepare",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "TypeName",
    "Unchanged",
    "Update",
    "decode",
]

_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""


class Unchanged:
    """The type of `UNCHANGED`."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
"""Stands for a value that was not sent because the change did not touch it."""

Cells: TypeAlias = list[bytes | Unchanged | None]
"""The cells of a row, as text."""


class Begin(Struct, frozen=True):
    """A transaction that is sent when it is committed begins."""

    final_lsn: int
    commit_time_us: int
    xid: int


class Commit(Struct, frozen=True):
    """It ends; `end_lsn` is where the next one may begin."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class Origin(Struct, frozen=True):
    """The transaction came from another server."""

    commit_lsn: int
    name: str


class RelationColumn(Struct, frozen=True):
    """One column as it was at that moment. `identity` tells whether it is a part of the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    identity: bool


class Relation(Struct, frozen=True):
    """What the next changes with this number are changes of. `xid` is 0 outside of streams, here and below."""

    oid: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]
    xid: int = 0


class TypeName(Struct, frozen=True):
    """The name of a type that is not built in."""

    oid: int
    namespace: str
    name: str
    xid: int = 0


class Insert(Struct):
    """A new row."""

    relation: int
    new: Cells
    xid: int = 0


class Update(Struct):
    """A changed row. `old` is its identity (`old_is_key`) or the whole row, where the server sent it."""

    relation: int
    old: Cells | None
    old_is_key: bool
    new: Cells
    xid: int = 0


class Delete(Struct):
    """A removed row: its identity (`old_is_key`), or the whole row."""

    relation: int
    old: Cells
    old_is_key: bool
    xid: int = 0


class Truncate(Struct, frozen=True):
    """All rows of these tables were removed."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool
    xid: int = 0


class LogicalMessage(Struct, frozen=True):
    """What `pg_logical_emit_message` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int = 0


class StreamStart(Struct, frozen=True):
    """Changes of a transaction that is not committed yet follow."""

    xid: int
    first: bool


class StreamStop(Struct, frozen=True):
    """For now, no more of them follow."""


class StreamCommit(Struct, frozen=True):
    """A transaction that was sent in streams is committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class StreamAbort(Struct, frozen=True):
    """A transaction that was sent in streams, or the subtransaction `subxid` of it, was rolled back."""

    xid: int
    subxid: int


class BeginPrepare(Struct, frozen=True):
    """A transaction that is sent when it is prepared begins."""

    prepare_lsn: int
    end_lsn: int
    prepare_time_us: int
    xid: int
    gid: str


class Prepare(BeginPrepare, frozen=True):
    """It ends, and is prepared."""


class StreamPrepare(BeginPrepare, frozen=True):
    """A transaction that was sent in streams is prepared."""


class CommitPrepared(Struct, frozen=True):
    """A prepared transaction is committed."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int
    xid: int
    gid: str


class RollbackPrepared(Struct, frozen=True):
    """A prepared transaction was rolled back."""

    prepare_end_lsn: int
    end_lsn: int
    prepare_time_us: int
    rollback_time_us: int
    xid: int
    gid: str


Message = (
    Begin
    | Commit
    | Origin
    | Relation
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | CommitPrepared
    | RollbackPrepared
)


def decode(data: bytes, *, streamed: bool = False) -> Message:
    """Return one message. `streamed` tells whether it stands between a `StreamStart` and its `StreamStop`.

    Raises:
        SourceStateError: These bytes are no message of pgoutput.
    """
    reader = _READERS.get(data[0]) if data else None
    if reader is None:
        raise _malformed(data, "there is no message of this type")
    try:
        message, end = reader(data, 1, streamed)
    except (struct.error, ValueError, IndexError) as error:
        raise _malformed(data, str(error)) from error
    if end != len(data):
        raise _malformed(data, "it has another length")
    return message


def _malformed(data: bytes, reason: str) -> SourceStateError:
    shown = data[:24].hex(" ")
    return SourceStateError(
        f"the server sent {len(data)} bytes that are no pgoutput message ({reason}): {shown}; "
        "check that the slot uses pgoutput, and report it with the version of the server"
    )


_INT16 = Layout(">h").unpack_from
_UINT32 = Layout(">I").unpack_from
_INT32 = Layout(">i").unpack_from
_TWO_UINT32 = Layout(">II").unpack_from
_BEGIN = Layout(">QqI")
_COMMIT = Layout(">BQQq")
_LSN = Layout(">Q")
_STREAM_START = Layout(">IB")
_STREAM_COMMIT = Layout(">IBQQq")
_STREAM_ABORT = Layout(">II")
_STREAM_ABORT_PARALLEL = Layout(">IIQq")
_COLUMN_TYPE = Layout(">Ii")
_MESSAGE = Layout(">BQ")
_BEGIN_PREPARE = Layout(">QQqI")
_PREPARE = Layout(">BQQqI")
_ROLLBACK_PREPARED = Layout(">BQQqqI")

_N, _U, _T, _B, _K, _O = b"nutbKO"
_NEW = ord("N")


def _xid(data: bytes, at: int, streamed: bool) -> tuple[int, int]:
    return (_UINT32(data, at)[0], at + 4) if streamed else (0, at)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _cells(data: bytes, at: int) -> tuple[Cells, int]:
    """Return the cells of a tuple. This runs once for each row: the common case comes first."""
    (count,) = _INT16(data, at)
    at += 2
    cells: Cells = []
    append = cells.append
    for _ in range(count):
        kind = data[at]
        if kind == _T:
            begin = at + 5
            at = begin + _UINT32(data, at + 1)[0]  # a negative length is beyond the end
            append(data[begin:at])
        elif kind == _N:
            append(None)
            at += 1
        elif kind == _U:
            append(UNCHANGED)
            at += 1
        elif kind == _B:
            raise ValueError("a value is in binary form, which was not asked for")
        else:
            raise ValueError("there is no cell of this type")
    if count < 0:
        raise ValueError("a row has a negative number of columns")
    return cells, at


def _expect(data: bytes, at: int, kind: int) -> None:
    if data[at] != kind:
        raise ValueError(f"there is no {chr(kind)!r} where one must be")


def _begin(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    final_lsn, time_us, xid = _BEGIN.unpack_from(data, at)
    return Begin(final_lsn, time_us + _EPOCH_US, xid), at + _BEGIN.size


def _commit(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    _flags, commit_lsn, end_lsn, time_us = _COMMIT.unpack_from(data, at)
    return Commit(commit_lsn, end_lsn, time_us + _EPOCH_US), at + _COMMIT.size


def _origin(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    (lsn,) = _LSN.unpack_from(data, at)
    name, at = _text(data, at + 8)
    return Origin(lsn, name), at


def _relation(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (oid,) = _UINT32(data, at)
    namespace, at = _text(data, at + 4)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _INT16(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN_TYPE.unpack_from(data, at)
        at += _COLUMN_TYPE.size
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    # The server sends an empty name for pg_catalog.
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns), xid), at


def _type(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (oid,) = _UINT32(data, at)
    namespace, at = _text(data, at + 4)
    name, at = _text(data, at)
    return TypeName(oid, namespace or "pg_catalog", name, xid), at


def _insert(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (relation,) = _UINT32(data, at)
    _expect(data, at + 4, _NEW)
    cells, at = _cells(data, at + 5)
    return Insert(relation, cells, xid), at


def _update(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (relation,) = _UINT32(data, at)
    at += 4
    kind = data[at]
    old: Cells | None = None
    if kind in {_K, _O}:
        old, at = _cells(data, at + 1)
    _expect(data, at, _NEW)
    new, at = _cells(data, at + 1)
    return Update(relation, old, kind == _K, new, xid), at


def _delete(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (relation,) = _UINT32(data, at)
    kind = data[at + 4]
    if kind != _O:
        _expect(data, at + 4, _K)
    old, at = _cells(data, at + 5)
    return Delete(relation, old, kind == _K, xid), at


def _truncate(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    (count,) = _INT32(data, at)
    options = data[at + 4]
    at += 5
    if not 0 <= count <= (len(data) - at) // 4:
        raise ValueError("it has another number of tables")
    oids = Layout(f">{count}I").unpack_from(data, at)
    return Truncate(oids, bool(options & 1), bool(options & 2), xid), at + 4 * count


def _message(data: bytes, at: int, streamed: bool) -> tuple[Message, int]:
    xid, at = _xid(data, at, streamed)
    flags, lsn = _MESSAGE.unpack_from(data, at)
    prefix, at = _text(data, at + _MESSAGE.size)
    (size,) = _UINT32(data, at)
    at += 4
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[at : at + size], xid), at + size


def _stream_start(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    xid, first = _STREAM_START.unpack_from(data, at)
    return StreamStart(xid, bool(first)), at + _STREAM_START.size


def _stream_stop(_data: bytes, at: int, _: bool) -> tuple[Message, int]:
    return StreamStop(), at


def _stream_commit(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    xid, _flags, commit_lsn, end_lsn, time_us = _STREAM_COMMIT.unpack_from(data, at)
    return StreamCommit(xid, commit_lsn, end_lsn, time_us + _EPOCH_US), at + _STREAM_COMMIT.size


def _stream_abort(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    # With parallel streaming, the place and time of the abort follow.
    layout = _STREAM_ABORT if len(data) - at == _STREAM_ABORT.size else _STREAM_ABORT_PARALLEL
    xid, subxid, *_rest = layout.unpack_from(data, at)
    return StreamAbort(xid, subxid), at + layout.size


def _begin_prepare(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    prepare_lsn, end_lsn, time_us, xid = _BEGIN_PREPARE.unpack_from(data, at)
    gid, at = _text(data, at + _BEGIN_PREPARE.size)
    return BeginPrepare(prepare_lsn, end_lsn, time_us + _EPOCH_US, xid, gid), at


def _prepared(kind: type[BeginPrepare] | type[CommitPrepared]) -> "_Reader":
    def read(data: bytes, at: int, _: bool) -> tuple[Message, int]:
        _flags, lsn, end_lsn, time_us, xid = _PREPARE.unpack_from(data, at)
        gid, at = _text(data, at + _PREPARE.size)
        return kind(lsn, end_lsn, time_us + _EPOCH_US, xid, gid), at

    return read


def _rollback_prepared(data: bytes, at: int, _: bool) -> tuple[Message, int]:
    _flags, prepare_end, end, prepare_us, rollback_us, xid = _ROLLBACK_PREPARED.unpack_from(data, at)
    gid, at = _text(data, at + _ROLLBACK_PREPARED.size)
    return RollbackPrepared(prepare_end, end, prepare_us + _EPOCH_US, rollback_us + _EPOCH_US, xid, gid), at


_Reader = Callable[[bytes, int, bool], tuple[Message, int]]
_READERS: dict[int, _Reader] = {
    ord(first): read
    for first, read in {
        "B": _begin,
        "C": _commit,
        "O": _origin,
        "R": _relation,
        "Y": _type,
        "I": _insert,
        "U": _update,
        "D": _delete,
        "T": _truncate,
        "M": _message,
        "S": _stream_start,
        "E": _stream_stop,
        "c": _stream_commit,
        "A": _stream_abort,
        "b": _begin_prepare,
        "P": _prepared(Prepare),
        "K": _prepared(CommitPrepared),
        "r": _rollback_prepared,
        "p": _prepared(StreamPrepare),
    }.items()
}
"""Reads the rest of a message, by its first byte."""
