"""Facts about table names and schemas."""

import msgspec
import pytest

from tailrace.model.image import decode_key, encode_key, key_image
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema


def test_a_table_of_the_default_schema_is_shown_bare_and_others_with_their_schema():
    assert TableName("app", "orders").wire == "orders"
    assert TableName("app", "orders", "sales").wire == "sales.orders"


def test_a_table_without_a_key_is_keyed_by_its_row_number():
    schema = TableSchema(TableName("app", "t"), 1, (Column("a"),))
    assert [column.kind for column in schema.key_columns] == [Kind.I64]


def test_key_columns_come_in_key_order():
    schema = TableSchema(TableName("app", "t"), 1, (Column("a"), Column("b")), ("b", "a"))
    assert [column.name for column in schema.key_columns] == ["b", "a"]
    assert schema.column("b") == Column("b")
    assert schema.column("c") is None


TABLE, COLUMNS = TableName("app", "t"), (Column("a", Kind.I64), Column("b", Kind.STR))


@pytest.mark.parametrize(
    ("identity", "key", "names", "values", "image", "unique"),
    [
        (Identity.PRIMARY_KEY, ("b",), ["b"], ("x",), b'{"b":"x"}', True),
        (Identity.UNIQUE_INDEX, ("b", "a"), ["b", "a"], ("x", 1), b'{"b":"x","a":1}', True),
        (Identity.ROW_NUMBER, (), ["rowid"], (7,), b"{}", True),
        (Identity.WHOLE_ROW, (), ["a", "b"], (1, "x"), b'{"a":1,"b":"x"}', False),
        (Identity.NONE, (), [], (), b"{}", False),
    ],
)
def test_an_identity_says_what_the_key_of_a_change_is(identity, key, names, values, image, unique):
    schema = TableSchema(TABLE, 1, COLUMNS, key, identity=identity)
    assert [column.name for column in schema.key_columns] == names
    assert decode_key(encode_key(values, schema), schema) == values
    assert key_image(encode_key(values, schema), schema) == image
    assert schema.identity.is_unique is unique
    assert msgspec.json.decode(msgspec.json.encode(schema), type=TableSchema) == schema


@pytest.mark.parametrize(("key", "identity"), [(["a"], Identity.PRIMARY_KEY), ([], Identity.ROW_NUMBER)])
def test_a_schema_of_an_older_log_has_a_primary_key_or_a_row_number(key, identity):
    text = {"table": {"source": "app", "name": "t"}, "version": 1, "columns": [{"name": "a"}], "key": key}
    assert msgspec.json.decode(msgspec.json.encode(text), type=TableSchema).identity is identity


@pytest.mark.parametrize(
    ("key", "identity"),
    [((), Identity.UNIQUE_INDEX), (("a",), Identity.ROW_NUMBER), (("a",), Identity.WHOLE_ROW), (("a",), Identity.NONE)],
)
def test_columns_of_a_key_and_the_identity_agree(key, identity):
    with pytest.raises(ValueError, match="do not agree"):
        TableSchema(TABLE, 1, COLUMNS, key, identity=identity)


def test_a_column_without_new_facts_is_stored_as_it_always_was():
    column = Column("at", Kind.DATETIME, "timestamptz", nullable=False)
    assert msgspec.json.encode(column) == (b'{"name":"at","kind":"datetime","declared":"timestamptz","nullable":false}')


def test_what_a_column_tells_is_stored():
    element = Column("", Kind.ENUM, "mood", labels=("sad", "happy"), base="text")
    column = Column("moods", Kind.ARRAY, "mood[]", zone=False, element=element, dimensions=2)
    assert msgspec.json.decode(msgspec.json.encode(column), type=Column) == column


@pytest.mark.parametrize(
    ("column", "has"),
    [
        (Column("c", Kind.JSON), True),
        (Column("c", Kind.ARRAY, element=Column("", Kind.JSON)), True),
        (Column("c", Kind.ARRAY, element=Column("", Kind.STR)), False),
        (Column("c", Kind.ARRAY), False),
    ],
)
def test_a_column_of_arrays_has_documents_where_its_elements_are_some(column, has):
    assert column.has_documents is has
