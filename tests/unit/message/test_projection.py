"""A projection gives a sink some columns of a row, and others that are computed."""

import json

import pytest

from tailrace.message.projection import compile_projection
from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import Op
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema

SCHEMA = TableSchema(
    TableName("shop", "orders"),
    2,
    (
        Column("id", Kind.I64),
        Column("name", Kind.STR),
        Column("qty", Kind.I64),
        Column("price", Kind.F64),
        Column("secret", Kind.STR),
    ),
    key=("id",),
)
IMAGE = b'{"id":7,"name":"a","qty":3,"price":1.5,"secret":"s"}'


def projected(*parts, image=IMAGE):
    return json.loads(compile_projection(parts, SCHEMA).after(Op.UPDATE, image))


@pytest.mark.parametrize(
    ("parts", "row"),
    [
        (["id", "name"], {"id": 7, "name": "a"}),
        (["name", "id", "name"], {"name": "a", "id": 7}),
        (["*", "-secret"], {"id": 7, "name": "a", "qty": 3, "price": 1.5}),
        (["id", "total = double(row.qty) * row.price"], {"id": 7, "total": 4.5}),
        (["id", "name = row.name + '!'"], {"id": 7, "name": "a!"}),
        (["*", "-secret", "price = 0"], {"id": 7, "name": "a", "qty": 3, "price": 0}),
        (["id", "what = op + ' of ' + table"], {"id": 7, "what": "update of orders"}),
        (["id", "both = [row.id, row.qty]"], {"id": 7, "both": "[7,3]"}),
    ],
)
def test_parts_are_columns_all_columns_all_but_one_and_expressions(parts, row):
    assert projected(*parts) == row


def test_an_image_that_lacks_a_column_lacks_it_still():
    assert projected("id", "name", image=b'{"id":1}') == {"id": 1}


TOTAL = "total = double(row.qty) * row.price"


@pytest.mark.parametrize(
    ("before", "after", "row"),
    [
        (b'{"id":1,"qty":2,"price":1.5}', b'{"id":1,"qty":4}', {"id": 1, "total": 6.0}),
        (b'{"id":1,"qty":2,"price":1.5}', b'{"id":1,"name":"b"}', {"id": 1}),
        (None, b'{"id":1}', {"id": 1}),
        (None, b'{"id":1,"qty":2,"price":1.5}', {"id": 1, "total": 3.0}),
    ],
)
def test_what_is_computed_of_cells_that_were_not_sent_has_not_changed_or_is_found_before(before, after, row):
    made = compile_projection(["id", TOTAL], SCHEMA).after(Op.UPDATE, after, before)
    assert json.loads(made) == row


def test_what_depends_on_something_that_was_not_sent_and_something_that_was_fails():
    with pytest.raises(PredicateError, match="did not send"):
        compile_projection(["id", TOTAL], SCHEMA).after(Op.UPDATE, b'{"id":1,"qty":2}', b'{"id":1}')


def test_of_a_row_before_only_what_was_sent_is_told():
    projection = compile_projection(["id", TOTAL], SCHEMA)
    assert json.loads(projection.before(Op.UPDATE, b'{"id":1,"qty":2}')) == {"id": 1}
    assert json.loads(projection.before(Op.UPDATE, IMAGE)) == {"id": 7, "total": 4.5}
    assert projection.before(Op.UPDATE, None) is None


def test_there_is_no_image_where_there_was_none():
    assert compile_projection(["id"], SCHEMA).after(Op.INSERT, None) is None


def test_the_schema_is_that_of_the_rows_it_makes():
    made = compile_projection(["id", "total = double(row.qty) * row.price", "big = row.qty > 9"], SCHEMA).schema
    assert [(column.name, column.kind) for column in made.columns] == [
        ("id", Kind.I64),
        ("total", Kind.F64),
        ("big", Kind.BOOL),
    ]
    assert (made.table, made.version, made.key) == (SCHEMA.table, 2, ("id",))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["id", "nme"], "no such column"),
        (["*", "-nme"], "no such column"),
        (["name"], "leaves out"),
        (["*", "id = 1"], "leaves out or computes 'id'"),
        (["id", "x = before.qty"], "write row"),
        (["id", "x = row.nme"], "nme"),
        (["id", "x = row.name * 2"], "types do not fit"),
        (["id", "x = row.qty +"], "row.qty \\+"),
    ],
)
def test_what_cannot_be_right_is_refused_beforehand(parts, reason):
    with pytest.raises(InvalidPredicateError, match=reason):
        compile_projection(parts, SCHEMA)


def test_an_expression_that_fails_on_a_row_says_so_without_its_values():
    with pytest.raises(PredicateError) as failure:
        projected("id", "x = row.qty / (row.qty - 3)")
    assert "division by zero" in str(failure.value)


def test_a_table_whose_key_is_its_whole_row_has_no_projection():
    alike = TableSchema(SCHEMA.table, 1, SCHEMA.columns, identity=Identity.WHOLE_ROW)
    with pytest.raises(InvalidPredicateError, match="its whole row"):
        compile_projection(["*"], alike)
