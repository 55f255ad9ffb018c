"""Facts about table names and schemas."""

from tailrace.model.table import Column, Kind, TableName, TableSchema


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
