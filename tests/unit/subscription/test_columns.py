"""The changed-columns filter: what counts as changed, and what is left of an image."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec import json as msgspec_json

from strategies import VALUES, table_schemas
from tailrace.model.errors import InvalidRequestError, PredicateError
from tailrace.model.image import decode_image, encode_image
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.columns import ChangedColumns

SCHEMA = TableSchema(
    TableName("app", "users"), 1, (Column("id", Kind.I64), Column("name", Kind.STR), Column("age", Kind.I64)), ("id",)
)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (["nope"], "no column nope in table users; it has id, name, age"),
        ([""], "empty name"),
        (["  "], "empty name"),
        ([5], "no name"),
        ([], "list of column names"),
        ("name", "list of column names"),
        (None, "list of column names"),
    ],
)
def test_columns_that_the_table_lacks_are_refused(columns, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        ChangedColumns(columns, SCHEMA)


CHANGES = [
    (Op.INSERT, None, b'{"id":1,"name":"a","age":5}', True),
    (Op.DELETE, b'{"id":1,"name":"a","age":5}', None, True),
    (Op.UPDATE, b'{"id":1,"name":"a","age":5}', b'{"id":1,"name":"b","age":5}', True),
    (Op.UPDATE, b'{"id":1,"name":"a","age":5}', b'{"id":1,"name":"a","age":6}', False),
    (Op.UPDATE, b'{"id":1,"name":"a","age":5}', b'{"id":1,"name":"a","age":5}', False),
    (Op.UPDATE, b'{"id":1,"name":null}', b'{"id":1,"name":"null"}', True),
    (Op.UPDATE, b'{"id":1,"name":1}', b'{"id":1,"name":1.0}', True),
    (Op.UPDATE, b'{"id":1}', b'{"id":1,"name":null}', True),
    (Op.UPDATE, b'{"id":1}', b'{"id":2}', False),
    (Op.UPDATE, b'{"name":{"t":"bytes","b64":"YQ=="}}', b'{"name":{"t":"bytes","b64":"Yg=="}}', True),
    (Op.SCHEMA, None, b'{"ddl":"x"}', True),
]


@pytest.mark.parametrize(("op", "before", "after", "expected"), CHANGES)
def test_a_change_passes_if_a_listed_column_differs(op, before, after, expected):
    assert ChangedColumns(["name"], SCHEMA).select([op], [before], [after]) == [expected]


def test_an_image_is_cut_to_the_columns_in_the_tables_order():
    columns = ChangedColumns(["age", "id", "age"], SCHEMA)
    assert columns.columns == ("id", "age")
    assert columns.project(b'{"id":1,"name":"a","age":5.50}') == b'{"id":1,"age":5.50}'
    assert columns.project(b'{"name":"a"}') == b"{}"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ü", "a b"])
def test_columns_of_any_name_can_be_chosen(name):
    schema = TableSchema(TableName("app", "odd"), 1, (Column(name), Column("other")))
    columns = ChangedColumns([name], schema)
    one, other = msgspec_json.encode({name: 1, "other": 1}), msgspec_json.encode({name: 1, "other": 2})
    assert columns.select([Op.UPDATE], [one], [other]) == [False]
    assert columns.select([Op.UPDATE], [one], [msgspec_json.encode({name: 2, "other": 1})]) == [True]
    assert columns.project(other) == msgspec_json.encode({name: 1})


@settings(max_examples=50, deadline=None)
@given(table_schemas(), st.data())
def test_projecting_and_comparing_agree_with_the_decoded_rows(schema, data):
    names = [column.name for column in schema.columns]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    rows = [{name: data.draw(VALUES) for name in names if data.draw(st.booleans())} for _ in range(2)]
    one, other = (encode_image(row, schema) for row in rows)
    columns = ChangedColumns(chosen, schema)
    cut = [encode_image({name: value for name, value in row.items() if name in chosen}, schema) for row in rows]
    assert [columns.project(one), columns.project(other)] == cut
    old, new = (msgspec_json.decode(image, type=dict[str, Raw]) for image in cut)
    touched = any(old.get(name) != cell for name, cell in new.items())
    assert columns.select([Op.UPDATE], [one], [other]) == [touched], "what was not sent has not changed"
    assert decode_image(cut[0], schema).keys() <= set(chosen)


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        (b'{"id":1,"name":"a"}', b'{"id":1}', False),
        (b'{"id":1}', b'{"id":1,"name":"a"}', True),
        (b'{"id":1}', b'{"id":1}', False),
        (None, b'{"id":1,"name":"a"}', True),
        (None, b'{"id":1}', True),
        (b'{"id":1,"name":null}', b'{"id":1}', False),
        (b'{"id":1}', b'{"id":1,"name":null}', True),
    ],
)
def test_a_cell_that_was_not_sent_after_an_update_has_not_changed(before, after, passes):
    assert ChangedColumns(["name"], SCHEMA).select([Op.UPDATE], [before], [after]) == [passes]


def test_a_broken_image_is_an_error_of_the_filter():
    columns = ChangedColumns(["name"], SCHEMA)
    with pytest.raises(PredicateError):
        columns.select([Op.UPDATE], [b"{"], [b"{}"])
    with pytest.raises(PredicateError):
        columns.project(b"[]")


def test_equal_lists_have_equal_names():
    assert ChangedColumns(["id", "age"], SCHEMA).canonical == ChangedColumns(["age", "id"], SCHEMA).canonical
    assert ChangedColumns(["id"], SCHEMA).canonical != ChangedColumns(["age"], SCHEMA).canonical
