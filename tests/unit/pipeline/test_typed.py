"""Images as typed columns: exactly, or not at all."""

import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import VALUES, same
from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Array, Text, to_natural
from tailrace.pipeline.typed import MisfitError, arrow_type, decode_images, hidden_key, row_schema

pytestmark = pytest.mark.usefixtures("decoder")


def table(*columns, key=("id",)):
    return TableSchema(TableName("app", "orders"), 1, columns, key)


def binary(*images):
    return pa.array(images, pa.binary())


def decoded(schema, *images, wanted=None, as_text=()):
    keys = binary(*[b"[%d]" % number for number in range(len(images))])
    wanted = wanted or row_schema(schema, as_text)
    columns = decode_images(binary(*images), keys, schema, wanted, as_text).columns
    assert [column.type for column in columns] == [field.type for field in wanted]
    return {name: column.to_pylist() for name, column in zip(wanted.names, columns, strict=True)}


@pytest.mark.parametrize(
    ("kind", "declared", "type_"),
    [
        (Kind.I64, "", pa.int64()),
        (Kind.U64, "", pa.decimal128(20, 0)),
        (Kind.F64, "", pa.float64()),
        (Kind.BOOL, "", pa.bool_()),
        (Kind.STR, "", pa.string()),
        (Kind.BYTES, "", pa.binary()),
        (Kind.DEC, "NUMERIC", pa.string()),
        (Kind.DEC, "DECIMAL(10, 2)", pa.decimal128(10, 2)),
        (Kind.DEC, "NUMERIC(7)", pa.decimal128(7, 0)),
        (Kind.DEC, "NUMERIC(60,2)", pa.string()),
        (Kind.DEC, "NUMERIC(2,4)", pa.string()),
        (Kind.DATE, "", pa.date32()),
        (Kind.DATETIME, "timestamp", pa.timestamp("us")),
        (Kind.DATETIME, "timestamp with time zone", pa.timestamp("us", tz="UTC")),
        (Kind.TIME, "", pa.string()),
        (Kind.JSON, "", pa.string()),
        (Kind.UUID, "", pa.string()),
        (Kind.ANY, "", pa.string()),
    ],
)
def test_each_kind_has_its_type(kind, declared, type_):
    assert arrow_type(Column("c", kind, declared)) == type_


@pytest.mark.parametrize(("zone", "type_"), [(True, pa.timestamp("us", tz="UTC")), (False, pa.timestamp("us"))])
def test_the_zone_that_a_column_tells_counts_and_not_its_declared_type(zone, type_):
    assert arrow_type(Column("c", Kind.DATETIME, "timestamptz", zone=zone)) == type_


@pytest.mark.parametrize(
    ("element", "dimensions", "type_"),
    [
        (Column("", Kind.I64), 1, pa.list_(pa.int64())),
        (Column("", Kind.I64), 2, pa.list_(pa.list_(pa.int64()))),
        (Column("", Kind.DATETIME, zone=True), 1, pa.list_(pa.timestamp("us", tz="UTC"))),
        (Column("", Kind.DEC, "numeric(10,2)"), 1, pa.list_(pa.decimal128(10, 2))),
        (Column("", Kind.I64), 0, pa.string()),
        (Column("", Kind.ANY), 1, pa.string()),
        (Column("", Kind.ARRAY), 1, pa.string()),
        (None, 1, pa.string()),
    ],
)
def test_an_array_is_a_list_where_its_elements_and_dimensions_are_known(element, dimensions, type_):
    assert arrow_type(Column("c", Kind.ARRAY, element=element, dimensions=dimensions)) == type_


def test_an_array_in_a_key_is_text():
    tags = Column("tags", Kind.ARRAY, element=Column("", Kind.I64), dimensions=1)
    assert row_schema(table(tags, key=("tags",))).field("tags").type == pa.string()


def test_an_array_of_other_dimensions_than_declared_is_named():
    schema = table(Column("id", Kind.I64), Column("c", Kind.ARRAY, element=Column("", Kind.I64), dimensions=1))
    with pytest.raises(MisfitError, match="'c'"):
        decoded(schema, encode_image({"id": 1, "c": Array(((1,), (2,)))}, schema))


@given(kind=st.sampled_from(list(Kind)), values=st.lists(VALUES, min_size=1, max_size=4))
@example(Kind.I64, [1, 1.5])
@example(Kind.I64, ["0x1F"])
@example(Kind.I64, ["12"])
@example(Kind.I64, [True])
@example(Kind.F64, ["NaN"])
@example(Kind.F64, [math.nan, math.inf, -0.0, 1e22])
@example(Kind.F64, [2**53 + 1])
@example(Kind.BYTES, [1234, b"abc"])
@example(Kind.BYTES, ["YWJj"])
@example(Kind.STR, ['{"t":"i64","v":1}', b"abc"])
@example(Kind.STR, ['{"t":"i64","v":1}'])
@example(Kind.BOOL, [1])
@example(Kind.U64, [2**64 - 1, -1])
@example(Kind.DATE, [Text(Kind.DATE, "0000-00-00")])
@example(Kind.DATE, [Text(Kind.DATE, "2026-01-31")])
@example(Kind.ANY, ['a"\\b', 5, b"abc", None])
def test_a_value_is_read_exactly_or_named_as_one_that_does_not_fit(kind, values):
    schema = table(Column("c", kind), key=("c",))
    images = [encode_image({"c": value}, schema) for value in values]
    misfit = None
    try:
        read = decoded(schema, *images)["c"]
    except MisfitError as error:
        misfit = error
    if misfit is not None:
        assert (misfit.table, misfit.column) == ("orders", "c")
        assert not fits(values[json.loads(misfit.key)[0]], kind)
        return
    for value, got in zip(values, read, strict=True):
        assert stands_for(got, value, kind), (got, value)


def fits(value, kind):
    """Tell whether a value is one of the kind itself, so that no error is right."""
    return {
        Kind.I64: type(value) is int and -(2**63) <= value < 2**63,
        Kind.F64: type(value) is float,
        Kind.STR: type(value) is str,
        Kind.BYTES: type(value) is bytes,
        Kind.GEOMETRY: type(value) is bytes,
        Kind.ARRAY: True,
        Kind.BOOL: type(value) is bool,
        Kind.U64: type(value) is int,
        Kind.DEC: type(value) is Decimal,
    }.get(kind, kind is Kind.ANY or (isinstance(value, Text) and value.kind is kind and kind not in _PARSED)) or (
        value is None
    )


_PARSED = (Kind.DATE, Kind.DATETIME)


def stands_for(got, value, kind):
    """Tell whether what was read says which value it was."""
    if value is None or got is None:
        return got is value
    if isinstance(got, str):
        natural = to_natural(value, Column("c", kind))
        if kind not in {Kind.ANY, Kind.ARRAY} and isinstance(value, str | Text | Decimal):
            return got == (value.text if isinstance(value, Text) else str(value))
        return got == natural if isinstance(natural, str) else same_json(got, natural)
    if isinstance(got, bool | bytes | float) and not isinstance(value, int):
        return same(got, value)
    if kind in _PARSED:
        return isinstance(value, Text) and value.kind is kind and got.isoformat() == value.text
    return type(value) is not bool and got == value if kind is not Kind.BOOL else got is value


def same_json(got, natural):
    try:
        return json.loads(got) == natural
    except ValueError:
        return False


def test_a_value_that_does_not_fit_is_named_by_table_key_and_column_and_never_shown():
    schema = table(Column("id", Kind.I64), Column("qty", Kind.I64))
    with pytest.raises(MisfitError) as misfit:
        decoded(schema, b'{"id":1,"qty":1}', b'{"id":2,"qty":"a dozen"}')
    assert (misfit.value.table, misfit.value.key, misfit.value.column) == ("orders", "[1]", "qty")
    assert "stringColumns" in str(misfit.value)
    assert "a dozen" not in str(misfit.value)


def test_a_column_may_be_read_as_text_whatever_it_holds():
    schema = table(Column("id", Kind.I64), Column("qty", Kind.I64))
    images = [b'{"id":1,"qty":12}', b'{"id":2,"qty":"a dozen"}', b'{"id":3,"qty":{"t":"bytes","b64":"YQ=="}}']
    assert decoded(schema, *images, as_text=("qty",)) == {
        "id": [1, 2, 3],
        "qty": ["12", "a dozen", '{"t":"bytes","b64":"YQ=="}'],
    }


def test_a_column_that_the_version_or_an_image_does_not_have_is_null():
    schema = table(Column("id", Kind.I64), Column("name", Kind.STR))
    wanted = pa.schema([("id", pa.int64()), ("name", pa.string()), ("later", pa.float64())])
    read = decoded(schema, b'{"id":1}', b'{"id":2,"name":null,"dropped":5}', wanted=wanted)
    assert read == {"id": [1, 2], "name": [None, None], "later": [None, None]}


def test_odd_names_of_columns_are_read():
    names = ["a.b", "x y", "$.z", "it's", 'a "quote"', "ünïcode", "select"]
    schema = table(*[Column(name, Kind.I64) for name in names], key=("a.b",))
    image = encode_image({name: number for number, name in enumerate(names)}, schema)
    assert decoded(schema, image) == {name: [number] for number, name in enumerate(names)}


def test_names_that_differ_only_in_case_are_read():
    schema = table(Column("id", Kind.I64), Column("ID", Kind.STR))
    assert decoded(schema, b'{"id":1,"ID":"one"}') == {"id": [1], "ID": ["one"]}


@pytest.mark.parametrize(("columns", "name"), [(("a",), "rowid"), (("RowId", "a"), "_rowid_")])
def test_a_table_without_a_primary_key_shows_its_hidden_key(columns, name):
    schema = table(*[Column(column, Kind.STR) for column in columns], key=())
    assert hidden_key(schema) == name
    read = decode_images(binary(b'{"a":"x"}'), binary(b"[42]"), schema, row_schema(schema)).columns
    assert read[0].to_pylist() == [42]


def test_rows_of_a_slice_are_those_of_the_slice():
    schema = table(Column("id", Kind.I64), Column("blob", Kind.BYTES))
    images = binary(*[encode_image({"id": n, "blob": bytes([n])}, schema) for n in range(9)])
    keys = binary(*[b"[%d]" % n for n in range(9)])
    read = decode_images(images.slice(4, 3), keys.slice(4, 3), schema, row_schema(schema)).columns
    assert [column.to_pylist() for column in read] == [[4, 5, 6], [b"\x04", b"\x05", b"\x06"]]


MIXED = table(
    Column("id", Kind.I64),
    Column("name", Kind.STR),
    Column("weight", Kind.F64),
    Column("total", Kind.DEC, "DECIMAL(8,2)"),
    Column("day", Kind.DATE),
    Column("blob", Kind.BYTES),
)


def mixed(number, **others):
    plain = {
        "id": number,
        "name": f"n{number}",
        "weight": number / 2,
        "total": Decimal(number) / 4,
        "day": Text(Kind.DATE, "2026-01-31"),
        "blob": bytes([number % 256]) * 3,
    }
    return encode_image({**plain, **others}, MIXED)


def read_one_by_one(caplog):
    """Return of each column how many of its values were read one by one."""
    found = {}
    for record in caplog.records:
        if record.message == "values read one by one":
            found[record.column] = found.get(record.column, 0) + record.rows
    return found


def test_a_table_with_bytes_is_read_as_fast_as_others(caplog):
    with caplog.at_level("INFO", logger="tailrace.pipeline.typed"):
        read = decoded(MIXED, *[mixed(number) for number in range(100)])
    assert read["blob"] == [bytes([number]) * 3 for number in range(100)]
    assert read_one_by_one(caplog) == {}


@pytest.mark.parametrize(
    ("column", "value", "got"),
    [
        ("weight", math.inf, math.inf),
        ("weight", 2**53, 2.0**53),
        ("name", b"abc", None),
        ("blob", b"", b""),
        ("name", '{"t":"no literal"}', '{"t":"no literal"}'),
    ],
)
def test_a_value_of_another_form_is_looked_at_without_its_neighbours(caplog, column, value, got):
    images = [mixed(number, **({column: value} if number == 77 else {})) for number in range(1000)]
    with caplog.at_level("INFO", logger="tailrace.pipeline.typed"):
        if got is None:
            with pytest.raises(MisfitError) as misfit:
                decoded(MIXED, *images)
            assert misfit.value.key == "[77]"
        else:
            read = decoded(MIXED, *images)
            assert read[column][77] == got
            assert read["id"] == list(range(1000))
            assert [one for place, one in enumerate(read["weight"]) if place != 77] == [
                number / 2 for number in range(1000) if number != 77
            ]
    assert sum(read_one_by_one(caplog).values()) <= 4


@pytest.mark.parametrize("misfits", [1, 30, 1000])
def test_a_day_that_is_none_is_named_however_many_there_are(misfits):
    nothing = Text(Kind.DATE, "0000-00-00")
    images = [mixed(number, **({"day": nothing} if number >= 1000 - misfits else {})) for number in range(1000)]
    with pytest.raises(MisfitError) as misfit:
        decoded(MIXED, *images)
    assert (misfit.value.key, misfit.value.column) == (f"[{1000 - misfits}]", "day")


def test_names_that_differ_only_in_case_are_not_read_one_by_one(caplog):
    schema = table(Column("id", Kind.I64), Column("ID", Kind.STR), Column("Id", Kind.F64))
    with caplog.at_level("INFO", logger="tailrace.pipeline.typed"):
        assert decoded(schema, b'{"id":1,"ID":"one","Id":0.5}') == {"id": [1], "ID": ["one"], "Id": [0.5]}
    assert read_one_by_one(caplog) == {}
