"""The meaning of predicates: what can never make sense is refused, with the column and the place."""

import pytest

from tailrace.model.errors import InvalidPredicateError, InvalidRequestError
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.predicate import compile_where
from unit.sql.sqlite.predicate.shop import ORDERS

REFUSED = [
    ("price > 5", "no column price in table orders; it has id, status", 0),
    ("id = 1 AND before.price > 5", "no column price", 11),
    ("users.id = 5", "users is not before, after or the table orders", 0),
    ("a.b.id = 5", "too many parts", 0),
    ('status = "open"', "no column open in table orders; a text is written 'open'", 9),
    ("amount > 'much'", "column amount is a real number and the literal 'much' is text", 9),
    ("quantity = 'x'", "column quantity is an integer and the literal 'x' is text", 11),
    ("'x' = quantity", "column quantity is an integer", 0),
    ("quantity IN (1, 'x')", "the literal 'x' is text: IN", 16),
    ("quantity BETWEEN 1 AND 'x'", "the literal 'x' is text: <=", 23),
    ("CASE quantity WHEN 'x' THEN 1 END", "the literal 'x' is text: =", 19),
    ("status = x'00'", "is a blob", 9),
    ("photo = 'x'", "column photo is a blob and the literal 'x' is text", 8),
    ("photo = 5", "column photo is a blob and the literal 5 is an integer", 8),
    ("lower(status) = 5", "lower() is text and the literal 5 is an integer", 16),
    ("length(status) = 'x'", "length() is an integer", 17),
    ("status = NULL", "write IS NULL", 9),
    ("NULL <> status", "write IS NULL", 0),
    ("status", "column status is text, not a condition", 0),
    ("NOT status", "column status is text, not a condition", 4),
    ("quantity = 1 OR 'x'", "the literal 'x' is text, not a condition", 16),
    ("photo AND 1", "column photo is a blob, not a condition", 0),
    ("CASE WHEN status THEN 1 END", "not a condition", 10),
    ("photo + 1 > 0", "column photo is a blob: + computes with numbers", 0),
    ("-photo > 0", "column photo is a blob: - computes", 1),
    ("photo LIKE 'x'", "column photo is a blob: LIKE matches text", 0),
    ("upper(photo) = 'X'", "column photo is a blob: upper() takes text", 6),
    ("amount LIKE '5%'", "column amount is a real number and cannot be used as text", 0),
    ("amount || 'x' = '5x'", "cannot be used as text", 0),
    ("status = 1.5", "the literal 1.5 is a real number", 9),
    ("CAST(amount AS TEXT) = '5'", "cannot be used as text", 5),
    ("length(amount) = 3", "cannot be used as text", 7),
    ("status LIKE 'x' ESCAPE 'ab'", "one character", 23),
    ("status LIKE 'x' ESCAPE status", "one character", 23),
    ("status COLLATE german = 'x'", "unknown collation GERMAN", 7),
    ("status IN ('a' COLLATE NOCASE)", "left side of IN", 15),
    ("nope(1)", "unknown function nope(); there are abs, coalesce", 0),
    ("random() > 5", "may differ from one call to the next", 0),
    ("datetime('now') > status", "may differ", 0),
    ("sum(id) > 5", "aggregates are not allowed", 0),
    ("max(id) > 5", "aggregates are not allowed", 0),
    ("lower(status, 1) = 'x'", "lower() does not take 2 arguments", 0),
    ("substr(status) = 'x'", "substr() does not take 1 arguments", 0),
    ("round(amount, 2) = 1", "round() does not take 2 arguments", 0),
]


@pytest.mark.parametrize(("text", "reason", "place"), REFUSED)
def test_what_can_never_make_sense_is_refused_at_its_place(text, reason, place):
    with pytest.raises(InvalidPredicateError) as caught:
        compile_where(text, ORDERS)
    assert reason in caught.value.reason
    assert caught.value.place == place
    assert isinstance(caught.value, InvalidRequestError)


ACCEPTED = [
    "quantity = '5'",
    "status = 5",
    "status = amount",
    "status > 5",
    "quantity",
    "NOT quantity",
    "quantity AND amount",
    "quantity LIKE '5%'",
    "photo = x'00'",
    "photo IS NULL",
    "NULL IS photo",
    "length(photo) > 5",
    "status + 1 > 5",
    "extra = 'x' OR extra = 5 OR extra = x'00'",
    "extra",
    "extra LIKE 'x'",
    "quantity IN (1, NULL)",
    "coalesce(status, quantity) = 5",
    "TRUE",
    "NULL",
    "quantity IS TRUE",
    "status COLLATE nocase = 'X'",
    "max(id, quantity) > 5",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_may_make_sense_is_not_refused(text):
    compile_where(text, ORDERS)


def test_a_column_whose_collation_is_unknown_needs_one_where_text_is_compared():
    columns = (Column("a", Kind.STR, "TEXT"), Column("b", Kind.STR, "TEXT"))
    schema = TableSchema(TableName("app", "t"), 1, columns, ddl="CREATE TABLE t (a TEXT COLLATE german, b TEXT)")
    with pytest.raises(InvalidPredicateError, match="column a has an unknown collation"):
        compile_where("a = 'x'", schema)
    compile_where("a COLLATE BINARY = 'x' AND b = 'x' AND a IS NOT NULL AND a LIKE 'x'", schema)
