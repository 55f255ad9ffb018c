"""SQL predicates over changes: which image they see, what they demand, how they fail."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json as msgspec_json

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.predicate import Equality, Image
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.subscription.cel.compile import compile_cel
from unit.sql.sqlite.predicate.shop import ORDERS, image

SMALL, LARGE = image(id=1, amount=5.0, status="open"), image(id=1, amount=500.0, status="paid")

CHANGES = {
    "insert small": (Op.INSERT, None, SMALL),
    "insert large": (Op.INSERT, None, LARGE),
    "grow": (Op.UPDATE, SMALL, LARGE),
    "shrink": (Op.UPDATE, LARGE, SMALL),
    "stay small": (Op.UPDATE, SMALL, SMALL),
    "delete small": (Op.DELETE, SMALL, None),
    "delete large": (Op.DELETE, LARGE, None),
    "no images": (Op.UPDATE, None, None),
    "schema": (Op.SCHEMA, None, b'{"ddl":"ALTER TABLE"}'),
}

PASSING = [
    ("amount > 100", {"insert large", "grow", "shrink", "delete large", "no images", "schema"}),
    ("orders.amount > 100", {"insert large", "grow", "shrink", "delete large", "no images", "schema"}),
    ("after.amount > 100", {"insert large", "grow", "schema"}),
    ("before.amount > 100", {"shrink", "delete large", "no images", "schema"}),
    ("before.amount < after.amount", {"grow", "no images", "schema"}),
    ("before.id IS NULL", {"insert small", "insert large", "no images", "schema"}),
    ("op = 'update'", {"grow", "shrink", "stay small", "no images", "schema"}),
    ("op = 'insert' AND amount > 100", {"insert large", "schema"}),
    ("op <> 'insert' AND amount > 100", {"grow", "delete large", "no images", "schema"}),
    (
        "before.amount IS NOT after.amount AND status = 'paid'",
        {"insert large", "grow", "delete large", "no images", "schema"},
    ),
    ("1", set(CHANGES)),
    ("FALSE", {"schema"}),
    ("NULL", {"schema"}),
]


@pytest.mark.parametrize(("text", "expected"), PASSING, ids=[text for text, _ in PASSING])
def test_a_change_passes_by_the_images_that_the_predicate_speaks_of(text, expected):
    columns = zip(*CHANGES.values(), strict=True)
    passed = compile_where(text, ORDERS).select(*columns)
    assert {name for name, passes in zip(CHANGES, passed, strict=True) if passes} == expected


def test_a_cell_of_another_type_than_declared_is_compared_as_sqlite_would():
    predicate = compile_where("quantity > 10 OR status = '5' OR extra = 1", ORDERS)
    empty = {"quantity": None, "status": None, "extra": None}
    images = [
        image(**empty | {"quantity": "many"}),
        image(**empty | {"quantity": b"blob"}),
        image(**empty | {"quantity": 10.5}),
        image(**empty | {"quantity": float("inf")}),
        image(**empty | {"status": b"5"}),
        image(**empty | {"extra": 1.0}),
        image(**empty | {"extra": "1"}),
        image(**empty | {"extra": True}),
        b'{"quantity":true,"status":null,"extra":null}',
    ]
    expected = [True, True, True, True, False, True, False, True, False]
    assert predicate.select([1] * len(images), [None] * len(images), images) == expected


OPEN, PAID, UNSENT = b'{"id":1,"status":"open"}', b'{"id":1,"status":"paid"}', b'{"id":1}'


@pytest.mark.parametrize(
    ("text", "op", "before", "after", "decided"),
    [
        ("status IS NULL", Op.INSERT, None, UNSENT, None),
        ("status = 'open'", Op.UPDATE, OPEN, UNSENT, True),
        ("status = 'paid'", Op.UPDATE, OPEN, UNSENT, False),
        ("status = 'open'", Op.UPDATE, UNSENT, OPEN, True),
        ("status = 'paid'", Op.UPDATE, UNSENT, OPEN, None),
        ("status = 'open'", Op.UPDATE, UNSENT, UNSENT, None),
        ("status = 'open'", Op.UPDATE, None, UNSENT, None),
        ("status = 'open'", Op.UPDATE, None, OPEN, True),
        ("status = 'open'", Op.UPDATE, None, PAID, None),
        ("status = 'open'", Op.INSERT, None, PAID, False),
        ("status = 'open'", Op.DELETE, None, None, None),
        ("status = 'open'", Op.DELETE, UNSENT, None, None),
        ("status = 'open'", Op.DELETE, PAID, None, False),
        ("id = 1", Op.UPDATE, None, UNSENT, True),
        ("id = 2", Op.UPDATE, None, UNSENT, False),
        ("id = 2", Op.UPDATE, b"{}", UNSENT, False),
        ("id = 2", Op.UPDATE, UNSENT, b"{}", False),
        ("id = 2", Op.DELETE, None, None, None),
        ("before.status = 'open'", Op.UPDATE, OPEN, UNSENT, True),
        ("before.status = 'open'", Op.UPDATE, UNSENT, OPEN, None),
        ("before.status = 'open'", Op.UPDATE, None, OPEN, None),
        ("before.status = 'open'", Op.INSERT, None, OPEN, False),
        ("after.status = 'open'", Op.UPDATE, OPEN, UNSENT, True),
        ("after.status = 'open'", Op.UPDATE, None, PAID, False),
        ("after.status = 'open'", Op.DELETE, UNSENT, None, False),
        ("before.status <> after.status", Op.UPDATE, OPEN, UNSENT, False),
        ("op = 'update' AND status = 'open'", Op.UPDATE, None, UNSENT, None),
        ("op = 'insert' AND status = 'open'", Op.DELETE, None, None, False),
    ],
    ids=str,
)
def test_what_was_not_sent_is_taken_from_the_other_image_or_leaves_it_undecided(text, op, before, after, decided):
    predicate = compile_where(text, ORDERS)
    assert predicate.decide([op], [before], [after]) == [decided]
    assert predicate.select([op], [before], [after]) == [decided is not False], "nothing is lost"


def test_a_column_with_an_odd_name_may_be_unsent_too():
    schema = TableSchema(TableName("app", "odd"), 1, (Column("id", Kind.I64), Column('a"b', Kind.I64)), ("id",))
    predicate = compile_where('"a""b" = 1', schema)
    assert predicate.decide([1], [None], [b'{"id":1}']) == [None]
    assert predicate.decide([2], [b'{"id":1,"a\\"b":1}'], [b'{"id":1}']) == [True]


def test_names_with_any_characters_can_be_read():
    columns = tuple(Column(name, Kind.I64, "INTEGER") for name in ['a"b', "c\\d", "e f", "ü", "\n", "select"])
    schema = TableSchema(TableName("app", "odd"), 1, columns)
    row = msgspec_json.encode({column.name: number for number, column in enumerate(columns)})
    for number, column in enumerate(columns):
        quoted = '"' + column.name.replace('"', '""') + '"'
        assert compile_where(f"{quoted} = {number}", schema).select([1], [None], [row]) == [True]


@pytest.mark.parametrize("text", ["STATUS = 'open'", "\"Status\" = 'open'", "[status] = 'open'", "`sTATUS` = 'open'"])
def test_names_are_found_whatever_their_capitals(text):
    assert compile_where(text, ORDERS).select([1], [None], [SMALL]) == [True]


def test_a_column_called_op_hides_the_op_of_the_change():
    schema = TableSchema(TableName("app", "t"), 1, (Column("op", Kind.STR, "TEXT"),))
    predicate = compile_where("op = 'insert'", schema)
    assert predicate.select([Op.INSERT], [None], [b'{"op":"x"}']) == [False]
    assert predicate.select([Op.UPDATE], [None], [b'{"op":"insert"}']) == [True]


EQUALITIES = [
    ("status = 'open'", [Equality(Image.ROW, "status", "open")]),
    ("'open' = status AND amount > 5", [Equality(Image.ROW, "status", "open")]),
    (
        "after.status = 'open' AND before.id = 5",
        [Equality(Image.AFTER, "status", "open"), Equality(Image.BEFORE, "id", 5)],
    ),
    ("id = '5'", [Equality(Image.ROW, "id", 5)]),
    ("status = 5", [Equality(Image.ROW, "status", "5")]),
    ("id IN (7)", [Equality(Image.ROW, "id", 7)]),
    ("id IS 7", [Equality(Image.ROW, "id", 7)]),
    ("id IN (7, 8)", []),
    ("id = 1 OR id = 2", []),
    ("NOT id = 1", []),
    ("status COLLATE NOCASE = 'open'", []),
    ("id = quantity", []),
    ("id IS NULL", []),
]


@pytest.mark.parametrize(("text", "expected"), EQUALITIES, ids=[text for text, _ in EQUALITIES])
def test_equalities_that_must_hold_are_told(text, expected):
    assert list(compile_where(text, ORDERS).equalities) == expected


def test_predicates_that_differ_in_spelling_only_are_equal():
    spellings = ["status = 'open' AND id>1", "(STATUS == 'open') and (\"id\" > 1)", "status='open'\nAND id > 0x1"]
    assert len({compile_where(text, ORDERS).canonical for text in spellings}) == 1
    others = ["status = 'open' AND id > 2", "status = 'Open' AND id>1", "status = x OR id>1".replace("x", "'open'")]
    others += [
        "after.status = 'open' AND id > 1",
        "status COLLATE NOCASE = 'open' AND id>1",
        "status = 'open' AND id>1.0",
    ]
    assert len({compile_where(text, ORDERS).canonical for text in [*others, spellings[0]]}) == 7


def test_the_columns_that_are_read_are_told():
    assert compile_where("before.status = 'a' AND amount > 1", ORDERS).columns == {"status", "amount"}


FAILING = [
    ("abs(quantity) > 1", image(quantity=-(2**63)), "integer overflow"),
    ("extra LIKE '1%'", image(extra=1.5), "real number was used as text"),
    ("extra || 'x' = 'x'", image(extra=b"\xff"), "not UTF-8"),
    ("status = 'x'", b"{broken", "not valid JSON"),
    ("status = 'x'", b'{"status":[1]}', "natural form"),
    ("status = 'x'", b'{"status":{"t":"dec","v":"1"}}', "no decimal"),
    ("status LIKE extra", image(status="a", extra="%" * 50_001), "longer than"),
]


@pytest.mark.parametrize(("text", "row", "reason"), FAILING)
def test_a_failure_at_run_time_is_a_predicate_error(text, row, reason):
    predicate = compile_where(text, ORDERS)
    with pytest.raises(PredicateError) as caught:
        predicate.select([1], [None], [row])
    assert reason in caught.value.reason


FRAGMENTS = [
    "id",
    "status",
    "before.",
    "after.",
    "op",
    "(",
    ")",
    "'",
    '"',
    "x'",
    "0x",
    "1e",
    "NOT ",
    "IN(",
    "AND ",
    "CASE ",
]
FRAGMENTS += [
    "WHEN ",
    "END ",
    "CAST(",
    " AS ",
    "BETWEEN ",
    "LIKE ",
    "ESCAPE ",
    "COLLATE ",
    "IS ",
    "NULL",
    "-",
    "~",
    "||",
    "<<",
]
FRAGMENTS += [
    ",",
    ";",
    "--",
    "/*",
    "%",
    "$",
    "?",
    ":",
    "{{",
    "[",
    "]",
    "`",
    "\\",
    "\n",
    "\u00a0",
    "é",
    "5",
    " ",
    "abs(",
    "\0",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=20))
def test_any_text_compiles_or_is_refused(text):
    for compiled in (lambda: compile_where(text, ORDERS), lambda: compile_cel(text, ORDERS)):
        with contextlib.suppress(InvalidPredicateError):
            compiled()


def test_the_largest_predicates_compile_or_are_refused():
    many = " OR ".join(f"id = {number}" for number in range(2500))
    assert compile_where(many, ORDERS).select([1], [None], [image(id=2499)]) == [True]
    wide = f"id IN ({', '.join(map(str, range(8000)))})"
    assert compile_where(wide, ORDERS).select([1, 1], [None, None], [image(id=7999), image(id=-1)]) == [
        True,
        False,
    ]
    deep = "0"
    for _ in range(22):
        deep = f"({deep} + 1 IN (1, 2, quantity))"
    assert compile_where(deep, ORDERS).select([1], [None], [image(quantity=1)]) == [True]
    with pytest.raises(InvalidPredicateError, match="longer than"):
        compile_where(f"status LIKE '{'x' * 50_001}'", ORDERS)
