"""Facts about keys in their raw form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeding import schema_of
from strategies import VALUES, table_schemas
from tailrace.model.image import NO_KEY, encode_key
from tailrace.model.raw_key import key_of_raw, raw_of_key
from tailrace.model.table import Column, Kind


def keyed(*kinds):
    columns = tuple(Column(f"k{place}", kind) for place, kind in enumerate(kinds))
    return schema_of("t", columns=columns, key=tuple(column.name for column in columns))


@pytest.mark.parametrize(
    ("kinds", "key", "raw"),
    [
        ([Kind.STR], ["Ada"], b"Ada"),
        ([Kind.STR], ['é"\\\n'], 'é"\\\n'.encode()),
        ([Kind.STR], [""], b""),
        ([Kind.STR], [7], b"\xff[7]"),
        ([Kind.STR], [None], b"\xff[null]"),
        ([Kind.BYTES], [b"\x00\xff"], b"\x00\xff"),
        ([Kind.BYTES], ["Ada"], b'\xff[{"t":"str","v":"Ada"}]'),
        ([Kind.I64], [7], b"[7]"),
        ([Kind.ANY], ["Ada"], b'["Ada"]'),
        ([Kind.STR, Kind.I64], ["Ada", 7], b'["Ada",7]'),
    ],
)
def test_text_and_bytes_are_bare_and_all_else_is_json(kinds, key, raw):
    schema = keyed(*kinds)
    assert raw_of_key(encode_key(key, schema), schema) == raw


def test_a_table_without_a_primary_key_shows_its_row_number():
    assert raw_of_key(b"[7]", schema_of("t", key=())) == b"[7]"


def test_a_schema_change_has_an_empty_key():
    assert raw_of_key(NO_KEY, keyed(Kind.STR)) == b""


@given(table_schemas(), st.data())
def test_the_raw_form_of_a_key_leads_back_to_the_key(schema, data):
    key = encode_key(tuple(data.draw(VALUES) for _ in schema.key_columns), schema)
    raw = raw_of_key(key, schema)
    if not (schema.key_columns[0].kind is Kind.BYTES and len(schema.key_columns) == 1 and raw == b"\xff" + key):
        assert key_of_raw(raw, schema) == key


@given(st.binary(), st.sampled_from([[Kind.STR], [Kind.BYTES], [Kind.I64], [Kind.STR, Kind.STR]]))
def test_any_bytes_are_the_raw_form_of_a_key_or_of_none(raw, kinds):
    schema = keyed(*kinds)
    key = key_of_raw(raw, schema)
    if kinds == [Kind.BYTES] or (kinds == [Kind.STR] and key is not None and not raw.startswith(b"\xff")):
        assert raw_of_key(key, schema) == raw
