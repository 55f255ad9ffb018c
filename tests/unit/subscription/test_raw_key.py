"""Facts about filtering by a key in its raw form."""

import pyarrow as pa

from feeding import schema_of
from tailrace.model.table import Column, Kind
from tailrace.subscription.filter import RawKey

NAMED = schema_of("named", columns=(Column("name", Kind.STR),), key=("name",))


def test_one_key_passes_and_no_other():
    wanted = RawKey(b"Ada", NAMED)
    keys = [b'["Ada"]', b'["Adam"]', b"[1]"]
    assert wanted.select(keys) == [True, False, False]
    assert wanted.mask(pa.array(keys, pa.binary())).to_pylist() == [True, False, False]


def test_bytes_that_no_key_can_have_let_nothing_pass():
    wanted = RawKey(b"a\xff", NAMED)
    assert wanted.key is None
    assert wanted.select([b'["Ada"]']) == [False]


def test_two_keys_are_told_apart():
    assert RawKey(b"a", NAMED).canonical != RawKey(b"b", NAMED).canonical
    assert RawKey(b"a", NAMED).canonical == RawKey(b"a", NAMED).canonical
