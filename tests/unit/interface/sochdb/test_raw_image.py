"""Facts about row images as SochDB shows them."""

import pytest

from feeding import schema_of
from tailrace.interface.sochdb.raw_image import is_key_value, raw_of_image
from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind

COLUMNS = (Column("key", Kind.BYTES), Column("value", Kind.BYTES), Column("expires_time_us", Kind.I64))
KV = schema_of("kv", columns=COLUMNS, key=("key",))


@pytest.mark.parametrize(
    ("value", "raw"), [(b"\x00\xff", b"\x00\xff"), (b"", b""), ("text", b"text"), (7, b"7"), (None, b"")]
)
def test_of_keys_and_values_the_value_alone_is_shown(value, raw):
    image = encode_image({"key": b"k", "value": value, "expires_time_us": None}, KV)
    assert raw_of_image(image, KV) == raw


@pytest.mark.parametrize(
    "schema",
    [
        schema_of("kv"),
        schema_of("kv", columns=COLUMNS[:2], key=("key",)),
        schema_of("kv", columns=COLUMNS, key=("value",)),
        schema_of("other", columns=COLUMNS, key=("key",)),
    ],
)
def test_any_other_table_shows_its_rows_as_they_are(schema):
    assert not is_key_value(schema)
    assert raw_of_image(b'{"id":1}', schema) == b'{"id":1}'
