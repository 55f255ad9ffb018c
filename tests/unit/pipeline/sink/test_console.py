"""Changes on the console."""

import io
import json

import pytest

from sink_changes import ChangingSource
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.console import ConsoleSink


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
    with pytest.raises(SinkRefusedError, match="keeps nothing"):
        ConsoleSink(io.BytesIO()).rows(ChangingSource().table().schema)


class ClosedPipe(io.BytesIO):
    def write(self, data):
        raise BrokenPipeError


def test_a_console_that_nobody_reads_is_unavailable():
    source = ChangingSource()
    source.table().insert(1, "Ann", 1.5)
    with pytest.raises(SinkUnavailableError):
        ConsoleSink(ClosedPipe()).apply(source.batch())
