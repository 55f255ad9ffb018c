"""The filter index: finds the subscriptions that a change concerns without asking each. Pure.

A filter is found by its table and then by the first of these that it has: an exact key, an equality that its predicate
demands, its ops. Equal filters are one group and evaluated once. So a change costs what the subscriptions cost that it
may concern, however many others there are.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tailrace.model.errors import PredicateError
from tailrace.model.number import SchemaId
from tailrace.model.op import ROWLESS, Op
from tailrace.model.table import ANY_TABLE, TableName, TableSchema
from tailrace.sql.dialect import dialect_of
from tailrace.sql.predicate import CellReader, Equality, Image, SqlValue
from tailrace.subscription.filter import Changes, RowFilter

__all__ = ["FilterIndex", "Match"]

_UNSENT: Any = object()
"""Stands for a cell that the source did not send, so that it may be of any value."""

_Id = TypeVar("_Id", bound=Hashable)
_Key = TypeVar("_Key", bound=Hashable)


class Match(Struct, Generic[_Id], frozen=True):
    """What a batch holds for some subscriptions with one and the same filter.

    `rows` are the matching changes by their place in the batch, rising. With an `error` there are none: a predicate
    failed, and these subscriptions are to end. `ids` is the index's own: read it before the index is changed.
    """

    filter: RowFilter
    ids: Collection[_Id]
    rows: Sequence[int]
    error: PredicateError | None = None


class FilterIndex(Generic[_Id]):
    """Filters of many subscriptions over the changes of one source. For one thread at a time.

    There may be a hundred thousand, each with a filter of its own: groups of one and places of one are tuples.
    """

    def __init__(self) -> None:
        self._tables: dict[TableName, _TableIndex[_Id]] = {}
        self._groups: dict[RowFilter, _Group[_Id]] = {}
        self._group_of: dict[_Id, _Group[_Id]] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[_Id]:
        return iter(self._group_of)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._group_of

    def add(self, id_: _Id, row_filter: RowFilter) -> None:
        """Add a subscription, or give one that is there another filter."""
        self.remove(id_)
        group = self._groups.get(row_filter)
        if group is None:
            group = self._groups[row_filter] = _Group(row_filter)
            for table in row_filter.tables:
                self._tables.setdefault(table, _TableIndex()).add(group)
        group.add(id_)
        self._group_of[id_] = group

    def remove(self, id_: _Id) -> None:
        """Remove a subscription; one that is not there is none to remove."""
        group = self._group_of.pop(id_, None)
        if group is None:
            return
        group.discard(id_)
        if group.ids:
            return
        del self._groups[group.filter]
        for table in group.filter.tables:
            index = self._tables[table]
            index.remove(group)
            if not index.count:
                del self._tables[table]

    def match(self, changes: Changes, schemas: Mapping[SchemaId, TableSchema]) -> list[Match[_Id]]:
        """Return which changes concern which subscriptions; those that none of the changes concerns are left out."""
        return [match for match in self.matches(changes, schemas) if match is not None]

    def matches(self, changes: Changes, schemas: Mapping[SchemaId, TableSchema]) -> Iterator[Match[_Id] | None]:
        """Yield the same one by one, as they are found, and None for each filter that none of them passes.

        The index may be changed meanwhile: subscriptions that come are left out, those that go may be left out.
        """
        by_schema: dict[SchemaId, list[int]] = {}
        for row, schema_id in enumerate(changes.schemas):
            found = by_schema.get(schema_id)
            if found is None:
                by_schema[schema_id] = [row]
            else:
                found.append(row)
        candidates: dict[_Group[_Id], list[int]] = {}
        for schema_id, rows in by_schema.items():
            for table in (schemas[schema_id].table, ANY_TABLE):
                index = self._tables.get(table)
                if index is not None:
                    index.collect(candidates, changes, rows, schemas[schema_id])
        for group, rows in candidates.items():
            yield group.match(changes, rows)


class _Group(Generic[_Id]):
    """Subscriptions with equal filters."""

    __slots__ = ("equality", "filter", "ids")

    def __init__(self, row_filter: RowFilter) -> None:
        self.filter = row_filter
        self.ids: tuple[_Id] | tuple[()] | set[_Id] = ()
        demanded = (equality for predicate in row_filter.predicates for equality in predicate.equalities)
        self.equality: Equality | None = None if row_filter.key is not None else next(demanded, None)

    def add(self, id_: _Id) -> None:
        if isinstance(self.ids, set):
            self.ids.add(id_)
        else:
            self.ids = {*self.ids, id_} if self.ids else (id_,)

    def discard(self, id_: _Id) -> None:
        if isinstance(self.ids, set):
            self.ids.discard(id_)
        else:
            self.ids = ()

    def match(self, changes: Changes, rows: list[int]) -> Match[_Id] | None:
        """Evaluate what the index has not; None if nothing is left."""
        rows.sort()
        try:
            left = self.filter.narrow(changes, rows, key_known=self.filter.key is not None)
        except PredicateError as error:
            return Match(self.filter, self.ids, (), error)
        return Match(self.filter, self.ids, left) if left else None


_Groups = dict[_Group[_Id], None]
"""Groups in order of their arrival."""

_Place = tuple[_Group[_Id]] | _Groups[_Id]
"""Groups that are found by the same key or value; one, or many."""


class _TableIndex(Generic[_Id]):
    """The groups of one table."""

    __slots__ = ("_by_key", "_by_op", "_by_value", "_elsewhere", "_readers", "count")

    def __init__(self) -> None:
        self.count = 0
        self._by_key: dict[bytes, _Place[_Id]] = {}
        self._by_value: dict[tuple[Image, str], dict[SqlValue, _Place[_Id]]] = {}
        self._by_op: dict[int, _Groups[_Id]] = {}
        self._elsewhere: _Groups[_Id] = {}
        self._readers: dict[int, CellReader] = {}

    def add(self, group: _Group[_Id]) -> None:
        self.count += 1
        key, equality = group.filter.key, group.equality
        if key is not None:
            if key.key is not None:
                _put(self._by_key, key.key, group)
        elif equality is not None:
            if (equality.image, equality.column) not in self._by_value:
                self._readers.clear()
            _put(self._by_value.setdefault((equality.image, equality.column), {}), equality.value, group)
        else:
            for op in group.filter.ops:
                self._by_op.setdefault(op, {})[group] = None
            return
        if not ROWLESS.isdisjoint(group.filter.ops):
            self._elsewhere[group] = None

    def remove(self, group: _Group[_Id]) -> None:
        self.count -= 1
        key, equality = group.filter.key, group.equality
        if key is not None:
            if key.key is not None:
                _take(self._by_key, key.key, group)
        elif equality is not None:
            values = self._by_value[equality.image, equality.column]
            _take(values, equality.value, group)
            if not values:
                del self._by_value[equality.image, equality.column]
                self._readers.clear()
        for op in group.filter.ops:
            self._by_op.get(op, {}).pop(group, None)
        self._elsewhere.pop(group, None)

    def collect(
        self, candidates: dict[_Group[_Id], list[int]], changes: Changes, rows: Sequence[int], schema: TableSchema
    ) -> None:
        """Add, for each group that it may concern, the rows that may."""
        if self._by_key:
            find, keys = self._by_key.get, changes.keys
            for row in rows:
                for group in find(keys[row], ()):
                    candidates.setdefault(group, []).append(row)
        if self._by_value:
            for row in rows:
                if changes.ops[row] not in ROWLESS:
                    for group in self._find(changes.ops[row], changes.befores[row], changes.afters[row], schema):
                        candidates.setdefault(group, []).append(row)
        if self._by_op or self._elsewhere:
            self._collect_by_op(candidates, changes.ops, rows)

    def _collect_by_op(self, candidates: dict[_Group[_Id], list[int]], ops: Sequence[int], rows: Sequence[int]) -> None:
        present = {ops[row] for row in rows}
        for group in {group: None for op in present for group in self._by_op.get(op, ())}:
            candidates.setdefault(group, []).extend(rows)
        if self._elsewhere and not ROWLESS.isdisjoint(present):
            changed = [row for row in rows if ops[row] in ROWLESS]
            for group in self._elsewhere:
                candidates.setdefault(group, []).extend(changed)

    def _find(self, op: int, before: bytes | None, after: bytes | None, schema: TableSchema) -> Iterator[_Group[_Id]]:
        """Yield the groups whose equality a change meets, or may meet, each once."""
        read = self._reader(schema)
        try:
            old = {} if before is None else read(before)
            new = {} if after is None else read(after)
        except PredicateError:
            for values in self._by_value.values():
                for groups in values.values():
                    yield from groups
            return
        unsent_old = None if op == Op.INSERT else _UNSENT
        unsent_new = None if after is None else _UNSENT
        for (image, column), values in self._by_value.items():
            one = old.get(column, unsent_old)
            other = new.get(column, unsent_new)
            if other is _UNSENT and op == Op.UPDATE:
                other = one  # an update that does not send a cell leaves it as it is
            elif one is _UNSENT and after is not None and column in schema.key:
                one = other  # nor does it change the key
            one = None if image is Image.AFTER else one
            other = None if image is Image.BEFORE else other
            if one is _UNSENT or other is _UNSENT:
                for groups in values.values():
                    yield from groups
                continue
            if other is not None:
                yield from values.get(other, ())
            if one is not None and one != other:
                yield from values.get(one, ())

    def _reader(self, schema: TableSchema) -> CellReader:
        """Return the reader of the columns that some equality is about."""
        found = self._readers.get(schema.version)
        if found is None:
            columns = sorted({column for _, column in self._by_value})
            found = self._readers[schema.version] = dialect_of(schema.dialect).cell_reader(columns, schema)
        return found


def _put(places: dict[_Key, _Place[_Id]], key: _Key, group: _Group[_Id]) -> None:
    found = places.get(key)
    if isinstance(found, dict):
        found[group] = None
    else:
        places[key] = (group,) if found is None else {found[0]: None, group: None}


def _take(places: dict[_Key, _Place[_Id]], key: _Key, group: _Group[_Id]) -> None:
    found = places[key]
    if isinstance(found, dict):
        del found[group]
        if found:
            return
    del places[key]
