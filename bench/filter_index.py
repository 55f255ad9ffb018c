"""The filter index: what a change costs as the subscriptions grow in number that it does not concern."""

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable

import msgspec

from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.subscription.filter import Changes, RowFilter
from tailrace.subscription.index import FilterIndex
from tailrace.subscription.key_filter import ExactKey

FEW, MANY = 100, 100_000
EQUALITIES = 5_000
SAME = 1_000
CHANGES = 4096
ROUNDS = 15
COST_RATIO_MAX = 2.0
BYTES_MAX = 2048

SCHEMA = TableSchema(
    TableName("app", "orders"),
    1,
    (Column("id", Kind.I64, "INTEGER"), Column("customer", Kind.I64, "INTEGER"), Column("note", Kind.STR, "TEXT")),
    ("id",),
)
SCHEMAS = {SchemaId(1): SCHEMA}
OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)

Make = Callable[[int], RowFilter]


def exact(number: int) -> RowFilter:
    return RowFilter([SCHEMA.table], OPS, key=ExactKey([{"t": "i64", "v": number}], SCHEMA))


def equal(number: int) -> RowFilter:
    return RowFilter([SCHEMA.table], OPS, predicates=[compile_where(f"customer = {number}", SCHEMA)])


def same(number: int) -> RowFilter:
    return RowFilter([SCHEMA.table], OPS, predicates=[compile_where("customer > 1000000", SCHEMA)])


def index_of(make: Make, count: int) -> FilterIndex[int]:
    index: FilterIndex[int] = FilterIndex()
    for number in range(count):
        index.add(number, make(number))
    return index


def batch(keys: int) -> Changes:
    """Return changes of which one in sixteen concerns one of the first keys: as many matches in all runs."""
    source = random.Random(3)
    numbers = [source.randrange(keys) if place % 16 == 0 else 10**9 + place for place in range(CHANGES)]
    images = [msgspec.json.encode({"id": number, "customer": number, "note": "n" * 100}) for number in numbers]
    ops = [source.choice([Op.INSERT, Op.UPDATE]) for _ in numbers]
    befores = [None if op is Op.INSERT else image for op, image in zip(ops, images, strict=True)]
    return Changes(ops, [SchemaId(1)] * CHANGES, [b"[%d]" % number for number in numbers], befores, images)


def nanoseconds(index: FilterIndex[int], changes: Changes) -> float:
    begin = time.perf_counter()
    index.match(changes, SCHEMAS)
    return (time.perf_counter() - begin) / CHANGES * 1e9


def compare(name: str, make: Make, few: int, many: int) -> bool:
    """Print the cost of a change with many subscriptions over that with few, measured in turn."""
    small, large, changes = index_of(make, few), index_of(make, many), batch(few)
    gc.collect()
    gc.freeze()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        times[0].append(nanoseconds(small, changes))
        times[1].append(nanoseconds(large, changes))
    gc.unfreeze()
    ratio = min(times[1]) / min(times[0])
    good = ratio <= COST_RATIO_MAX
    print(
        f"filter index, {many} {name} over {few}: {ratio:.2f} times the cost (bar {COST_RATIO_MAX:.2f})"
        f" {'PASS' if good else 'MISS'}  {min(times[0]):.0f} ns and {min(times[1]):.0f} ns a change",
        flush=True,
    )
    return good


def memory(name: str, make: Make, count: int) -> bool:
    index_of(make, 10)
    gc.collect()
    tracemalloc.start()
    index = index_of(make, count)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] / len(index)
    tracemalloc.stop()
    good = size <= BYTES_MAX
    verdict = "PASS" if good else "MISS"
    print(f"filter index, memory of {name}: {size:.0f} bytes a subscription (bar {BYTES_MAX}) {verdict}", flush=True)
    return good


def main() -> int:
    results = [
        compare("exact keys", exact, FEW, MANY),
        compare("equalities", equal, FEW, EQUALITIES),
        compare("equal filters", same, 1, SAME),
        memory("exact keys", exact, MANY),
        memory("equal filters", same, SAME),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
