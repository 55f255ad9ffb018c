"""Changes into a Delta table in mode `current`, against the usual recipe in the same process.

The usual recipe gets each change as JSON of the kind that Debezium writes, parses it, keeps the last change of each key
with a window function, and merges. Ours gets typed Arrow columns, folds, and merges. Both merge the same batches with
the same library into tables of their own, which are compared in the end.
"""

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.sink.base import Batch, Mode, TableChanges
from tailrace.pipeline.sinks import sink_of

CHANGES = 1_500_000
KEYS = 400_000
BATCHES = 3
ROUNDS = 2
RATIO_MIN = 2.0

SCHEMA = TableSchema(
    TableName("shop", "orders"),
    1,
    (
        Column("id", Kind.I64),
        Column("customer", Kind.STR),
        Column("status", Kind.STR),
        Column("total", Kind.F64),
        Column("placed", Kind.DATETIME),
    ),
    ("id",),
)
STATUSES = pa.array(["new", "paid", "sent", "returned"])
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)


def changes(first, count, seed):
    """Return changes: updates of known keys, and every tenth key deleted and inserted again later."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, KEYS, count)
    offsets = np.arange(first, first + count)
    kinds = np.where(random.random(count) < 0.05, 1, 0)
    return pa.table(
        {
            "_change_type": pa.array(["update_postimage", "delete"]).take(pa.array(kinds)),
            "_offset": offsets,
            "_commit_version": offsets // 10,
            "_commit_timestamp": pa.array(BEGIN + offsets * 100).cast(pa.timestamp("us", tz="UTC")),
            "id": keys,
            "customer": pc.binary_join_element_wise("customer-", pa.array(keys % 10_000).cast(pa.string()), ""),
            "status": STATUSES.take(pa.array(random.integers(0, 4, count))),
            "total": np.round(random.random(count) * 1000, 2),
            "placed": pa.array(BEGIN + keys * 1_000_000).cast(pa.timestamp("us")),
        }
    )


def as_messages(table):
    """Return the same changes as messages: an envelope of JSON with the row after, or the row before a deletion."""
    query = """
        SELECT to_json({'op': CASE _change_type WHEN 'delete' THEN 'd' ELSE 'u' END,
            'before': CASE WHEN _change_type = 'delete' THEN row END,
            'after': CASE WHEN _change_type <> 'delete' THEN row END,
            'source': {'connector': 'sqlite', 'db': 'shop', 'table': 'orders', 'lsn': _offset},
            'ts_ms': epoch_ms(_commit_timestamp)})::VARCHAR AS message
        FROM (SELECT *, {'id': id, 'customer': customer, 'status': status, 'total': total,
            'placed': epoch_us(placed)} AS row FROM given)
    """
    return duckdb.connect().from_arrow(table).query("given", query).to_arrow_table()


RECIPE = """
    WITH parsed AS (
        SELECT json_transform(message,
            '{"op": "VARCHAR", "before": ROW, "after": ROW, "source": {"lsn": "BIGINT"}}') AS m
        FROM given
    ), rows AS (
        SELECT unnest(coalesce(m.after, m.before)), m.op = 'd' AS deleted, m.source.lsn AS lsn FROM parsed
    )
    SELECT id, customer, status, total, make_timestamp(placed) AS placed, deleted
    FROM rows QUALIFY row_number() OVER (PARTITION BY id ORDER BY lsn DESC) = 1
""".replace(
    "ROW", '{"id": "BIGINT", "customer": "VARCHAR", "status": "VARCHAR", "total": "DOUBLE", "placed": "BIGINT"}'
)

COLUMNS = ("id", "customer", "status", "total", "placed")


def recipe(path, messages):
    """Merge one batch of messages as people usually do."""
    rows = duckdb.connect().from_arrow(messages).query("given", RECIPE).to_arrow_table()
    if not DeltaTable.is_deltatable(path):
        write_deltalake(path, rows.filter(pc.invert(rows["deleted"])).drop_columns(["deleted"]))
        return
    merge = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    values = {name: f"s.{name}" for name in COLUMNS}
    merge.when_matched_delete("s.deleted").when_matched_update(values).when_not_matched_insert(
        values, "NOT s.deleted"
    ).execute()


def ours(sink, number, table):
    """Apply one batch to the sink."""
    offset = table["_offset"][-1].as_py()
    sink.apply(Batch("bench", number, {"shop": offset}, [TableChanges(SCHEMA, table)]))


def contents(path):
    table = DeltaTable(path).to_pyarrow_table().select(COLUMNS).sort_by("id")
    return table.num_rows, pc.sum(table["total"]).as_py(), table["id"].combine_chunks()


def main() -> int:
    size = CHANGES // BATCHES
    batches = [changes(1 + number * size, size, number) for number in range(BATCHES)]
    messages = [as_messages(table) for table in batches]
    best = {"ours": float("inf"), "recipe": float("inf")}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            sink = sink_of(f"delta://{directory}/ours", Mode.CURRENT, pipeline="bench")
            sink.open([SCHEMA])
            spent = {"ours": 0.0, "recipe": 0.0}
            for number in range(BATCHES):
                begin = time.perf_counter()
                ours(sink, number, batches[number])
                spent["ours"] += time.perf_counter() - begin
                begin = time.perf_counter()
                recipe(str(directory / "recipe"), messages[number])
                spent["recipe"] += time.perf_counter() - begin
            best = {side: min(best[side], spent[side]) for side in best}
            assert contents(directory / "ours") == contents(directory / "recipe"), "the tables differ"
    ratio = best["recipe"] / best["ours"]
    rates = {side: CHANGES / seconds / 1e3 for side, seconds in best.items()}
    detail = f"ours {rates['ours']:.0f} k changes/s, usual recipe {rates['recipe']:.0f} k changes/s"
    good = ratio >= RATIO_MIN
    print(f"Delta current / usual recipe: {ratio:.2f} (bar {RATIO_MIN:.2f}) {'PASS' if good else 'MISS'}  {detail}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
