from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.image import decode_image, decode_key, encode_image, encode_key
from tailrace.model.table import Column, Kind
from tailrace.source.sqlite.row_encoder import RowEncoder
from tailrace.source.sqlite.table_version import TableVersion

KINDS = [Kind.I64, Kind.F64, Kind.STR, Kind.BYTES, Kind.ANY]

values = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
)


@st.composite
def tables(draw):
    names = draw(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
            unique=True,
            min_size=1,
            max_size=5,
        )
    )
    columns = tuple(Column(name, draw(st.sampled_from(KINDS))) for name in names)
    key = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=3)))
    return TableVersion(1, "t", 1, columns, key, "", None if key else 0, None)


@given(tables(), st.data())
def test_quick_images_and_keys_equal_those_of_the_model(version, data):
    encoder = RowEncoder(version)
    schema = version.schema("app", 1)
    for _ in range(3):
        row = {column.name: data.draw(values) for column in version.columns}
        rowid = data.draw(st.integers(-(2**63), 2**63 - 1))
        cells = (*([] if version.key else [rowid]), *row.values())
        key = [row[name] for name in version.key] or [rowid]
        assert encoder.image(cells) == encode_image(row, schema)
        assert encoder.key(cells) == encode_key(key, schema)
        assert decode_image(encoder.image(cells), schema) == row
        assert decode_key(encoder.key(cells), schema) == tuple(key)


def test_infinity_in_a_row_that_had_finite_numbers_before_is_not_lost():
    version = TableVersion(1, "t", 1, (Column("a", Kind.F64),), ("a",), "", None, None)
    encoder = RowEncoder(version)
    assert encoder.image((1.5,)) == b'{"a":1.5}'
    assert encoder.image((float("inf"),)) == b'{"a":{"t":"f64","v":"Infinity"}}'
