"""Filters: which changes of a chunk a subscription wants. Pure; evaluated over whole chunks at once.

A `Filter` is what a subscription asks for: table, op, key, changed columns and predicates, ANDed. A `RowFilter` is that
compiled for one version of a table's schema.
"""

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.model.chunk import Chunk
from tailrace.model.errors import InvalidRequestError, PredicateError
from tailrace.model.image import NO_KEY
from tailrace.model.number import SchemaId
from tailrace.model.op import Op, wanted_ops
from tailrace.model.raw_key import key_of_raw
from tailrace.model.subscription import FilterOptions, Target
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, OneOfKeys, Wanted
from tailrace.sql.dialect import dialect_of
from tailrace.sql.predicate import Predicate
from tailrace.subscription.cel.compile import compile_cel
from tailrace.subscription.columns import ChangedColumns
from tailrace.subscription.key_filter import ExactKey, KeyBounds

__all__ = ["Changes", "Filter", "RawKey", "RowFilter", "Rows", "compile_filter"]


class RawKey(ExactKey):
    """Passes the changes of the one key whose raw form this is, in whatever table; see `tailrace.model.raw_key`."""

    __slots__ = ()

    def __init__(self, raw: bytes, schema: TableSchema) -> None:
        self.key = key_of_raw(raw, schema)


Rows = range | list[int]
"""Rows of a chunk by their number in it, rising. A range where they are consecutive."""

_ROWS_FEW = 16
"""Below this many rows, going through them in Python costs less than calling Arrow."""

_SCHEMAS_FEW = 32
"""Up to this many schema versions in the log, looking at all of them costs less than finding those in a chunk."""

_VERSIONS_KEPT = 8
"""Compiled forms that a filter keeps; an older one is made again when it is needed again."""


class Changes(Struct, frozen=True):
    """Consecutive changes by columns, as lists of one length."""

    ops: Sequence[int]
    schemas: Sequence[SchemaId]
    keys: Sequence[bytes]
    befores: Sequence[bytes | None]
    afters: Sequence[bytes | None]

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> "Changes":
        """Return the changes of a chunk."""
        return cls(*(chunk.batch.column(name).to_pylist() for name in ("op", "schema", "key", "before", "after")))


class RowFilter:
    """One compiled filter. Two are equal when they choose the same changes, so that work for one serves the other.

    The parts were compiled for one version of the table's schema; when that changes, compile and add them again.
    """

    __slots__ = ("bounds", "columns", "key", "ops", "predicates", "tables")

    def __init__(
        self,
        tables: Iterable[TableName],
        ops: Iterable[Op],
        *,
        key: ExactKey | None = None,
        bounds: KeyBounds | None = None,
        columns: ChangedColumns | None = None,
        predicates: Iterable[Predicate] = (),
    ) -> None:
        self.tables = frozenset(tables)
        self.ops = frozenset(ops)
        self.key = key
        self.bounds = bounds
        self.columns = columns
        self.predicates = tuple(predicates)

    @property
    def costly(self) -> bool:
        """Tell whether it is slow enough to be evaluated outside the event loop."""
        return any(predicate.costly for predicate in self.predicates)

    @property
    def cheap(self) -> "RowFilter":
        """Return the filter without what is slow: all that pass this one pass that, and perhaps others."""
        if not self.costly:
            return self
        return RowFilter(
            self.tables,
            self.ops,
            key=self.key,
            bounds=self.bounds,
            columns=self.columns,
            predicates=[predicate for predicate in self.predicates if not predicate.costly],
        )

    @property
    def canonical(self) -> tuple[Any, ...]:
        """Return what equal filters have in common."""
        parts: Sequence[Any] = (self.key, self.bounds, self.columns, *self.predicates)
        return (self.tables, self.ops, *(part.canonical for part in parts if part is not None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowFilter) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def narrow(self, changes: Changes, rows: Sequence[int], *, key_known: bool = False) -> Sequence[int]:
        """Return those of the rows that pass. Their tables are known to be wanted, as are their keys if `key_known`.

        Raises:
            PredicateError: A predicate failed on one of them.
        """
        ops, keys, befores, afters = changes.ops, changes.keys, changes.befores, changes.afters
        wanted = self.ops
        rows = [row for row in rows if ops[row] in wanted]
        for by_key in (None if key_known else self.key, self.bounds):
            if by_key is not None and rows:
                rows = _kept(rows, by_key.select([keys[row] for row in rows]))
        for by_image in (self.columns, *self.predicates):
            if by_image is not None and rows:
                images = [befores[row] for row in rows], [afters[row] for row in rows]
                rows = _kept(rows, by_image.select([ops[row] for row in rows], *images))
        return rows

    def narrow_chunk(self, chunk: Chunk, places: Any) -> list[int]:
        """Return those of a chunk's rows that pass. Their tables and ops are known to be wanted.

        `places` is an Arrow array of rows, rising; None for all. Keys are compared by Arrow, and only what is left by
        then is taken out of the chunk.

        Raises:
            PredicateError: A predicate failed on one of them.
        """
        keys = chunk.batch.column("key")
        for by_key in (self.key, self.bounds):
            if by_key is not None and (places is None or len(places)):
                mask = by_key.mask(keys if places is None else keys.take(places))
                places = pc.indices_nonzero(mask) if places is None else places.filter(mask)
        rows: list[int] = list(range(len(chunk))) if places is None else places.to_pylist()
        for by_image in (self.columns, *self.predicates):
            if by_image is not None and rows:
                places = pa.array(rows, pa.int64())
                taken = [chunk.batch.column(name).take(places).to_pylist() for name in ("op", "before", "after")]
                rows = _kept(rows, by_image.select(*taken))
        return rows


def _kept(rows: Sequence[int], passing: Sequence[bool]) -> list[int]:
    return [row for row, passes in zip(rows, passing, strict=True) if passes]


class Filter:
    """The compiled form of a subscription's target and filter options.

    Two filters are equal when they choose the same changes of one source; so work done for one serves the other. What
    depends on the columns of a table is compiled for each version of its schema, when the first change of it comes.
    """

    __slots__ = ("_compiled", "_conditions", "_hash", "ops", "options", "restriction", "tables")

    lasting: ClassVar[bool] = True
    """Whether it is asked again and again, so that what it found is worth keeping."""

    def __init__(self, target: Target, options: FilterOptions) -> None:
        self.tables = _shared(frozenset(target.tables))
        self.ops = _shared(wanted_ops(options.ops))
        self.options = options
        self._conditions = _row_conditions(options)
        self._compiled: tuple[SchemaId | RowFilter, ...] = ()  # in pairs, the newest first; smaller than a dictionary
        self.restriction: Hashable = None
        self._hash = hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.identity == other.identity

    def __hash__(self) -> int:
        return self._hash

    @property
    def identity(self) -> tuple[frozenset[TableName], frozenset[Op], bytes, Hashable]:
        """Return what equal filters have in common."""
        return self.tables, self.ops, self._conditions, self.restriction

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to which images are cut; none for all."""
        return self.options.columns

    @property
    def looks_at_rows(self) -> bool:
        """Tell whether more than table and op decides."""
        return bool(self._conditions)

    @property
    def costly(self) -> bool:
        """Tell whether it is slow enough to be evaluated outside the event loop."""
        return self.options.cel is not None

    @property
    def is_restricted(self) -> bool:
        """Tell whether the chunks that it is for hold only what someone may see."""
        return self.restriction is not None

    def restricted(self, by: Hashable) -> Self:
        """Return this filter for chunks that hold only what someone may see. It equals only those for the same."""
        made = copy.copy(self)
        made.restriction = by
        made._hash = hash(made.identity)  # noqa: SLF001  one of our own
        return made

    def wanted(self, schemas: Mapping[SchemaId, TableSchema]) -> Wanted | None:
        """Return what tells blocks in which no change can pass, given all schema versions; None where any may pass."""
        keys: dict[SchemaId, KeyWanted] = {}
        for schema_id, schema in schemas.items():
            if self.wants(schema.table):
                keys[schema_id] = self._wanted_keys(schema_id, schema)
        everything = len(keys) == len(schemas) and self.ops >= frozenset(Op)
        if everything and all(isinstance(key, AnyKey) for key in keys.values()):
            return None
        return Wanted(keys, frozenset(map(int, self.ops)), len(schemas))

    def _wanted_keys(self, schema_id: SchemaId, schema: TableSchema) -> KeyWanted:
        if not self.looks_at_rows:
            return AnyKey()
        try:
            rows = self.for_schema(schema_id, schema)
        except PredicateError:
            return AnyKey()  # whoever reads the first change of it gets the error
        if rows.key is not None:
            return OneOfKeys(frozenset({NO_KEY} if rows.key.key is None else {NO_KEY, rows.key.key}))
        if rows.bounds is not None and rows.bounds.integers is not None:
            return KeyWithin(*rows.bounds.integers)
        return AnyKey()

    def wants(self, table: TableName) -> bool:
        """Tell whether changes of a table may pass."""
        return table in self.tables or ANY_TABLE in self.tables

    def select(self, chunk: Chunk) -> Rows:
        """Return the rows of a chunk that pass.

        Raises:
            PredicateError: A predicate failed on one of them, or the table no longer has what the filter asks for.
        """
        rows = self._select_few(chunk) if len(chunk) < _ROWS_FEW else self._select_many(chunk)
        if rows and self.looks_at_rows:
            rows = self._look_at(chunk, rows)
        return rows

    def for_schema(self, schema_id: SchemaId, schema: TableSchema) -> RowFilter:
        """Return the filter as it is for changes under that schema version.

        Raises:
            PredicateError: The table no longer has what the filter asks for.
        """
        kept = self._compiled
        for place in range(0, len(kept), 2):
            compiled = kept[place + 1]
            if kept[place] == schema_id and isinstance(compiled, RowFilter):
                return compiled
        compiled = self.compile(schema)
        self._compiled = (schema_id, compiled, *kept[: 2 * (_VERSIONS_KEPT - 1)])
        return compiled

    def compile(self, schema: TableSchema) -> RowFilter:
        """Return what `for_schema` keeps.

        Raises:
            PredicateError: The table no longer has what the filter asks for.
        """
        try:
            return compile_filter(self.tables, self.options, schema)
        except InvalidRequestError as error:
            reason = f"table {schema.table.wire} has changed so that the filter no longer fits: {error}"
            raise PredicateError(reason) from error

    def _look_at(self, chunk: Chunk, rows: Rows) -> Rows:
        """Return those of the rows whose keys and images pass. Rows stay with Arrow until few are left."""
        column = chunk.batch.column("schema")
        places = None if len(rows) == len(chunk) else pa.array(rows, pa.int64())
        schema_ids = column if places is None else column.take(places)
        present = pc.unique(schema_ids).to_pylist()
        compiled = [self.for_schema(schema_id, chunk.schemas[schema_id]) for schema_id in present]
        if len(present) > 1 and all(one.key is not None for one in compiled):
            places = _of_keys(chunk, places, {one.key.key for one in compiled if one.key is not None})
            schema_ids = column.take(places)
        passing: list[int] = []
        for schema_id, rows_of in zip(present, compiled, strict=True):
            candidates = places
            if len(present) > 1:
                own = pc.equal(schema_ids, pa.scalar(schema_id, column.type))
                candidates = pc.indices_nonzero(own) if places is None else places.filter(own)
            passing += rows_of.narrow_chunk(chunk, candidates)
        return _consecutive(sorted(passing) if len(present) > 1 else passing)

    def _select_many(self, chunk: Chunk) -> Rows:
        masks = [mask for mask in (self._table_mask(chunk), self._op_mask(chunk)) if mask is not None]
        if not masks:
            return range(len(chunk))
        mask = masks[0] if len(masks) == 1 else pc.and_(*masks)
        count = mask.true_count
        if count in (0, len(chunk)):
            return range(count)
        return _consecutive(pc.indices_nonzero(mask).to_pylist())

    def _select_few(self, chunk: Chunk) -> Rows:
        schema_ids, ops = chunk.cells("schema"), chunk.cells("op")
        wanted_ops = self.ops
        wanted = {schema_id for schema_id in set(schema_ids) if self.wants(chunk.schemas[schema_id].table)}
        rows = [
            row
            for row, (schema_id, op) in enumerate(zip(schema_ids, ops, strict=True))
            if op in wanted_ops and schema_id in wanted
        ]
        return range(len(chunk)) if len(rows) == len(chunk) else rows

    def _table_mask(self, chunk: Chunk) -> Any:
        """Return a mask of the rows of wanted tables, or None when there are no others."""
        column, schemas = chunk.batch.column("schema"), chunk.schemas
        present = schemas if len(schemas) <= _SCHEMAS_FEW else pc.unique(column).to_pylist()
        wanted = [number for number in present if self.wants(schemas[number].table)]
        return None if len(wanted) == len(present) else _mask(column, wanted)

    def _op_mask(self, chunk: Chunk) -> Any:
        """Return a mask of the rows with wanted ops, or None when all ops are. What is hidden has no op at all."""
        if len(self.ops) == len(Op) and not self.is_restricted:
            return None
        return _mask(chunk.batch.column("op"), sorted(self.ops))


def _consecutive(rows: list[int]) -> Rows:
    """Return rising rows as a range where none is left out between them."""
    return range(rows[0], rows[-1] + 1) if rows and rows[-1] - rows[0] == len(rows) - 1 else rows


def _of_keys(chunk: Chunk, places: Any, wanted: Iterable[bytes | None]) -> Any:
    """Return those of some rows that have one of these keys, or none: few, before their tables are looked at."""
    keys = chunk.batch.column("key") if places is None else chunk.batch.column("key").take(places)
    mask = pc.equal(keys, pa.scalar(NO_KEY, pa.binary()))
    for key in wanted:
        if key is not None:
            mask = pc.or_(mask, pc.equal(keys, pa.scalar(key, pa.binary())))
    return pc.indices_nonzero(mask) if places is None else places.filter(mask)


def _mask(column: Any, wanted: Sequence[int]) -> Any:
    """Return where a column has one of the wanted numbers, which rise; None where it has no others."""
    if len(wanted) == 1:
        return pc.equal(column, pa.scalar(wanted[0], column.type))
    # Mostly all pass, and the least and the greatest number tell: a tenth of the time of looking for each.
    bounds = pc.min_max(column)
    if set(wanted).issuperset(range(bounds["min"].as_py(), bounds["max"].as_py() + 1)):
        return None
    return pc.is_in(column, value_set=_numbers(tuple(wanted), column.type))


@lru_cache(256)
def _numbers(wanted: tuple[int, ...], kind: Any) -> Any:
    """Return numbers as an array. Arrow takes long to make one of few Python numbers."""
    return pa.array(wanted, kind)


def compile_filter(tables: frozenset[TableName], options: FilterOptions, schema: TableSchema) -> RowFilter:
    """Return the filter that options make over the rows of one version of a table.

    Raises:
        InvalidRequestError: They ask for what the table does not have, or are malformed.
    """
    predicates: list[Predicate] = []
    if options.where is not None:
        predicates.append(dialect_of(schema.dialect).compile_where(options.where, schema))
    if options.cel is not None:
        predicates.append(compile_cel(options.cel, schema))
    return RowFilter(
        tables,
        _shared(wanted_ops(options.ops)),
        key=_key_filter(options, schema),
        bounds=None if options.bounds is None else KeyBounds(options.bounds, schema),
        columns=ChangedColumns(list(options.columns), schema) if options.columns else None,
        predicates=predicates,
    )


def _key_filter(options: FilterOptions, schema: TableSchema) -> ExactKey | None:
    if options.raw_key is not None:
        return RawKey(options.raw_key, schema)
    return ExactKey(list(options.key), schema) if options.key else None


def _row_conditions(options: FilterOptions) -> bytes:
    """Return all conditions but those on table and op, as bytes to compare; nothing where there are none."""
    conditions: Sequence[Any] = (
        options.key,
        options.bounds,
        options.columns,
        options.where,
        options.cel,
        options.raw_key,
    )
    return msgspec.json.encode(conditions) if any(value not in ((), None) for value in conditions) else b""


@lru_cache(4096)
def _shared(members: frozenset[Any]) -> frozenset[Any]:
    """Return one and the same object for equal sets: a hundred thousand filters have few different ones."""
    return members
