"""What "not modified" costs beside running the query: a join of two tables of 100 000 rows.

Both sides at the level of the functions that the server calls: the state of the query is there, the client's ETag comes
in. The 304 computes the current ETag and compares; it is timed a second time with a chunk of 64 changes of the query's
tables to scan first, none of them relevant.
"""

import sys
import time

import apsw
import pyarrow as pa

from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.image import encode_image
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.query import QueryJudge, analyse, bind, parse
from tailrace.subscription.query import begin, not_modified, scan, state_tag

ROWS = 100_000
ROUNDS = 5
CHANGES = 64
BAR = 5.0
SQL = (
    "SELECT c.region, count(*), sum(o.total) FROM customers c JOIN orders o ON o.customer_id = c.id "
    "WHERE o.status = ? GROUP BY c.region ORDER BY c.region"
)
POINT = "SELECT o.id, o.total FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = ? ORDER BY o.id"


def main() -> int:
    connection = database()
    catalog = QueryCatalog(connection)
    worst = 0
    for name, sql, arguments in (("join", SQL, ("open",)), ("point", POINT, (77,))):
        worst |= measure(connection, catalog, name, sql, arguments, bar=BAR if name == "join" else None)
    return worst


def measure(connection, catalog, name, sql, arguments, *, bar):
    statement = parse(sql)
    bound = bind(arguments, statement.arguments)
    dependencies = analyse(statement, catalog)
    judge = QueryJudge(dependencies, bound)
    state = begin(dependencies, "log", Offset(1000))
    current = state_tag(statement.query_id, bound, state)
    chunk = foreign_changes()

    def answer():
        assert not_modified(current, state_tag(statement.query_id, bound, state))

    def answer_after_scan():
        moved = scan(state, judge, chunk)
        assert not moved.relevant
        assert not_modified(current, state_tag(statement.query_id, bound, moved.state))

    def run():
        connection.execute(statement.text, bound).fetchall()

    times = {"run": [], "answer": [], "scanned": []}
    for _ in range(ROUNDS):
        times["run"].append(per_call(run, 3))
        times["answer"].append(per_call(answer, 300))
        times["scanned"].append(per_call(answer_after_scan, 30))
    best = {what: min(rounds) for what, rounds in times.items()}
    print(
        f"{name}: run {best['run'] * 1e6:.0f} µs, 304 {best['answer'] * 1e6:.1f} µs, "
        f"304 after scanning {CHANGES} changes {best['scanned'] * 1e6:.0f} µs"
    )
    if bar is None:
        return 0
    ratios = [("query_304_over_run", best["run"] / best["answer"])]
    ratios.append(("query_304_after_scan_over_run", best["run"] / best["scanned"]))
    for figure, ratio in ratios:
        print(f"{figure} {ratio:.1f} {bar} {'PASS' if ratio >= bar else 'MISS'}")
    return int(any(ratio < bar for _, ratio in ratios))


def per_call(function, calls):
    began = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - began) / calls


def database():
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, region TEXT)")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, status TEXT, total REAL)")
    connection.execute("CREATE INDEX orders_customer ON orders (customer_id)")
    statuses = ("open", "paid", "sent")
    with connection:
        connection.executemany("INSERT INTO customers VALUES (?, ?)", ((n, f"r{n % 20}") for n in range(ROWS)))
        connection.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, ?)",
            ((n, n * 7 % ROWS, statuses[n % 3], n % 1000 / 4) for n in range(ROWS)),
        )
    return connection


def foreign_changes():
    columns = (
        Column("id", Kind.I64),
        Column("customer_id", Kind.I64),
        Column("status", Kind.STR),
        Column("total", Kind.F64),
    )
    schema = TableSchema(TableName("app", "orders"), 1, columns, ("id",))
    rows = {name: [] for name in ENVELOPE.names}
    for number in range(CHANGES):
        row = {"id": number, "customer_id": 5000 + number, "status": "lost", "total": 1.5}
        values = (1001 + number, 1, 0, 0, Op.INSERT, 1, b"[1]", None, encode_image(row, schema), None, 1, False)
        for name, value in zip(ENVELOPE.names, values, strict=True):
            rows[name].append(value)
    return Chunk(pa.RecordBatch.from_pydict(rows, schema=ENVELOPE), {1: schema})


if __name__ == "__main__":
    sys.exit(main())
