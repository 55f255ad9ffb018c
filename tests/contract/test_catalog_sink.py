"""The catalog sink on real Iceberg tables, in short. With LONG_TESTS `test_sinks.py` has its whole contract."""

import itertools

import pyarrow as pa
import pytest

from iceberg_session import iceberg_session
from sink_changes import ChangingSource
from sink_places import CatalogPlace, rows_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.base import Batch, Mode, TableChanges
from tailrace.pipeline.sink.catalog import BATCHES, CatalogSink

NUMBERS = itertools.count()


class Faulty:
    """A session that fails when a statement begins so: it does not run it, or runs it and loses the answer."""

    def __init__(self, session, beginning, *, runs):
        self.session, self.beginning, self.runs = session, beginning, runs

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run(self, statement):
        if not statement.startswith(self.beginning):
            return self.session.run(statement)
        if self.runs:
            self.session.run(statement)
        raise SinkUnavailableError("the answer is lost")


def check(place, sink, table):
    """Compare a table with its source: its rows, and how many changes or versions there are."""
    rows = rows_of(sink, table.schema)
    assert {key: {name: row[name] for name in table.columns} for key, row in rows.items()} == table.rows
    contents = place.contents(table.name)
    if place.mode is Mode.APPEND:
        assert len(contents) == table.told
    if place.mode is Mode.HISTORY:
        kept = [(one["valid_from_offset"], one["valid_to_offset"]) for one in contents]
        assert sorted(kept, key=str) == sorted(
            [(one["valid_from_offset"], one["valid_to_offset"]) for one in table.versions], key=str
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", list(Mode))
def test_tables_of_a_catalog_follow_their_source_whatever_is_given_again(mode, tmp_path):
    place = CatalogPlace(tmp_path, mode, None)
    source = ChangingSource()
    orders = source.table()
    for number in range(6):
        orders.insert(number, f"customer {number}", number / 2)
    orders.update(2, total=1.0)
    orders.update(2, total=2.0)
    source.commit()
    orders.delete(3)
    orders.update(4, id=40)
    first = source.batch()
    sink = place.sink()
    sink.open(source.schemas)
    assert sink.applied() is None
    sink.apply(first)
    check(place, sink, orders)

    orders.alter(add=[("colour", pa.string())])
    for row in orders.rows.values():
        row["colour"] = None
    orders.insert(3, "again", 3.0, "red")
    orders.update(40, colour="blue")
    source.commit()
    orders.update(1, customer=None)
    orders.delete(0)
    second = source.batch()
    losing = Faulty(place.session, f"INSERT INTO `lake`.`{place.namespace}`.`{BATCHES}`", runs=False)
    broken = place.sink()
    broken.connect_by(lambda: losing)
    broken.open(source.schemas)
    with pytest.raises(SinkUnavailableError):
        broken.apply(second)  # the table has the batch, which nobody knows
    sink = place.sink()
    sink.open(source.schemas)
    assert sink.applied() == 0
    sink.apply(second)
    sink.apply(second)
    check(place, sink, orders)

    orders.update(5, total=50.0)
    third = source.batch()
    late = third.tables[0].changes
    if mode is not Mode.APPEND:
        late = pa.concat_tables([late, second.tables[0].changes, first.tables[0].changes], promote_options="default")
    sink.apply(Batch("copy", 2, third.offsets, [TableChanges(orders.schema, late)]))
    check(place, sink, orders)
    assert sink.progress().offsets == {"shop": source.offset}
    sink.close()


@pytest.mark.timeout(300)
def test_changes_of_a_batch_that_broke_off_come_once_in_whatever_batches_they_come_again(tmp_path):
    place = CatalogPlace(tmp_path, Mode.APPEND, None)
    source = ChangingSource()
    orders = source.table()
    for number in range(6):
        orders.insert(number, "Ann", 1.0)
    whole = source.batch()
    broken = place.sink()
    losing = Faulty(place.session, f"INSERT INTO `lake`.`{place.namespace}`.`{BATCHES}`", runs=False)
    broken.connect_by(lambda: losing)
    broken.open(source.schemas)
    with pytest.raises(SinkUnavailableError):
        broken.apply(whole)
    sink = place.sink()
    sink.open(source.schemas)
    changes = whole.tables[0].changes
    for number, (begin, end) in enumerate(itertools.pairwise((0, 2, 4, 6))):
        some = TableChanges(orders.schema, changes.slice(begin, end - begin))
        sink.apply(Batch("copy", number, {"shop": some.changes["_offset"][-1].as_py()}, [some]))
    check(place, sink, orders)
    sink.close()


@pytest.mark.timeout(300)
def test_a_table_that_is_gone_is_missed_and_may_be_forgotten(tmp_path):
    place = CatalogPlace(tmp_path, Mode.CURRENT, None)
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    place.session.run(f"DROP TABLE lake.{place.namespace}.orders")
    with pytest.raises(SinkRefusedError, match="gone from the sink"):
        place.sink().open(source.schemas)
    sink = place.sink()
    sink.forget(source.schemas)
    sink.open(source.schemas)
    assert (sink.applied(), sink.progress().highest) == (0, {})


@pytest.mark.timeout(300)
def test_a_format_that_cannot_be_merged_into_is_named_as_the_reason(tmp_path):
    session = iceberg_session()
    source = ChangingSource()
    orders = source.table(f"plain_{next(NUMBERS)}")
    orders.insert(1, "Ann", 1.0)
    sink = CatalogSink(("spark_catalog", "default", "{table}"), "parquet", Mode.CURRENT, "copy")
    sink.connect_by(lambda: session)
    sink.open(source.schemas)
    with pytest.raises(SinkRefusedError, match="needs a format that can, such as delta or iceberg") as refused:
        sink.apply(source.batch())
    assert refused.value.table == orders.name


@pytest.mark.timeout(300)
def test_a_catalog_that_spark_does_not_know_is_named_as_the_reason():
    session = iceberg_session()
    sink = CatalogSink(("nowhere", "shop", "{table}"), "", Mode.CURRENT, "copy")
    sink.connect_by(lambda: session)
    with pytest.raises(SinkRefusedError, match=r"configure the catalog with --conf spark\.sql\.catalog"):
        sink.open([])
