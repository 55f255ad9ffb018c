"""Row security: what of a log a principal may see. Pure.

A principal may see some tables of a source, and of a table perhaps only the rows for which a SQL predicate is TRUE; a
row for which it is FALSE or NULL is not there for it. Over a change both row images are looked at:

| before | after | the principal gets |
|---|---|---|
| seen | seen | the change as it is |
| - | seen | an insert without a before image |
| unknown | seen | an update without a before image |
| seen | - | a delete without an after image |
| unknown | -, unknown | a delete with the key alone |
| - | -, unknown | nothing |

A row is unknown where the source did not send the image, or a cell of it that the predicate reads. A cell that is
missing after an update is what it was before; the key is what it was before, too. Where the row before is unknown it
may have been seen. So nothing stays with a principal that it may no longer see; but a row of which nobody can tell
whether it may see it is taken from it, too, until a change tells that. An image before that is not known to have been
seen is not shown: what is missing after the update is taken from there, for that may be seen now.

Schema changes and truncations of a table of which something may be seen are seen: a truncation says that the rows that
were seen are gone, and has neither key nor image to say more. A change that is not seen stays in its chunk, so that
offsets stay consecutive, but as one with the op `HIDDEN`, which no filter wants, and with no key and no images.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.access.principal import Fold, Principal, row_path, table_path
from tailrace.model.chunk import Chunk
from tailrace.model.errors import InvalidPredicateError, PermissionDeniedError, PredicateError
from tailrace.model.image import completed, key_image
from tailrace.model.number import Offset, SchemaId
from tailrace.model.op import ROWLESS, Op
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.sql.dialect import Dialects, dialect_for, dialect_of, require_readable
from tailrace.sql.predicate import RowPredicate

__all__ = ["HIDDEN", "RestrictedChunks", "Restriction", "Restrictions", "check_rows"]

HIDDEN = 0
"""Op of a change that is not seen."""

_KEPT_BYTES_MAX = 16 << 20
"""Memory for restricted chunks that wait for another feed, those of all restrictions of a source together."""

_VERSIONS_KEPT = 256
"""Compiled predicates that a restriction keeps, one for each version of each table."""

_NO_KEY = b"[]"

Identity = tuple[str, frozenset[str] | None, tuple[tuple[str, str], ...]]
"""Of a restriction: the source, the tables that are seen (None for all), and the predicates, all by their paths."""


class Restriction:
    """What one principal, and whoever has the same rights, may see of one source. Two are equal when they hide alike.

    `fold` gives names as the database compares them. `kept` holds the newest results, also those of others. For tasks
    of one event loop.
    """

    __slots__ = ("__weakref__", "_compiled", "_fold", "_found", "_kept", "_predicates", "_tables", "identity")

    def __init__(self, identity: Identity, fold: Fold, kept: "RestrictedChunks | None" = None) -> None:
        self.identity = identity
        self._fold = fold
        _, self._tables, predicates = identity
        self._predicates = dict(predicates)
        self._found: dict[TableName, str | None] = {}
        """The predicate of each table that was asked for: names are folded once, not for every chunk."""

        self._compiled: dict[SchemaId, RowPredicate | None] = {}
        self._kept = RestrictedChunks(_KEPT_BYTES_MAX) if kept is None else kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Restriction) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def sees(self, table: TableName) -> bool:
        """Tell whether anything of a table may be seen."""
        return self._tables is None or table_path(table) in self._tables

    def narrows(self, table: TableName) -> bool:
        """Tell whether only some rows of a table may be seen, so that changes may turn into others."""
        return self._predicate(table) is not None

    def narrows_any(self, tables: frozenset[TableName]) -> bool:
        """Tell whether it narrows one of the tables that a filter names."""
        return bool(self._predicates) and (ANY_TABLE in tables or any(map(self.narrows, tables)))

    def require_whole(self, tables: Iterable[TableName]) -> None:
        """Refuse to go on unless all of these tables may be seen whole, as a query must.

        Raises:
            PermissionDeniedError: One of them is hidden, or some of its rows may be.
        """
        for table in tables:
            if not self.sees(table) or self.narrows(table):
                raise PermissionDeniedError("Access denied: the query depends on a table that is not seen whole")

    def apply(self, chunk: Chunk) -> Chunk:
        """Return a chunk of the same offsets that holds nothing which is not seen.

        Raises:
            PermissionDeniedError: A predicate does not fit its table, or failed on a row.
        """
        restricted = self._kept.find(self.identity, chunk)
        if restricted is None:
            restricted = self._restrict(chunk)
            self._kept.put(self.identity, restricted)
        return restricted

    def visible(self, images: Sequence[bytes | None], schema: TableSchema) -> list[bool]:
        """Tell for each row image of a table whether it is seen; one that is not there, or not whole, is not.

        Raises:
            PermissionDeniedError: The predicate does not fit the table, or failed on a row.
        """
        if not self.sees(schema.table):
            return [False] * len(images)
        if not self.narrows(schema.table):
            return [image is not None for image in images]
        return [seen is True for seen in _decide(self._compile(schema), images, schema)]

    def _predicate(self, table: TableName) -> str | None:
        """Return the predicate over the rows of a table; None where there is none."""
        if not self._predicates:
            return None
        if table not in self._found:
            if len(self._found) >= _VERSIONS_KEPT:
                self._found.clear()
            self._found[table] = self._predicates.get(row_path(table, self._fold))
        return self._found[table]

    def _restrict(self, chunk: Chunk) -> Chunk:
        column = chunk.batch.column("schema")
        edits = _Edits()
        for schema_id in pc.unique(column).to_pylist():
            schema = chunk.schemas[schema_id]
            if self.sees(schema.table) and not self.narrows(schema.table):
                continue
            rows: list[int] = pc.indices_nonzero(pc.equal(column, pa.scalar(schema_id, column.type))).to_pylist()
            if not self.sees(schema.table):
                edits.hidden += rows
                continue
            predicate = self._for_schema(schema_id, schema)
            places = pa.array(rows, pa.int64())
            changes = _Changes(
                rows, *(chunk.batch.column(name).take(places).to_pylist() for name in ("op", "key", "before", "after"))
            )
            edits.judge(changes, *_sight(predicate, changes, schema))
        return chunk if edits.none else chunk.remade(edits.made(chunk.batch))

    def _for_schema(self, schema_id: SchemaId, schema: TableSchema) -> RowPredicate | None:
        if schema_id not in self._compiled:
            if len(self._compiled) >= _VERSIONS_KEPT:
                self._compiled.clear()
            self._compiled[schema_id] = self._compile(schema)
        return self._compiled[schema_id]

    def _compile(self, schema: TableSchema) -> RowPredicate | None:
        """Return the predicate for a version of a table; None where it does not fit that."""
        try:
            predicate = dialect_of(schema.dialect).compile_where(self._predicate(schema.table) or "", schema)
        except InvalidPredicateError:
            return None
        return None if predicate.pairs else predicate


class RestrictedChunks:
    """Chunks as they are seen under restrictions, the least recently used out first, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[Identity, Offset, Offset, Hashable], tuple[Chunk, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return how much memory the chunks hold."""
        return self._bytes

    def find(self, identity: Identity, chunk: Chunk) -> Chunk | None:
        """Return what a restriction leaves of a chunk; None when that is not here."""
        key = (identity, chunk.first, chunk.last, chunk.picked)
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, identity: Identity, restricted: Chunk) -> None:
        """Keep what a restriction leaves of a chunk; it must not be here yet."""
        held_bytes = restricted.held_bytes
        self._kept[identity, restricted.first, restricted.last, restricted.picked] = restricted, held_bytes
        self._bytes += held_bytes
        while self._bytes > self._bytes_max:
            _, (_, oldest_bytes) = self._kept.popitem(last=False)
            self._bytes -= oldest_bytes


class Restrictions:
    """Gives equal restrictions only once while someone has them, so that each is compiled and applied once.

    Predicates are found by the name of their table as the dialect of its source compares names.
    """

    def __init__(self, dialects: Dialects | None = None) -> None:
        self._dialects = dialects or {}
        self._kept = RestrictedChunks(_KEPT_BYTES_MAX)
        self._alive: WeakValueDictionary[Identity, Restriction] = WeakValueDictionary()

    def get(self, principal: Principal, source: str) -> Restriction | None:
        """Return what a principal may see of a source that it reaches; None where it is everything."""
        own = f"{source}."
        tables = (
            None if principal.tables is None else frozenset(filter(lambda path: path.startswith(own), principal.tables))
        )
        fold = dialect_for(source, self._dialects).fold
        predicates = tuple(sorted(principal.predicates(source, fold).items()))
        if tables is None and not predicates:
            return None
        return self.of((source, tables, predicates))

    def of(self, identity: Identity) -> Restriction:
        """Return the restriction that hides what another one of this identity hides, perhaps in another process."""
        restriction = self._alive.get(identity)
        if restriction is None:
            fold = dialect_for(identity[0], self._dialects).fold
            restriction = self._alive[identity] = Restriction(identity, fold, self._kept)
        return restriction


def check_rows(rows: Mapping[str, str], dialects: Dialects) -> None:
    """Refuse predicates that cannot be read. Whether they fit their tables shows when those are read.

    A predicate for a source that `dialects` does not have must be readable in some dialect.

    Raises:
        InvalidPredicateError: One cannot be read.
    """
    for path, text in rows.items():
        own = [dialect for source, dialect in dialects.items() if path.startswith(f"{source}.")]
        require_readable(text, own)


class _Changes(Struct, frozen=True):
    """Changes of one version of a table by columns, as lists of one length; `rows` are their places in the chunk."""

    rows: Sequence[int]
    ops: Sequence[int]
    keys: Sequence[bytes]
    befores: Sequence[bytes | None]
    afters: Sequence[bytes | None]


class _Edits:
    """What becomes of the rows of a chunk that are not passed on as they are."""

    def __init__(self) -> None:
        self.hidden: list[int] = []
        self._ops: dict[int, int] = {}
        self._without_before: list[int] = []
        self._without_after: list[int] = []
        self._afters: dict[int, bytes] = {}

    @property
    def none(self) -> bool:
        """Tell whether all rows stay as they are."""
        return not (self.hidden or self._ops or self._without_before)

    def judge(self, changes: _Changes, before_seen: Sequence[bool | None], after_seen: Sequence[bool | None]) -> None:
        """Add rows of a table of which only some may be seen; None is unknown."""
        judged = zip(changes.rows, changes.ops, before_seen, after_seen, strict=True)
        for place, (row, op, before, after) in enumerate(judged):
            if op in ROWLESS or (before and after):
                continue
            if after:
                if op != Op.INSERT:
                    self._appear(row, changes.befores[place], changes.afters[place], known=before is not None)
            elif before or (before is None and op != Op.INSERT):
                self._vanish(row, op, seen=bool(before))
            else:
                self.hidden.append(row)

    def _appear(self, row: int, before: bytes | None, after: bytes | None, *, known: bool) -> None:
        """Show a row that was not seen before, or of which that is not known, without what it was."""
        if known:
            self._ops[row] = int(Op.INSERT)
        if before is not None and after is not None:
            self._without_before.append(row)
            whole = completed(after, before)
            if whole is not after:
                self._afters[row] = whole

    def _vanish(self, row: int, op: int, *, seen: bool) -> None:
        """Show a row that was or may have been seen as deleted; with its image only if that was seen."""
        if op != Op.DELETE:
            self._ops[row] = int(Op.DELETE)
            self._without_after.append(row)
        if not seen:
            self._without_before.append(row)

    def made(self, batch: Any) -> Any:
        """Return the record batch with the rows as they become."""
        count = batch.num_rows
        ops = self._ops | dict.fromkeys(self.hidden, HIDDEN)
        arrays = {name: batch.column(name) for name in batch.schema.names}
        if ops:
            arrays["op"] = pc.replace_with_mask(
                arrays["op"], _mask(ops, count), pa.array([ops[row] for row in sorted(ops)], pa.int8())
            )
        arrays["key"] = _without(arrays["key"], self.hidden).fill_null(_NO_KEY)
        arrays["before"] = _without(arrays["before"], [*self.hidden, *self._without_before])
        arrays["after"] = _without(arrays["after"], [*self.hidden, *self._without_after])
        if self._afters:
            filled = pa.array([self._afters[row] for row in sorted(self._afters)], pa.binary())
            arrays["after"] = pc.replace_with_mask(arrays["after"], _mask(self._afters, count), filled)
        return pa.record_batch(list(arrays.values()), schema=batch.schema)


def _without(column: Any, rows: Sequence[int]) -> Any:
    """Return a column with nulls in some rows, of whose values it keeps no byte."""
    if not rows:
        return column
    places: list[int | None] = list(range(len(column)))
    for row in rows:
        places[row] = None
    return column.take(pa.array(places, pa.int64()))


def _mask(rows: Iterable[int], count: int) -> Any:
    chosen = bytearray(count)
    for row in rows:
        chosen[row] = 1
    return pa.array(chosen, pa.uint8()).cast(pa.bool_())


def _sight(
    predicate: RowPredicate | None, changes: _Changes, schema: TableSchema
) -> tuple[list[bool | None], list[bool | None]]:
    """Tell for each change whether the row before it is seen, and the row after it; None where that is not known."""
    before_seen = _decide(predicate, changes.befores, schema)
    after_seen = _decide(predicate, changes.afters, schema)
    for place, op in enumerate(changes.ops):
        before, after = changes.befores[place], changes.afters[place]
        if op == Op.INSERT:
            before_seen[place] = False
        elif op in _ROW_CHANGES and before_seen[place] is None:
            known = key_image(changes.keys[place], schema)
            known = known if before is None else completed(before, known)
            before_seen[place] = _decide(predicate, [known], schema)[0]
        if op == Op.UPDATE and after is not None and after_seen[place] is None:
            whole = completed(after, key_image(changes.keys[place], schema))
            whole = whole if before is None else completed(whole, before)
            after_seen[place] = _decide(predicate, [whole], schema)[0]
    return before_seen, after_seen


_ROW_CHANGES = frozenset({Op.UPDATE, Op.DELETE})


def _decide(predicate: RowPredicate | None, images: Sequence[bytes | None], schema: TableSchema) -> list[bool | None]:
    """Tell for which images a predicate is true, each looked at by itself as the image of an inserted row.

    Of an image that is not there, or lacks a cell that the predicate reads, it is not known.
    """
    refusal = f"Access denied to table '{table_path(schema.table)}': its row predicate cannot be evaluated"
    if predicate is None:
        raise PermissionDeniedError(refusal)
    count = len(images)
    try:
        decided = predicate.decide([int(Op.INSERT)] * count, [None] * count, images)
    except PredicateError as error:
        raise PermissionDeniedError(refusal) from error
    return [None if image is None else one for one, image in zip(decided, images, strict=True)]
