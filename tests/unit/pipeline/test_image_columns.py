"""The compiled decoder of images: the same cells as the pure one, or none; never anything else."""

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strategies import VALUES, same
from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline import image_columns
from tailrace.pipeline.image_columns import Form
from tailrace.pipeline.typed import MisfitError, decode_images, row_schema
from tailrace.pipeline.unchanged import unsent

pytestmark = pytest.mark.skipif(image_columns.compiled is None, reason="the compiled helper was not built")

COLUMNS = (
    Column("id", Kind.I64),
    Column("u", Kind.U64),
    Column("f", Kind.F64),
    Column("b", Kind.BOOL),
    Column('s "ü', Kind.STR),
    Column("any", Kind.ANY),
    Column("bytes", Kind.BYTES),
    Column("dec", Kind.DEC, "DECIMAL(10, 2)"),
    Column("date", Kind.DATE),
    Column("time", Kind.DATETIME),
    Column("doc", Kind.JSON),
)
TABLE = TableSchema(TableName("app", "orders"), 1, COLUMNS, ("id",))
KEY = b"[1]"

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
CELLS = st.one_of(
    NUMBERS,
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    TEXTS.map(json.dumps),
    st.sampled_from(['"12.50"', '"2024-02-29"', '"2024-02-29T12:00:00.5"', '"AAE="', '"AAF="', '"A+/="', '"QUJD"']),
    st.sampled_from(["null", "true", "false", "[1,{}]", '{"t":"f64","v":"Infinity"}', '"\\u0000"', '"\\/"']),
)


def read(images, schema=TABLE, as_text=()):
    """Return columns and what images lack, or what was refused."""
    wanted = row_schema(schema, as_text)
    array = pa.array(images, pa.binary())
    try:
        decoded = decode_images(array, pa.array([KEY] * len(images), pa.binary()), schema, wanted, as_text)
    except MisfitError as error:
        return error.column
    lacking = unsent(array, decoded, wanted, schema)
    return [column.to_pylist() for column in decoded.columns], None if lacking is None else lacking.to_pylist()


def read_both(images, schema=TABLE, as_text=()):
    compiled = read(images, schema, as_text)
    kept = image_columns.compiled
    image_columns.compiled = None
    try:
        return compiled, read(images, schema, as_text)
    finally:
        image_columns.compiled = kept


def equal(one, other):
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return same(one, other)


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from([column.name for column in COLUMNS]), CELLS), min_size=1, max_size=4))
@example([{"f": "1e23", "any": "0.0001"}])
@example([{"f": "9007199254740993.0", "any": "0.00001"}, {"any": "-0.0"}, {"any": "12.50"}, {"any": "100.0"}])
@example([{"id": "-0", "any": "-0", "dec": "12.5"}])
@example([{"f": "-0.0"}, {"f": "-0"}, {"f": "0.1e1"}, {"f": "123456789012345678901234567890.5"}])
def test_both_decoders_make_the_same_of_any_cells(rows):
    images = [
        b"{%s}" % b",".join(msgspec.json.encode(name) + b":" + cell.encode() for name, cell in row.items())
        for row in rows
    ]
    compiled, pure = read_both(images, as_text=["doc"])
    if isinstance(pure, str) or isinstance(compiled, str):
        assert type(pure) is type(compiled)  # of several cells that do not fit, either may be named
    else:
        assert equal(compiled[0], pure[0])
        assert compiled[1] == pure[1]


@settings(max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4), st.sampled_from(list(Kind)))
def test_both_decoders_make_the_same_of_what_sources_write(rows, kind):
    schema = TableSchema(TableName("app", "orders"), 1, (Column("a", kind), Column("b", Kind.ANY)), ("a",))
    compiled, pure = read_both([encode_image({"a": one, "b": other}, schema) for one, other in rows], schema)
    if isinstance(pure, str):
        assert compiled == pure
    else:
        assert equal(compiled[0], pure[0])


@pytest.mark.parametrize(
    "image",
    [
        b'{ "id": 7, "f": 1.5 }',
        b'{"f":1.5,"id":7}',
        b'{"id":7,"unknown":[1,"}"],"f":1.5}',
        b'{"id":7,"id":7,"f":1.5}',
    ],
)
def test_images_of_another_form_are_read_the_other_way(image):
    usual = b'{"id":1,"f":2.5}'
    (columns, _), pure = read_both([usual, image, usual])
    assert columns == pure[0]
    assert columns[0] == [1, 7, 1]
    assert columns[2] == [2.5, 1.5, 2.5]


@given(st.binary(max_size=40), st.integers(0, 60))
def test_no_bytes_lead_the_helper_out_of_its_buffers(noise, size):
    whole = b'{"id":1,"f":2.5e3,"s":"a\\u00e4\\n","bytes":"AAE=","any":{"x":["}"]}}'
    images = [noise, whole[:size], whole[:size] + noise]
    forms = {"id": Form.INT64, "f": Form.FLOAT64, "s": Form.TEXT, "bytes": Form.BASE64, "any": Form.TEXT}
    made, _ = image_columns.image_columns(pa.array(images, pa.binary()), list(forms), forms)
    for column in made.values():
        column.values.validate(full=column.values.type != pa.string())


def test_a_slice_of_images_is_read_by_itself():
    images = pa.array([b'{"id":%d}' % number for number in range(20)], pa.binary()).slice(8, 3)
    made, whole = image_columns.image_columns(images, ["id"], {"id": Form.INT64})
    assert made["id"].values.to_pylist() == [8, 9, 10]
    assert whole


def test_it_is_known_whether_an_image_lacks_a_column():
    forms = {"a": Form.INT64}

    def is_whole(*images):
        return image_columns.image_columns(pa.array(images, pa.binary()), ["a", "b"], forms)[1]

    assert is_whole(b'{"a":1,"b":null}', b"{}")
    assert not is_whole(b'{"a":1,"b":null}', b'{"a":1}')
    assert not is_whole(b'{"a":1,"b":null}', b"[]")


def test_buffers_that_are_too_short_are_refused():
    offsets, data = pa.py_buffer(b"\0" * 8), pa.py_buffer(b"")
    with pytest.raises(ValueError, match="too short"):
        image_columns.compiled.decode(2, offsets, data, 0, [(b'"a":', 1)])
    with pytest.raises(ValueError, match="malformed"):
        image_columns.compiled.decode(1, offsets, data, 0, [(b'"a":', 9)])
