"""CEL predicates over changes: what they see, what is refused, how they fail."""

import pytest

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.image import encode_image
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text
from tailrace.subscription.cel.compile import compile_cel
from tailrace.subscription.cel.text import FUNCTIONS
from unit.sql.sqlite.predicate.shop import ORDERS, image

SMALL, LARGE = image(id=1, amount=5.0, status="open"), image(id=1, amount=500.0, status="paid")

CHANGES = {
    "insert": (Op.INSERT, None, LARGE),
    "grow": (Op.UPDATE, SMALL, LARGE),
    "shrink": (Op.UPDATE, LARGE, SMALL),
    "delete": (Op.DELETE, LARGE, None),
    "schema": (Op.SCHEMA, None, b'{"ddl":"x"}'),
}

PASSING = [
    ("row.amount > 100.0", {"insert", "grow", "delete", "schema"}),
    ("after != null && after.amount > 100.0", {"insert", "grow", "schema"}),
    ("before == null", {"insert", "schema"}),
    ("before != null && after != null && before.amount < after.amount", {"grow", "schema"}),
    ("op == 'update'", {"grow", "shrink", "schema"}),
    ("table == 'orders' && row['status'] == 'open'", {"shrink", "schema"}),
    ("row.quantity == null", set(CHANGES)),
    ("row.status in ['open', 'lost']", {"shrink", "schema"}),
    ("row.status.startsWith('p') || op == \"insert\"", {"insert", "grow", "delete", "schema"}),
    ("['open', 'lost'].exists(each, each == row.status)", {"shrink", "schema"}),
    ("size(row) == 6", set(CHANGES)),
    ("true", set(CHANGES)),
]


@pytest.mark.parametrize(("text", "expected"), PASSING, ids=[text for text, _ in PASSING])
def test_a_change_passes_by_the_variables_that_the_expression_speaks_of(text, expected):
    passed = compile_cel(text, ORDERS).select(*zip(*CHANGES.values(), strict=True))
    assert {name for name, passes in zip(CHANGES, passed, strict=True) if passes} == expected


OPEN, PAID, UNSENT = b'{"id":1,"status":"open"}', b'{"id":1,"status":"paid"}', b'{"id":1}'


@pytest.mark.parametrize(
    ("text", "op", "before", "after", "passes"),
    [
        ("row.status == 'open'", Op.UPDATE, OPEN, UNSENT, True),
        ("row.status == 'paid'", Op.UPDATE, OPEN, UNSENT, False),
        ("row.status == 'paid'", Op.UPDATE, None, UNSENT, True),
        ("row.status == 'paid'", Op.UPDATE, None, OPEN, False),
        ("row.status == 'paid'", Op.INSERT, None, UNSENT, True),
        ("row.status == 'paid'", Op.DELETE, None, None, True),
        ("row.status == 'paid'", Op.DELETE, UNSENT, None, True),
        ("before != null && before.status == 'paid'", Op.UPDATE, None, OPEN, True),
        ("before != null && before.status == 'paid'", Op.INSERT, None, OPEN, False),
        ("before.status != after.status", Op.UPDATE, OPEN, UNSENT, False),
        ("after == null", Op.UPDATE, OPEN, UNSENT, False),
        ("op == 'insert'", Op.UPDATE, None, UNSENT, False),
    ],
    ids=str,
)
def test_what_cannot_be_decided_because_it_was_not_sent_passes(text, op, before, after, passes):
    assert compile_cel(text, ORDERS).select([op], [before], [after]) == [passes]


REFUSED = [
    ("", "ends too early", 0),
    ("row.amount >", "ends too early", 12),
    ("row.amount > 1.0)", "')' is not expected here", 16),
    ("true\n&& )", "')' is not expected here", 8),
    ("row.price > 1.0", "no column price in table orders; it has id, status", 4),
    ("before['price'] > 1.0", "no column price", 7),
    ("has(row.price)", "no column price", 8),
    ("price > 1.0", "unknown variable price; there are after, before, op, row, table", 0),
    ("[1].exists(a, a == b)", "unknown variable b", 19),
    ("lower(row.status) == 'x'", "unknown function lower()", 0),
    ("row.status.lower() == 'x'", "unknown function lower()", 11),
    ("[1].all(a, [2].all(b, a < b))", "within another comprehension", 15),
    ("row.status", "not a condition", 0),
    ("1", "not a condition", 0),
    ("row.status > 1", "the types do not fit (status is str)", 0),
    ("row.amount && true", "the types do not fit (amount is f64)", 0),
    ("!row.id", "the types do not fit", 0),
    ("1 / 0 == 1", "always fails: division by zero", 0),
    ("'a' + 1 == 'a1'", "always fails", 0),
    ("(" * 4000 + "true" + ")" * 4000, "", 0),
]


@pytest.mark.parametrize(("text", "reason", "place"), REFUSED, ids=[text[:30] for text, *_ in REFUSED])
def test_what_is_no_predicate_is_refused(text, reason, place):
    with pytest.raises(InvalidPredicateError) as caught:
        compile_cel(text, ORDERS)
    assert reason in caught.value.reason
    assert not reason or caught.value.place == place


def test_a_text_has_a_bound():
    with pytest.raises(InvalidPredicateError, match="at most 16384 characters"):
        compile_cel("true" + " " * 16_384, ORDERS)


FAILING = [
    ("row.quantity > 1", image(quantity=None), "perhaps null"),
    ("row.quantity > 1", image(quantity="many"), "perhaps null"),
    ("10 / row.quantity > 1", image(quantity=0), "division by zero"),
    ("row.quantity + 1 > 1", image(quantity=2**63 - 1), "beyond 64 bits"),
    ("[1][row.quantity] == 1", image(quantity=7), "no such place"),
    ("int(row.status) > 1", image(status="many"), "a conversion or a call failed"),
    ("row.extra", image(extra=1), "not a boolean"),
    ("row.id == 1", b"{", "not valid JSON"),
    ("row.id == 1", b'{"id":{"t":"what"}}', "natural form"),
]


@pytest.mark.parametrize(("text", "row", "reason"), FAILING)
def test_a_failure_at_run_time_is_a_predicate_error_without_values(text, row, reason):
    predicate = compile_cel(text, ORDERS)
    with pytest.raises(PredicateError) as caught:
        predicate.select([Op.INSERT], [None], [row])
    assert reason in caught.value.reason
    assert "many" not in caught.value.reason


KINDS = [
    (Kind.BYTES, b"ab", "row.c == b'ab'"),
    (Kind.DEC, Text(Kind.UUID, "u"), "row.c == 'u'"),
    (Kind.JSON, Text(Kind.JSON, '{"a":[1,2]}'), "row.c.a[1] == 2"),
    (Kind.DATETIME, Text(Kind.DATETIME, "2000-01-01T00:00:00Z"), "timestamp(row.c).getFullYear() == 2000"),
    (Kind.U64, 2**64 - 1, "row.c == 18446744073709551615u"),
    (Kind.F64, float("inf"), "row.c > 1e308"),
    (Kind.BOOL, True, "row.c"),
    (Kind.ANY, None, "row.c == null"),
]


@pytest.mark.parametrize(("kind", "value", "text"), KINDS)
def test_values_of_all_kinds_can_be_spoken_of(kind, value, text):
    schema = TableSchema(TableName("app", "t"), 1, (Column("c", kind),))
    assert compile_cel(text, schema).select([Op.INSERT], [None], [encode_image({"c": value}, schema)]) == [True]


def test_the_columns_that_are_read_are_told():
    assert compile_cel("row.status == 'a' && before['amount'] > 1.0", ORDERS).columns == {"status", "amount"}
    assert compile_cel("size(after) > 0", ORDERS).columns == {column.name for column in ORDERS.columns}
    assert compile_cel("after == null", ORDERS).columns == frozenset()
    assert compile_cel("'row.status' == 'a' // row.amount", ORDERS).columns == frozenset()


def test_predicates_that_differ_in_spaces_only_are_equal():
    spellings = ["row.id==1&&true", "row.id == 1 && true // one", "row . id\n== 1 && true"]
    assert len({compile_cel(text, ORDERS).canonical for text in spellings}) == 1
    others = ["row.id == 1 && true", "row.id == 12 && true", "row.status == 'a b'", "row.status == 'a  b'"]
    assert len({compile_cel(text, ORDERS).canonical for text in others}) == 4


CALLS = {
    "size": "size('a') == 1",
    "int": "int('1') == 1",
    "uint": "uint(1) == 1u",
    "double": "double(1) == 1.0",
    "string": "string(1) == '1'",
    "bytes": "bytes('a') == b'a'",
    "timestamp": "timestamp('2000-01-01T00:00:00Z') > timestamp('1999-01-01T00:00:00Z')",
    "duration": "duration('1s') < duration('2s')",
    "type": "type(1) == int",
    "dyn": "dyn(1) == 1",
    "has": "has(row.id)",
    "contains": "'abc'.contains('b')",
    "startsWith": "'abc'.startsWith('a')",
    "endsWith": "'abc'.endsWith('c')",
    "matches": "'abc'.matches('b')",
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_that_is_let_through_exists(name):
    text = CALLS.get(name, f"timestamp('2000-01-02T03:04:05Z').{name}() >= 0")
    assert compile_cel(text, ORDERS).select([Op.INSERT], [None], [SMALL]) == [True]
