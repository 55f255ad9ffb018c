"""Facts about row images and keys."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from strategies import VALUES, same, table_schemas
from tailrace.model.image import (
    decode_image,
    decode_key,
    encode_image,
    encode_key,
    image_to_literals,
    image_to_plain,
    key_to_literals,
    key_to_plain,
)
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import from_literal, to_plain


@given(table_schemas(), st.data())
def test_images_and_keys_lose_nothing(schema, data):
    row = {column.name: data.draw(VALUES) for column in schema.columns}
    key = tuple(data.draw(VALUES) for _ in schema.key_columns)
    image, key_bytes = encode_image(row, schema), encode_key(key, schema)

    decoded = decode_image(image, schema)
    assert list(decoded) == list(row)
    assert all(same(decoded[name], row[name]) for name in row)
    assert all(map(same, decode_key(key_bytes, schema), key))

    literals = json.decode(image_to_literals(image, schema))
    assert list(literals) == sorted(row)
    assert all(same(from_literal(literals[name]), row[name]) for name in row)
    assert all(map(same, map(from_literal, json.decode(key_to_literals(key_bytes, schema))), key))

    assert json.decode(image_to_plain(image, schema)) == json.decode(
        json.encode({n: to_plain(v) for n, v in row.items()})
    )
    assert json.decode(key_to_plain(key_bytes, schema)) == json.decode(json.encode([to_plain(v) for v in key]))


def test_a_plain_image_of_ordinary_values_is_the_image_itself():
    schema = TableSchema(TableName("app", "t"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
    image = encode_image({"id": 1, "name": '{"t":"str"}'}, schema)
    assert image_to_plain(image, schema) is image


def test_a_missing_column_stays_missing():
    schema = TableSchema(TableName("app", "t"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
    assert encode_image({"id": 1}, schema) == b'{"id":1}'
