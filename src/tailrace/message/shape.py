"""What a sink makes of changes: which of them it wants, what of their rows, and in which envelope. Pure."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct, structs

from tailrace.clock import Clock, SystemClock
from tailrace.envelope.base import Envelope, UnfitError, Wrapped
from tailrace.envelope.envelopes import OWN, envelope_of
from tailrace.message.base import Message
from tailrace.message.projection import Projection, compile_projection
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, InvalidPredicateError, PredicateError, SinkRefusedError
from tailrace.model.op import Op
from tailrace.model.table import TableName, TableSchema
from tailrace.sql.dialect import dialect_of
from tailrace.sql.predicate import Predicate
from tailrace.subscription.cel.compile import compile_cel

__all__ = ["Shape", "ShapeOptions", "Shaped", "message_id"]

_CEL = "cel:"
_ID_CHARACTERS_MAX = 160
_VERSIONS_KEPT = 1024
"""Compiled forms that a shape keeps: one for each version of each table."""

_HEADER_WORDS = {op: op.word for op in Op}


class ShapeOptions(Struct, frozen=True):
    """How a sink shapes changes."""

    tables: tuple[str, ...] = ()
    """Tables by their names on the wires; none for all."""

    filter: str = ""
    """SQL predicate, or a CEL one behind `cel:`; empty for all changes."""

    project: tuple[str, ...] = ()
    """Parts of a projection, see `tailrace.message.projection`; none for whole rows."""

    envelope: str = ""
    """Name of the envelope; that of the target where it takes only one, else ours."""


class Shaped(Struct, frozen=True):
    """What a change has become: a message, two where a tombstone follows, or none and the reason why."""

    change: Change
    """The change as it came."""

    snapshot: bool
    messages: tuple[Message, ...] = ()
    reason: str = ""


class _Version(Struct, frozen=True):
    """What was compiled for one version of a table."""

    schema: TableSchema
    predicate: Predicate | None
    projection: Projection | None


class Shape:
    """Makes messages of changes. For one thread.

    Raises:
        ConfigError: There is no such envelope.
    """

    def __init__(
        self,
        options: ShapeOptions,
        *,
        tombstones: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._envelope: Envelope = envelope_of(options.envelope or OWN)
        self._tables = frozenset(options.tables)
        self._tombstones = tombstones and self._envelope.tombstones
        self._versions: dict[int, _Version] = {}
        self._fitted: set[TableName] = set()
        """Tables that filter and projection have fitted once."""

    def missing(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        """Return the tables that the sink names and that are not among these."""
        return sorted(self._tables.difference(schema.table.wire for schema in schemas))

    def check(self, schemas: Sequence[TableSchema]) -> None:
        """Have a look at whether filter and projection fit tables.

        Raises:
            ConfigError: They do not.
        """
        for schema in schemas:
            try:
                self._compile(schema)
            except InvalidPredicateError as error:
                raise ConfigError(
                    "filter and projection have to fit each table of the sink, which are all of the source unless it "
                    f"names some; they do not fit {schema.table.wire}: {error}"
                ) from error

    def shaped(self, changes: Sequence[Change], *, snapshot: bool = False, parked: bool = False) -> list[Shaped]:
        """Return what becomes of changes, in their order, without those that are not wanted.

        Raises:
            SinkRefusedError: A table has changed so that filter or projection no longer fit it.
        """
        messages: list[Shaped] = []
        for _, group in groupby(changes, lambda change: id(change.schema)):
            run = [change for change in group if change.op != Op.SCHEMA]
            if run and (not self._tables or run[0].schema.table.wire in self._tables):
                messages += self._shape_run(run, self._version(run[0].schema), snapshot=snapshot, parked=parked)
        return messages

    def _shape_run(
        self, changes: Sequence[Change], version: _Version, *, snapshot: bool, parked: bool
    ) -> Iterator[Shaped]:
        wrap, projection = self._envelope.wrap, version.projection
        now_us = self._clock.now_us()
        for change, passes in zip(changes, _passing(version.predicate, changes), strict=True):
            if passes is False:
                continue
            if passes is not True:
                yield Shaped(change, snapshot, reason=f"the filter failed: {passes}")
                continue
            try:
                row = change if projection is None else _projected(change, projection)
                id_ = message_id(row, snapshot=snapshot)
                wrapped = wrap(row, id_, snapshot=snapshot, now_us=now_us)
            except PredicateError as error:
                yield Shaped(change, snapshot, reason=f"the projection failed: {error.reason}")
            except UnfitError as error:
                yield Shaped(change, snapshot, reason=f"the envelope {self._options.envelope}: {error}")
            else:
                yield Shaped(change, snapshot, self._messages(row, id_, wrapped, snapshot=snapshot, parked=parked))

    def _messages(
        self, row: Change, id_: str, wrapped: Wrapped, *, snapshot: bool, parked: bool
    ) -> tuple[Message, ...]:
        headers = _headers(row, id_) + wrapped.headers
        message = Message(row, id_, wrapped.value, wrapped.key, headers, wrapped.content_type, snapshot, parked)
        if not (self._tombstones and row.op is Op.DELETE and wrapped.value is not None):
            return (message,)
        gone = f"{id_}/tombstone"
        return message, Message(row, gone, None, wrapped.key, _headers(row, gone), parked=parked)

    def _version(self, schema: TableSchema) -> _Version:
        found = self._versions.get(id(schema))
        if found is None or found.schema is not schema:
            if len(self._versions) >= _VERSIONS_KEPT:
                self._versions.clear()
            try:
                found = self._versions[id(schema)] = self._compile(schema)
            except InvalidPredicateError as error:
                why = "it has changed so that" if schema.table in self._fitted else "as it is,"
                reason = f"{why} the sink's filter or projection does not fit; name the tables that it is for: {error}"
                raise SinkRefusedError(reason, table=schema.table.wire) from error
        return found

    def _compile(self, schema: TableSchema) -> _Version:
        options = self._options
        predicate: Predicate | None = None
        if options.filter.startswith(_CEL):
            predicate = compile_cel(options.filter.removeprefix(_CEL).strip(), schema)
        elif options.filter:
            predicate = dialect_of(schema.dialect).compile_where(options.filter, schema)
        projection = compile_projection(options.project, schema) if options.project else None
        self._fitted.add(schema.table)
        return _Version(schema, predicate, projection)


def message_id(change: Change, *, snapshot: bool) -> str:
    """Return the name of a change's message: `SOURCE/OFFSET`, for a row of a snapshot with its table and key behind.

    Keys that are long, or have more than printable ASCII, are represented by their checksum.
    """
    table = change.schema.table
    if not snapshot:
        return f"{table.source}/{change.offset}"
    row = f"{table.wire}/{change.key.decode(errors='replace')}"
    if len(row) > _ID_CHARACTERS_MAX or not row.isascii() or not row.isprintable():
        row = hashlib.sha256(row.encode()).hexdigest()
    return f"{table.source}/{change.offset}/{row}"


def _headers(change: Change, id_: str) -> tuple[tuple[str, str], ...]:
    """Return what goes beside every message, so that readers can tell repeats and order without its value."""
    return (
        ("tailrace-id", id_),
        ("tailrace-table", change.schema.table.wire),
        ("tailrace-op", _HEADER_WORDS[change.op]),
        ("tailrace-offset", str(change.offset)),
        ("tailrace-index", str(change.index)),
        ("tailrace-schema-version", str(change.schema.version)),
    )


def _projected(change: Change, projection: Projection) -> Change:
    before = projection.before(change.op, change.before)
    after = projection.after(change.op, change.after, change.before)
    return structs.replace(change, schema=projection.schema, before=before, after=after)


def _passing(predicate: Predicate | None, changes: Sequence[Change]) -> Sequence[bool | str]:
    """Tell for each change whether it passes, or why that is unknown."""
    if predicate is None:
        return [True] * len(changes)
    select: Callable[..., list[bool]] = predicate.select
    try:
        return select([one.op for one in changes], [one.before for one in changes], [one.after for one in changes])
    except PredicateError:
        return [_passes(select, change) for change in changes]


def _passes(select: Callable[..., list[bool]], change: Change) -> bool | str:
    try:
        return select((change.op,), (change.before,), (change.after,))[0]
    except PredicateError as error:
        return error.reason
