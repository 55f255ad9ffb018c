"""Messages of pgoutput, put together as commits. Pure but for the temporary files of large transactions.

A transaction comes in one of two ways: whole, between Begin and Commit, once it is committed; or, where it is large, in
pieces before that, between StreamStart and StreamStop, and then its end: StreamCommit or StreamAbort. Pieces of several
transactions alternate. They are spooled, and run through the same code when their commit comes, so that all commits are
in commit order.

The server sends a Relation message before the first change of a table, and again when the table was changed. What it
sent inside a streamed transaction counts for others only after that is committed, and only if nothing newer has come
meanwhile: `_arrivals` and `StreamSpool.relations` count messages for that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs
from msgspec import json as msgspec_json

from tailrace.model.commit import Draft
from tailrace.model.errors import SourceStateError
from tailrace.model.image import NO_KEY
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.source.postgres.ddl_message import DDL_PREFIX, Ddl, decode_ddl
from tailrace.source.postgres.frame import Frames, compiled, pack_data, payload_at
from tailrace.source.postgres.pgoutput import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
    Update,
    decode,
)
from tailrace.source.postgres.replication_message import DATA_BEGIN
from tailrace.source.postgres.stream_spool import StreamSpool
from tailrace.source.postgres.table_shape import TableShape

__all__ = ["Hear", "Learn", "Learnt", "PartLimits", "SchemaChange", "Transactions"]


class Learnt(Struct, frozen=True):
    """What became known of a table: its shape, and whether its schema is news that the log must hear of."""

    shape: TableShape
    news: bool


class SchemaChange(Struct, frozen=True):
    """A change of a table's schema, as the log has it. `ddl` is the statement, unless it is `derived`."""

    number: SchemaId
    ddl: str
    derived: bool = False
    dropped: bool = False
    renamed: str = ""


Learn = Callable[[Relation, Mapping[int, str]], Learnt]
"""Learns the shape of a table; it is given the names of types that are not built in, by their numbers."""


Hear = Callable[[Ddl], Sequence[SchemaChange]]
"""Is given what the trigger in the database says of a statement; returns what the log must hear of."""


class PartLimits(Struct, frozen=True):
    """From how many changes, or bytes, on a commit is handed over in parts."""

    changes: int = 50_000
    size_bytes: int = 32 << 20


_INSERT, _UPDATE, _DELETE = _ROW_OPS = Op.INSERT, Op.UPDATE, Op.DELETE
_STREAM_STOP = ord("E")
_RELATION = ord("R")
_ORIGIN = ord("O")


class Transactions:
    """Takes messages one by one, and has drafts when a commit, or enough of one, has come.

    `drafts` has what is ready, in order; whoever takes it empties it. `progress_lsn` is the end of the last transaction
    that was seen, with changes or without. Use a new one for each stream.
    """

    def __init__(
        self,
        learn: Learn,
        position_at: Callable[[int], Position],
        limits: PartLimits | None = None,
        spool_directory: str | None = None,
        on_parts: Callable[[], None] = lambda: None,
        hear: Hear = lambda _: (),
    ) -> None:
        """Make one; `on_parts` is called when parts of a spooled commit are ready, and takes `drafts`."""
        self.drafts: list[Draft] = []
        self.progress_lsn = 0
        self._learn = learn
        self._position_at = position_at
        self._limits = limits or PartLimits()
        self._spool_directory = spool_directory
        self._on_parts = on_parts
        self._hear = hear
        self._shapes: dict[int, TableShape | Relation] = {}
        self._types: dict[int, str] = {}
        self._arrived = 0
        self._arrivals: dict[int, int] = {}
        self._draft: Draft | None = None
        self._size_bytes = 0
        self._spools: dict[int, StreamSpool] = {}
        self._stream: StreamSpool | None = None

    @property
    def in_transaction(self) -> bool:
        """Tell whether a transaction has begun to come and not ended; those that are spooled do not count."""
        return self._draft is not None or self._stream is not None

    def feed(self, data: bytes) -> None:
        """Take one message.

        Raises:
            SourceStateError: It is none, or stands in a place where it cannot.
            SourceUnavailableError: A large transaction cannot be kept on the disk.
        """
        if self._stream is not None and data[0] != _STREAM_STOP:
            self._spool(self._stream, data)
            return
        message = decode(data)
        kind = type(message)
        if kind is Insert or kind is Update or kind is Delete:  # by far the most
            self._change(message, len(data))
            return
        if isinstance(message, Begin):
            self._begin(message.final_lsn, message.commit_time_us, message.xid)
        elif isinstance(message, Commit):
            self._end(message.end_lsn)
        else:
            self._rare(message, len(data))

    def _rare(self, message: Message, size_bytes: int) -> None:
        match message:
            case StreamStart(xid):
                self._stream = self._spools.get(xid) or self._spools.setdefault(xid, StreamSpool(self._spool_directory))
            case StreamStop():
                self._stream = None
            case StreamCommit():
                self._replay(message)
            case StreamAbort(xid, subxid):
                self._abort(xid, subxid)
            case BeginPrepare() | CommitPrepared() | RollbackPrepared():
                raise SourceStateError(
                    "the slot sends transactions when they are prepared (two_phase), before it is known whether they "
                    "are committed: use a slot without it"
                )
            case _:
                self._change(message, size_bytes)

    def feed_rows(self, frames: Frames, at: int) -> int:
        """Take the rows that stand in frames from a place on, as many as can be taken at once; return where they end.

        What does not come of it, all of it where there is no compiled helper, goes by `feed`.
        """
        if compiled is None:
            return at
        if self._stream is not None:
            end = int(compiled.rows_end(frames, at))
            if end > at:
                self._stream.add(frames[at:end])
            return end
        return self._add_rows(frames, at)

    def _add_rows(self, frames: Frames, at: int, aborted: set[int] | None = None) -> int:
        """Add rows to the commit that is being put together; `aborted` where each has the number of its transaction."""
        draft = self._draft
        if compiled is None or draft is None:
            return at
        columns = (draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters)
        limits = (self._limits.changes, self._limits.size_bytes)
        at, self._size_bytes = compiled.add(
            frames, at, self._shapes, aborted, columns, _ROW_OPS, limits, self._size_bytes
        )
        return at

    def close(self) -> None:
        """Let go of all that is spooled."""
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()

    def _begin(self, final_lsn: int, commit_time_us: int, xid: int) -> None:
        if self._draft is not None:
            raise SourceStateError("the server began a transaction inside of another one; report it")
        self._draft = Draft(self._position_at(final_lsn), commit_time_us, xid)
        self._size_bytes = 0

    def _end(self, end_lsn: int) -> None:
        draft, self._draft = self._draft, None
        if draft is None:
            raise SourceStateError("the server ended a transaction that it had not begun; report it")
        self.progress_lsn = max(self.progress_lsn, end_lsn)
        if len(draft):
            draft.position = self._position_at(end_lsn)
            self.drafts.append(draft)

    def _change(self, message: Message, size_bytes: int) -> None:
        """Add what a message says to the commit that is being put together."""
        draft = self._draft
        if draft is None:
            if isinstance(message, Origin | LogicalMessage):  # a message may stand outside of transactions
                return
            raise SourceStateError("the server sent a change outside of a transaction; report it")
        is_full = len(draft.ops) >= self._limits.changes or self._size_bytes >= self._limits.size_bytes
        if is_full and draft.ops:  # a part is never empty
            draft = self._cut(draft)
        self._size_bytes += size_bytes
        add_row = _ROWS.get(type(message))
        if add_row is not None:
            add_row(draft, self._shape(draft, message.relation), message)  # type: ignore[union-attr]
            return
        match message:
            case Truncate(relations):
                for relation in relations:
                    draft.truncate(self._shape(draft, relation).number)
            case Relation():
                self._arrived += 1
                self._arrivals[message.oid] = self._arrived
                self._shapes[message.oid] = message
            case TypeName(oid, namespace, name):
                self._types[oid] = name if namespace in {"public", "pg_catalog"} else f"{namespace}.{name}"
            case LogicalMessage(transactional=True) if message.prefix == DDL_PREFIX:
                ddl = decode_ddl(message.content)
                for said in () if ddl is None else self._hear(ddl):
                    _add_schema(draft, said)
            case Origin() | LogicalMessage():
                pass
            case _:
                raise SourceStateError("the server sent a message inside a transaction that cannot be there; report it")

    def _shape(self, draft: Draft, relation: int) -> TableShape:
        """Return the shape of a table. It is learnt at the first change: a schema that has none may be rolled back."""
        shape = self._shapes.get(relation)
        if isinstance(shape, TableShape):
            return shape
        if shape is None:
            raise SourceStateError(f"the server sent a change of relation {relation}, which it had not described")
        learnt = self._learn(shape, self._types)
        made = self._shapes[relation] = learnt.shape
        if learnt.news:
            _add_schema(draft, SchemaChange(made.number, made.schema.ddl, derived=True))
        return made

    def _cut(self, draft: Draft) -> Draft:
        """Hand over a part of a commit and return the next one."""
        draft.more = True
        self.drafts.append(draft)
        self._size_bytes = 0
        self._draft = Draft(draft.position, draft.commit_time_us, draft.txid, part=draft.part + 1)
        return self._draft

    def _spool(self, spool: StreamSpool, data: bytes) -> None:
        if data[0] == _ORIGIN:  # the only one without the number of its transaction
            return
        if len(data) < 5:
            raise SourceStateError("the server sent a message that is too short inside a stream; report it")
        if data[0] == _RELATION:
            relation = decode(data, streamed=True)
            assert isinstance(relation, Relation)
            self._arrived += 1
            spool.relations[relation.oid] = self._arrived
        spool.add(pack_data(data))

    def _replay(self, commit: StreamCommit) -> None:
        """Run a spooled transaction through the same steps as any other, now that it is committed."""
        spool = self._spools.pop(commit.xid, None)
        if spool is None:
            raise SourceStateError("the server committed a transaction of which it had sent nothing; report it")
        shapes, arrivals = dict(self._shapes), dict(self._arrivals)
        try:
            self._begin(commit.commit_lsn, commit.commit_time_us, commit.xid)
            for frames in spool.blocks():
                self._replay_frames(spool, frames)
            self._end(commit.end_lsn)
        finally:
            spool.close()
        for oid, arrived in spool.relations.items():
            if arrived < arrivals.get(oid, 0):  # what others have been sent since is newer
                self._shapes[oid], self._arrivals[oid] = shapes[oid], arrivals[oid]
            else:
                self._arrivals[oid] = arrived

    def _replay_frames(self, spool: StreamSpool, frames: bytes) -> None:
        at, end = 0, len(frames)
        while at < end:
            at = self._add_rows(frames, at, spool.aborted)
            if at < end:
                payload, at = payload_at(frames, at)
                data = payload[DATA_BEGIN:]
                if not spool.skips(data):
                    self._change(decode(data, streamed=True), len(data))
            if self.drafts:  # before more of them fill the memory
                self._on_parts()

    def _abort(self, xid: int, subxid: int) -> None:
        if subxid != xid:
            spool = self._spools.get(xid)
            if spool is not None:
                spool.aborted.add(subxid)
            return
        gone = self._spools.pop(xid, None)
        if gone is not None:
            gone.close()


def _add_schema(draft: Draft, said: SchemaChange) -> None:
    image = {name: value for name, value in structs.asdict(said).items() if value and name != "number"}
    draft.add(Op.SCHEMA, said.number, NO_KEY, after=msgspec_json.encode(image))


def _add_insert(draft: Draft, shape: TableShape, insert: Insert) -> None:
    draft.add(_INSERT, shape.number, shape.key(insert.new), after=shape.image(insert.new))


def _add_delete(draft: Draft, shape: TableShape, delete: Delete) -> None:
    before = shape.key_image(delete.old) if delete.old_is_key else shape.image(delete.old)
    draft.add(_DELETE, shape.number, shape.key(delete.old), before=before)


def _add_update(draft: Draft, shape: TableShape, update: Update) -> None:
    """Add an update: a deletion and an insert where the key changes, as it does wherever the whole row is the key."""
    old, new = update.old, update.new
    if old is None:
        draft.add(_UPDATE, shape.number, shape.key(new), before=shape.key_image(new), after=shape.image(new))
        return
    new = shape.filled(new, old, key_alone=update.old_is_key)
    key_before, key_after = shape.key(old), shape.key(new)
    before = shape.key_image(old) if update.old_is_key else shape.image(old)
    after = shape.image(new)
    if key_before == key_after and not shape.is_whole_row:
        draft.add(_UPDATE, shape.number, key_after, before=before, after=after)
        return
    draft.add(_DELETE, shape.number, key_before, before=before)
    draft.add(_INSERT, shape.number, key_after, after=after)


_ROWS: dict[type[Any], Callable[[Draft, TableShape, Any], None]] = {
    Insert: _add_insert,
    Update: _add_update,
    Delete: _add_delete,
}
"""What adds the change of a row, by the type of its message."""
