"""How far a sink has come, and which batches it has."""

import pytest
from msgspec import structs

from sink_changes import ChangingSource
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.errors import SinkMovedError
from tailrace.pipeline.sink.base import Batch, SinkProgress, TableMark
from tailrace.pipeline.sink.progress import (
    after,
    decode,
    decode_columns,
    encode,
    encode_columns,
    has,
    has_batch,
    refuse_lost,
)

HELD = SinkProgress(7, {"shop": 100, "crm": 5}, {"shop.orders": 90})


@pytest.mark.parametrize(
    ("number", "offsets", "held"),
    [
        (8, {"shop": 101}, False),
        (9, {"shop": 5}, False),
        (7, {"shop": 100}, True),
        (7, {"shop": 100, "crm": 5}, True),
        (3, {"shop": 40}, True),
        (0, {}, True),
    ],
)
def test_a_sink_has_the_batches_up_to_its_last(number, offsets, held):
    assert has(HELD, Batch("copy", number, offsets, [])) is held


@pytest.mark.parametrize(
    ("number", "offsets"), [(7, {"shop": 101}), (7, {"shop": 99}), (0, {"shop": 200}), (2, {"other": 1})]
)
def test_another_batch_of_a_number_that_it_has_is_refused(number, offsets):
    with pytest.raises(SinkMovedError, match="another worker writes into it"):
        has(HELD, Batch("copy", number, offsets, []))


@pytest.mark.parametrize(
    ("held", "given", "known", "has"),
    [
        (None, TableMark(0, 5), None, False),
        (TableMark(3, 50), TableMark(4, 60), TableMark(3, 50), False),
        (TableMark(4, 60), TableMark(4, 60), TableMark(3, 50), True),
        (TableMark(4, None), TableMark(4, 60), TableMark(3, 50), True),
        (TableMark(4, 60), TableMark(4, None), TableMark(4, 60), True),
    ],
    ids=["nothing", "the one before", "this very one", "of an older version", "a repair"],
)
def test_a_table_has_a_batch_or_the_one_before_it(held, given, known, has):
    assert has_batch(held, given, known) is has


@pytest.mark.parametrize(
    ("held", "known"),
    [
        (TableMark(4, 58), TableMark(3, 50)),
        (TableMark(3, 55), TableMark(3, 50)),
        (TableMark(0, 5), None),
        (TableMark(9, 90), TableMark(9, 90)),
    ],
    ids=["cut otherwise", "moved meanwhile", "made meanwhile", "older than the table"],
)
def test_a_table_that_another_worker_has_written_takes_nothing(held, known):
    with pytest.raises(SinkMovedError, match="another worker"):
        has_batch(held, TableMark(4, 60), known)


def test_a_new_sink_has_none():
    assert has(None, Batch("copy", 0, {"shop": 1}, [])) is False


def test_progress_goes_on_with_each_batch():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.insert(2, "Bob", 1.0)
    first = after(None, source.batch())
    assert first == SinkProgress(0, {"shop": 2}, {"shop.orders": 2})
    source.table("lines").insert(1, "x", None)
    assert after(first, source.batch()) == SinkProgress(1, {"shop": 3}, {"shop.orders": 2, "shop.lines": 3})


def test_progress_is_read_as_it_was_written():
    assert decode(encode(HELD)) == HELD
    assert decode(encode(structs.replace(HELD, since=4))) == structs.replace(HELD, since=4)
    assert decode(b'{"number":7,"offsets":{"shop":100,"crm":5},"highest":{"shop.orders":90}}') == HELD
    assert decode_columns(*encode_columns(HELD)) == HELD


@pytest.mark.parametrize("data", [b"", b"{}", b'{"number":"x","offsets":{}}', b"\xff"])
def test_damaged_progress_is_refused(data):
    with pytest.raises(SinkRefusedError, match="is damaged"):
        decode(data)


def test_a_table_that_was_there_must_be_there():
    source = ChangingSource()
    schema = source.table().schema
    refuse_lost(HELD, [schema], [schema])
    refuse_lost(None, [schema], [])
    refuse_lost(SinkProgress(1, {}, {}), [schema], [])
    with pytest.raises(SinkRefusedError, match="table orders: it is gone"):
        refuse_lost(HELD, [schema], [])
