"""The filter index: it finds exactly what asking every filter about every change would."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import PredicateError
from tailrace.model.image import encode_image, encode_key
from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import to_literal
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.subscription.cel.compile import compile_cel
from tailrace.subscription.columns import ChangedColumns
from tailrace.subscription.filter import Changes, RowFilter
from tailrace.subscription.index import FilterIndex, Match
from tailrace.subscription.key_filter import ExactKey, KeyBounds

COLUMNS = (Column("id", Kind.I64, "INTEGER"), Column("status", Kind.STR, "TEXT"), Column("size", Kind.I64, "INTEGER"))
ORDERS = TableSchema(TableName("app", "orders"), 1, COLUMNS, ("id",))
NEWER = TableSchema(TableName("app", "orders"), 2, (*COLUMNS, Column("extra")), ("id",))
USERS = TableSchema(TableName("app", "users"), 1, COLUMNS, ("id",))
SCHEMAS = {SchemaId(1): ORDERS, SchemaId(2): USERS, SchemaId(3): NEWER}
ROWS = (Op.INSERT, Op.UPDATE, Op.DELETE)

WHERES = [
    "status = 'a'",
    "status = 'b' AND size > 2",
    "size = 3",
    "size = '3'",
    "size = 1.0",
    "size > 2",
    "after.status = 'a'",
    "before.size = 3 AND after.size <> 3",
    "op = 'update' AND status = 'c'",
    "status = 'a' OR size = 0",
    "abs(size) > 2",
    "abs(size) > 0 AND status = 'a'",
    "id = 4",
]
CELS = ["row.size > 2", "op == 'insert'", "row.status == 'a'"]


def literal(number: int) -> dict[str, object]:
    return to_literal(number)


def draw_filter(source: random.Random) -> RowFilter:
    """Draw a filter with some of all conditions."""
    schema = source.choice([ORDERS, ORDERS, USERS])
    ops = source.choice(
        [ROWS, ROWS, (Op.INSERT,), (Op.UPDATE, Op.DELETE), (*ROWS, Op.SCHEMA), (Op.SCHEMA,), (*ROWS, Op.TRUNCATE)]
    )
    low = source.randrange(4)
    predicates = [compile_where(source.choice(WHERES), schema)] if source.random() < 0.6 else []
    if source.random() < 0.15:
        predicates.append(compile_cel(source.choice(CELS), schema))
    return RowFilter(
        [ORDERS.table, USERS.table] if source.random() < 0.1 else [schema.table],
        ops,
        key=ExactKey([literal(source.randrange(6))], schema) if source.random() < 0.3 else None,
        bounds=KeyBounds({"lower_bound": literal(low), "upper_bound": literal(low + 2)}, schema)
        if source.random() < 0.15
        else None,
        columns=ChangedColumns([source.choice(["status", "size"])], schema) if source.random() < 0.2 else None,
        predicates=predicates,
    )


def draw_changes(source: random.Random, number: int) -> Changes:
    """Draw changes of the tables, some with values that make predicates fail, some without cells or images."""
    drawn = []
    for _ in range(number):
        schema_id = SchemaId(source.choice([1, 1, 2, 3]))
        schema, op = SCHEMAS[schema_id], source.choice([*ROWS, *ROWS, *ROWS, Op.SCHEMA, Op.TRUNCATE])
        key = source.randrange(6)
        images = []
        for _ in range(2):
            size = source.choice([0, 1, 2, 3, 4, None, 3.0, "3", "x", b"3", -(2**63)])
            cells = {"id": key, "status": source.choice(["a", "b", "c", None]), "size": size}
            unsent = source.choice([(), (), (), ("size",), ("status",), ("status", "size")])
            images.append(encode_image({name: cell for name, cell in cells.items() if name not in unsent}, schema))
        if op is Op.SCHEMA:
            drawn.append((op, schema_id, b"[]", None, b'{"ddl":"x"}'))
            continue
        if op is Op.TRUNCATE:
            drawn.append((op, schema_id, b"[]", None, None))
            continue
        unsent = source.random() < 0.1
        before, after = None if op is Op.INSERT or unsent else images[0], None if op is Op.DELETE else images[1]
        drawn.append((op, schema_id, encode_key((key,), schema), before, after))
    return Changes(*map(list, zip(*drawn, strict=True)))


def asking_each(filters: dict[int, RowFilter], changes: Changes) -> dict[int, list[int] | str]:
    """Return for each filter what passes, or that it fails: the slow and plain way."""
    answers: dict[int, list[int] | str] = {}
    for id_, row_filter in filters.items():
        rows = [row for row, schema in enumerate(changes.schemas) if SCHEMAS[schema].table in row_filter.tables]
        try:
            passing = list(row_filter.narrow(changes, rows))
        except PredicateError:
            answers[id_] = "failed"
        else:
            if passing:
                answers[id_] = passing
    return answers


def by_id(matches: list[Match[int]]) -> dict[int, list[int] | str]:
    return {id_: "failed" if match.error else list(match.rows) for match in matches for id_ in match.ids}


def may_fail(row_filter: RowFilter) -> bool:
    return any("abs" in predicate.canonical or "cel" in predicate.canonical for predicate in row_filter.predicates)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"key": ExactKey([literal(1)], ORDERS)},
        {"bounds": KeyBounds({"lower_bound": literal(1)}, ORDERS)},
        {"columns": ChangedColumns(["size"], ORDERS)},
        {"predicates": [compile_where("status = 'a'", ORDERS)]},
        {"predicates": [compile_where("op = 'insert'", ORDERS)]},
        {"predicates": [compile_cel("row.size > 2", ORDERS)]},
    ],
    ids=lambda parts: " ".join(parts) or "none",
)
def test_a_truncation_passes_every_condition_on_rows(parts):
    index: FilterIndex[int] = FilterIndex()
    index.add(1, RowFilter([ORDERS.table], (*ROWS, Op.TRUNCATE), **parts))
    index.add(2, RowFilter([ORDERS.table], ROWS, **parts))
    truncation = Changes([Op.TRUNCATE], [SchemaId(1)], [b"[]"], [None], [None])
    assert by_id(index.match(truncation, SCHEMAS)) == {1: [0]}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64))
def test_the_index_finds_what_asking_each_filter_finds(seed):
    source = random.Random(seed)
    index: FilterIndex[int] = FilterIndex()
    filters: dict[int, RowFilter] = {}
    for _ in range(3):
        for id_ in source.sample(range(40), 25):
            if id_ in filters and source.random() < 0.5:
                index.remove(id_)
                del filters[id_]
            else:
                filters[id_] = draw_filter(source)
                index.add(id_, filters[id_])
        changes = draw_changes(source, 30)
        expected, found = asking_each(filters, changes), by_id(index.match(changes, SCHEMAS))
        for id_, row_filter in filters.items():
            if may_fail(row_filter) and expected.get(id_) == "failed" and found.get(id_) != "failed":
                assert row_filter.key is not None or row_filter.predicates[0].equalities
                continue
            assert found.get(id_) == expected.get(id_), row_filter.canonical
        assert len(index) == len(filters)


def change(op: Op, key: int, **cells: object) -> Changes:
    image = encode_image({"id": key, **cells}, ORDERS)
    return Changes([op], [SchemaId(1)], [b"[%d]" % key], [None], [image])


def where(text: str, ops: tuple[Op, ...] = ROWS) -> RowFilter:
    return RowFilter([ORDERS.table], ops, predicates=[compile_where(text, ORDERS)])


def test_a_predicate_that_raises_fails_its_own_group_only():
    index: FilterIndex[str] = FilterIndex()
    index.add("raises", where("abs(size) > 1"))
    index.add("raises too", where("ABS(size)>1"))
    index.add("works", where("size < 1"))
    matches = index.match(change(Op.INSERT, 1, size=-(2**63)), SCHEMAS)
    found = {id_: match for match in matches for id_ in match.ids}
    assert found.keys() == {"raises", "raises too", "works"}
    assert found["raises"] is found["raises too"]
    assert found["raises"].error is not None
    assert "overflow" in found["raises"].error.reason
    assert (found["works"].error, list(found["works"].rows)) == (None, [0])


def test_equal_filters_are_evaluated_once():
    calls = []

    class Counting:
        canonical, columns, equalities = "counting", frozenset(), ()

        def select(self, ops, befores, afters):
            calls.append(len(ops))
            return [True] * len(ops)

    index: FilterIndex[int] = FilterIndex()
    for id_ in range(1000):
        index.add(id_, RowFilter([ORDERS.table], ROWS, predicates=[Counting()]))
    (match,) = index.match(change(Op.INSERT, 1), SCHEMAS)
    assert len(match.ids) == 1000
    assert calls == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda number: RowFilter([ORDERS.table], ROWS, key=ExactKey([literal(number)], ORDERS)),
        lambda number: where(f"size = {number} AND status >= ''"),
        lambda number: where("size > 0", (Op.DELETE,)),
        lambda number: RowFilter([TableName("app", f"t{number}")], ROWS),
    ],
    ids=["another key", "another value", "another op", "another table"],
)
def test_filters_that_a_change_cannot_concern_are_not_evaluated(make, monkeypatch):
    index: FilterIndex[int] = FilterIndex()
    for number in range(100):
        index.add(number, make(number))
    evaluated = []
    original = RowFilter.narrow
    monkeypatch.setattr(RowFilter, "narrow", lambda *a, **k: evaluated.append(1) or original(*a, **k))
    index.match(change(Op.INSERT, 7, size=7, status="a"), SCHEMAS)
    assert len(evaluated) <= 1


def test_a_row_that_leaves_a_value_is_found_by_its_before_image():
    index: FilterIndex[int] = FilterIndex()
    index.add(1, where("status = 'open'"))
    before, after = encode_image({"status": "open"}, ORDERS), encode_image({"status": "paid"}, ORDERS)
    (match,) = index.match(Changes([Op.UPDATE], [SchemaId(1)], [b"[1]"], [before], [after]), SCHEMAS)
    assert list(match.rows) == [0]


def test_schema_changes_reach_those_who_asked_for_them():
    index: FilterIndex[str] = FilterIndex()
    key = ExactKey([literal(1)], ORDERS)
    index.add("all", RowFilter([ORDERS.table], (*ROWS, Op.SCHEMA), key=key))
    index.add("rows", RowFilter([ORDERS.table], ROWS, key=key))
    index.add("value", where("status = 'a'", (*ROWS, Op.SCHEMA)))
    changes = Changes([Op.SCHEMA], [SchemaId(1)], [b"[]"], [None], [b'{"ddl":"x"}'])
    assert set(by_id(index.match(changes, SCHEMAS))) == {"all", "value"}


def test_removing_leaves_nothing_behind():
    index: FilterIndex[int] = FilterIndex()
    source = random.Random(5)
    for id_ in range(200):
        index.add(id_, draw_filter(source))
    for id_ in range(200):
        index.remove(id_)
    index.remove(7)
    assert len(index) == 0
    assert index.match(draw_changes(source, 50), SCHEMAS) == []
    assert not index._tables
    assert not index._groups


def test_adding_again_replaces_the_filter():
    index: FilterIndex[int] = FilterIndex()
    index.add(1, where("size = 1"))
    index.add(1, where("size = 2"))
    assert len(index) == 1
    assert index.match(change(Op.INSERT, 1, size=1), SCHEMAS) == []
    assert by_id(index.match(change(Op.INSERT, 1, size=2), SCHEMAS)) == {1: [0]}
