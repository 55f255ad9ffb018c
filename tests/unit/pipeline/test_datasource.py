"""What the stream reader tells Spark, and when it makes, acknowledges and removes a subscription."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from tailrace.client.errors import ConnectionFailed
from tailrace.model.errors import BehindHorizonError, ConfigError
from tailrace.model.wanted import Conditions
from tailrace.pipeline.datasource import TailraceSource, TailraceStreamReader, _intervals, moved_alone
from tailrace.pipeline.origin import Window
from tailrace.pipeline.source_options import SourceOptions, parse_options

SCHEMA = StructType([StructField("_offset", LongType())])


class FakeOrigin:
    """A log in which every fifth change ends a commit."""

    def __init__(self, head=20, horizon=1):
        self.head, self.horizon = head, horizon
        self.calls = []
        self.away = False
        self.arriving = None

    def window(self, tables, *, beyond=None):
        if beyond is not None and self.head <= beyond:
            self.head = self.arriving or self.head
        return Window(self.head, self.horizon, {})

    def place(self, start):
        return {"earliest": self.horizon - 1, "latest": self.head}[start]

    def cuts(self, after, through, *, changes, bytes_max=None, count=10_000):
        if after + 1 < self.horizon:
            raise BehindHorizonError(requested=after + 1, horizon=self.horizon)
        few = bytes_max is not None and bytes_max < 1_000_000
        step = 5 if few else max(5, changes // 5 * 5)
        return list(range(after + step, through + 1, step))[:count] or ([through] if through > after else [])

    def subscribe(self, tables, after):
        self.calls.append(("subscribe", tables, after))
        return "sub_1"

    def acknowledge(self, subscription, offset):
        if self.away:
            raise ConnectionFailed("away")
        self.calls.append(("acknowledge", subscription, offset))

    def unsubscribe(self, subscription):
        self.calls.append(("unsubscribe", subscription))

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def origin():
    return FakeOrigin()


@pytest.fixture
def reader(origin, monkeypatch):
    monkeypatch.setattr(SourceOptions, "origin", lambda _options: origin)

    def make(**options):
        return TailraceStreamReader(parse_options({"server": "http://there", "tables": "orders", **options}), SCHEMA)

    return make


def test_a_new_query_makes_one_subscription_however_often_spark_asks(reader, origin):
    stream = reader()
    assert stream.initialOffset() == stream.initialOffset() == {"offset": 0, "subscription": "sub_1"}
    assert origin.calls == [("subscribe", ("orders",), 0)]


def test_a_subscription_that_the_user_names_is_used(reader, origin):
    stream = reader(subscription="sub_9", start="latest")
    assert stream.initialOffset() == {"offset": 20, "subscription": "sub_9"}
    stream.stop()
    assert origin.calls == [("close",)]


def test_a_query_that_never_planned_a_batch_leaves_no_subscription(reader, origin):
    stream = reader()
    stream.initialOffset()
    stream.stop()
    stream.stop()
    assert origin.calls[1:] == [("unsubscribe", "sub_1"), ("close",)]


def test_a_query_that_planned_a_batch_keeps_its_subscription(reader, origin):
    stream = reader()
    stream.partitions(stream.initialOffset(), stream.initialOffset())
    stream.stop()
    assert origin.calls[1:] == [("close",)]


def test_the_end_of_a_batch_is_acknowledged_and_a_server_that_is_away_is_no_failure(reader, origin):
    stream = reader()
    stream.commit({"offset": 5, "subscription": "sub_1"})
    origin.away = True
    stream.commit({"offset": 10, "subscription": "sub_1"})
    stream.commit({"offset": 10, "subscription": None})
    assert origin.calls == [("acknowledge", "sub_1", 5)]
    origin.away = False
    for _ in range(2):
        stream.latestOffset({"offset": 10, "subscription": "sub_1"}, ReadAllAvailable())
    assert origin.calls[1:] == [("acknowledge", "sub_1", 10)]


@pytest.mark.parametrize(
    ("options", "limit", "end"),
    [
        ({}, ReadAllAvailable(), 20),
        ({"maxChangesPerTrigger": "12"}, ReadMaxRows(12), 10),
        ({"maxChangesPerTrigger": "2"}, ReadMaxRows(2), 5),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9), 5),
        ({"maxBytesPerTrigger": "9", "maxChangesPerTrigger": "12"}, ReadMaxRows(12), 5),
    ],
)
def test_a_micro_batch_keeps_to_the_limits_of_the_options(reader, options, limit, end):
    stream = reader(**options)
    assert stream.getDefaultReadLimit() == limit
    assert stream.latestOffset({"offset": 0, "subscription": "s"}, limit) == {"offset": end, "subscription": "s"}
    assert stream.latestOffset({"offset": 0, "subscription": "s"}, ReadAllAvailable())["offset"] == 20


def test_a_query_that_is_to_end_reads_nothing_that_came_later(reader, origin):
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    origin.head = 30
    assert stream.latestOffset({"offset": 0}, ReadAllAvailable()) == {"offset": 20}
    assert stream.latestOffset({"offset": 20}, ReadAllAvailable()) == {"offset": 20}
    assert stream.reportLatestOffset() == {"offset": 30}


def test_what_arrives_while_a_query_looks_for_more_is_in_the_batch_at_once(reader, origin):
    stream = reader()
    origin.arriving = 25
    assert stream.latestOffset({"offset": 20}, ReadAllAvailable())["offset"] == 25


def test_a_query_that_is_to_end_does_not_wait_for_more(reader, origin):
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    origin.arriving = 25
    assert stream.latestOffset({"offset": 20}, ReadAllAvailable())["offset"] == 20
    assert origin.head == 20


def test_a_place_behind_the_horizon_is_a_typed_error(reader, origin):
    origin.horizon = 11
    with pytest.raises(BehindHorizonError) as behind:
        reader().latestOffset({"offset": 5}, ReadAllAvailable())
    assert (behind.value.requested, behind.value.horizon) == (6, 11)


@pytest.mark.parametrize(
    ("through", "counts"),
    [(50_000, [50_000]), (60_000, [50_000, 10_000]), (400_000, [100_000] * 4), (4_000_000, [500_000] * 8)],
)
def test_there_are_as_many_tasks_as_cores_if_each_has_enough_to_do(reader, through, counts):
    intervals = reader(cores="4").partitions({"offset": 0}, {"offset": through})
    assert [one.through - one.after for one in intervals] == counts


def test_there_are_no_more_tasks_than_cores_where_changes_are_skipped(reader):
    source, conditions = reader(cores="4"), Conditions(key="id", key_min=0, key_max=9)
    intervals = _intervals(source._origin, 0, 4_000_000, source.options, (), conditions)
    assert [(one.through - one.after, one.conditions) for one in intervals] == [(1_000_000, conditions)] * 4


def test_what_has_many_bytes_is_divided_further(reader):
    intervals = reader(cores="1", partitionBytes="1000").partitions({"offset": 0}, {"offset": 60_000})
    assert len(intervals) > 1000


def test_a_micro_batch_is_cut_into_intervals_that_follow_each_other(reader):
    intervals = reader(partitionChanges="10").partitions({"offset": 0}, {"offset": 18})
    assert [(one.after, one.through) for one in intervals] == [(0, 10), (10, 18)]
    assert reader().partitions({"offset": 7}, {"offset": 7}) == []


def test_a_reader_travels_to_executors_without_its_connections(reader, origin):
    stream = reader()
    stream.initialOffset()
    assert pickle.loads(pickle.dumps(stream)).options == stream.options


def test_a_column_of_a_type_that_no_value_has_is_refused():
    nested = StructType([StructField("tags", ArrayType(MapType(StringType(), StringType())))])
    source = TailraceSource({"server": "http://there", "tables": "orders"})
    with pytest.raises(ConfigError, match="'tags'"):
        source.streamReader(nested)
    assert source.name() == "tailrace"


INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"


def rows(*told):
    kinds, keys, others = zip(*told, strict=True)
    columns = {"_change_type": list(kinds), "id": pa.array(keys, pa.int64()), "part": list(others)}
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([(INSERT, 1, "a")], [0]),
        ([(BEFORE, 1, "a"), (AFTER, 1, "a")], [1]),
        ([(BEFORE, 1, "a"), (AFTER, 2, "a")], [0, 1]),
        ([(BEFORE, 1, "a"), (AFTER, 1, "b")], [0, 1]),
        ([(BEFORE, None, "a"), (AFTER, None, "a")], [0, 1]),
        ([(INSERT, 1, "a"), (DELETE, 1, "a"), (BEFORE, 2, "a"), (AFTER, 2, "a"), (DELETE, 2, "a")], [0, 1, 3, 4]),
    ],
)
def test_a_row_before_an_update_stays_where_its_key_is_gone(told, kept):
    whole = rows(*told)
    assert moved_alone(whole, ["id", "part"]).to_pylist() == whole.take(kept).to_pylist()


def test_a_batch_without_rows_stays_so():
    assert moved_alone(rows((INSERT, 1, "a")).slice(0, 0), ["id"]).num_rows == 0


def test_a_key_that_is_not_read_is_named():
    with pytest.raises(ConfigError, match="option preimages needs the column 'number'"):
        moved_alone(rows((INSERT, 1, "a")), ["number"])
