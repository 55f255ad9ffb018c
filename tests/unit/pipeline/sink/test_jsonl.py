"""Lines of JSON lose nothing."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink_changes import ChangingSource
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.json_column import typed_column
from tailrace.pipeline.sink.jsonl import ConsoleSink, JsonLinesFormat, json_rows

VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 4): st.decimals(-(10**15), 10**15, places=4, allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.list_(pa.float64()): st.lists(st.none() | st.floats(), max_size=3),
    pa.list_(pa.binary()): st.lists(st.none() | st.binary(), max_size=3),
    pa.list_(pa.list_(pa.int64())): st.lists(st.none() | st.lists(st.none() | st.integers(0, 9)), max_size=3),
}


@given(st.data())
def test_values_come_back_as_they_were(data):
    for type_, values in VALUES.items():
        column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), type_)
        lines = [json.loads(json.dumps(row)) for row in json_rows(pa.table({"c": column}))]
        back = typed_column([line["c"] for line in lines], type_)
        assert str(back) == str(column)


def test_values_are_written_as_people_read_them(tmp_path):
    zoned = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    values = {
        "i": pa.array([2**63 - 1]),
        "d": pa.array([Decimal("12.50")], pa.decimal128(10, 2)),
        "f": pa.array([float("inf")]),
        "b": pa.array([b"\x00\xff"]),
        "day": pa.array([date(2026, 1, 2)]),
        "at": pa.array([zoned], pa.timestamp("us", tz="UTC")),
    }
    path = tmp_path / "part.jsonl"
    JsonLinesFormat().write(path, pa.table(values))
    assert path.read_text() == (
        '{"i":9223372036854775807,"d":"12.50","f":"Infinity","b":"AP8=","day":"2026-01-02",'
        '"at":"2026-01-02T03:04:05.000678Z"}\n'
    )
    assert JsonLinesFormat().read(path, pa.table(values).schema).to_pylist() == pa.table(values).to_pylist()


def test_each_change_is_a_line_and_shown_once():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.5)
    orders.delete(1)
    output = io.BytesIO()
    sink = ConsoleSink(output)
    sink.open(source.schemas)
    batch = source.batch()
    sink.apply(batch)
    sink.apply(batch)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["_table"], line["_change_type"], line["id"]) for line in lines] == [
        ("orders", "insert", 1),
        ("orders", "delete", 1),
    ]
    assert (sink.applied(), sink.progress().offsets) == (0, {"shop": 2})


def test_a_console_keeps_nothing_to_verify():
    with pytest.raises(SinkRefusedError, match="stores nothing"):
        ConsoleSink(io.BytesIO()).rows(ChangingSource().table().schema)


class ClosedPipe(io.BytesIO):
    def write(self, data):
        raise BrokenPipeError


def test_a_console_that_nobody_reads_is_unavailable():
    source = ChangingSource()
    source.table().insert(1, "Ann", 1.5)
    with pytest.raises(SinkUnavailableError):
        ConsoleSink(ClosedPipe()).apply(source.batch())
