"""Facts about keys as typed literals."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from feeding import schema_of
from strategies import VALUES, table_schemas
from tailrace.interface.skeindb.literal import key_literals
from tailrace.model.image import encode_key, key_to_literals
from tailrace.model.table import Column, Kind


@given(st.lists(table_schemas(), min_size=1, max_size=3), st.data())
def test_what_is_not_marked_is_the_literal(schemas, data):
    places = data.draw(st.lists(st.integers(0, len(schemas) - 1), min_size=1, max_size=12))
    keys = [encode_key([data.draw(VALUES) for _ in schemas[p].key_columns], schemas[p]) for p in places]
    literals, odd = key_literals(pa.array(keys, pa.binary()), pa.array(places, pa.int32()), schemas)
    marks = [False] * len(keys) if odd is None else odd.to_pylist()
    for key, place, literal, mark in zip(keys, places, literals.to_pylist(), marks, strict=True):
        assert mark or literal == key_to_literals(key, schemas[place])


def test_ordinary_keys_are_not_marked():
    schema = schema_of("t", columns=(Column("id", Kind.I64),))
    texts = schema_of("t", columns=(Column("id", Kind.STR),))
    keys = pa.array([b"[1]", b"[-5]", b'["x"]', b"[999999999999999999]"], pa.binary())
    literals, odd = key_literals(keys, pa.array([0, 0, 1, 0], pa.int32()), [schema, texts])
    assert odd is None
    assert literals.to_pylist()[2] == b'[{"t":"str","v":"x"}]'


def test_a_number_that_may_need_the_sign_bit_is_marked():
    schema = schema_of("t", columns=(Column("id", Kind.I64),))
    _, odd = key_literals(pa.array([b"[9223372036854775808]"], pa.binary()), pa.array([0], pa.int32()), [schema])
    assert odd.to_pylist() == [True]
