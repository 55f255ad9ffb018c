"""How many invalidations of prepared queries are needless: ours against one for every write to a table that is read.

A shop with users, orders, items and a view; twelve queries as pages and dashboards have them; random small commits.
After each commit every query is run: an invalidation is needless if the result did not change; to miss one is a fault.
"""

import sys
import time
from collections import Counter
from random import Random

import apsw

from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.query import QueryJudge, analyse, bind, parse
from tailrace.subscription.query import result_etag
from tailrace.subscription.query.precise import VerifiedResult, is_invalidated, verify

SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, org INTEGER, name TEXT, email TEXT, last_seen INTEGER, active INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER, status TEXT, total REAL, created INTEGER, note TEXT);
CREATE TABLE items (id INTEGER PRIMARY KEY, order_id INTEGER, sku TEXT, count INTEGER, price REAL);
CREATE TABLE products (sku TEXT PRIMARY KEY, title TEXT, stock INTEGER, price REAL);
CREATE INDEX users_org ON users (org);
CREATE INDEX orders_user ON orders (user_id);
CREATE INDEX items_order ON items (order_id);
CREATE VIEW open_orders AS SELECT id, user_id, total, created FROM orders WHERE status = 'open';
"""

QUERIES = [
    ("SELECT name, email FROM users WHERE id = ?", (7,)),
    ("SELECT id, name FROM users WHERE org = ? AND active = 1 ORDER BY name", (3,)),
    ("SELECT o.id, o.total FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id = ? ORDER BY o.id", (7,)),
    ("SELECT u.name, o.id FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.id = ?", (9,)),
    ("SELECT i.sku, i.count, p.title FROM items i JOIN products p ON p.sku = i.sku WHERE i.order_id = ?", (12,)),
    ("SELECT count(*) FROM open_orders", ()),
    ("SELECT id, total FROM open_orders WHERE user_id = ?", (4,)),
    ("SELECT status, count(*), sum(total) FROM orders GROUP BY status", ()),
    ("SELECT sku, stock FROM products WHERE stock < ? ORDER BY stock", (3,)),
    (
        "SELECT name FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders WHERE user_id = u.id AND status = 'open')",
        (),
    ),
    ("WITH big AS (SELECT user_id FROM orders WHERE total > 900) SELECT name FROM users WHERE id IN big", ()),
    (
        "SELECT id FROM orders WHERE created BETWEEN ? AND ? UNION ALL SELECT 0 FROM orders WHERE note = 'urgent'",
        (10, 20),
    ),
]

WRITES = [
    (30, "UPDATE users SET last_seen = {n} WHERE id = {user}"),
    (15, "UPDATE products SET stock = {n} % 20 WHERE sku = 's{sku}'"),
    (15, "INSERT INTO orders (user_id, status, total, created) VALUES ({user}, 'open', {n} % 1000, {n})"),
    (20, "INSERT INTO items (order_id, sku, count, price) VALUES ({order}, 's{sku}', {n} % 5, {n} % 90)"),
    (12, "UPDATE orders SET status = '{status}' WHERE id = {order}"),
    (6, "UPDATE orders SET note = '{status}' WHERE id = {order}"),
    (4, "UPDATE users SET active = {n} % 2 WHERE id = {user}"),
    (3, "DELETE FROM items WHERE id = {n} % 400"),
    (3, "INSERT INTO users (org, name, active) VALUES ({n} % 9, 'user {n}', 1)"),
    (2, "UPDATE users SET name = 'renamed {n}' WHERE id = {user}"),
]

COMMITS = 1500
LIMIT_S = 40.0
BAR = 0.15
"""Needless invalidations of ours for one of the table-level way."""


def main() -> int:
    random = Random(7)
    connection, changes = shop(random)
    catalog = QueryCatalog(connection)
    statements = [(parse(sql), bind(arguments, len(arguments))) for sql, arguments in QUERIES]
    judges = [QueryJudge(analyse(statement, catalog), arguments) for statement, arguments in statements]
    results = [run(connection, *statement) for statement in statements]
    known = [VerifiedResult(Offset(0), 0, etag_of(*pair)) for pair in zip(statements, results, strict=True)]
    counts = Counter()
    deadline = time.perf_counter() + LIMIT_S
    spent = 0.0
    while counts["commits"] < COMMITS and time.perf_counter() < deadline:
        changes.clear()
        connection.execute(write(random))
        counts["commits"] += 1
        for number, (statement, judge) in enumerate(zip(statements, judges, strict=True)):
            began = time.perf_counter()
            ours = sum(judge.relevant(*change) for change in changes) > 0
            spent += time.perf_counter() - began
            if ours:  # a precise subscription runs the query and compares
                began = time.perf_counter()
                etag = etag_of((statement[0], statement[1]), run(connection, *statement))
                known[number] = verify(known[number], Offset(counts["commits"]), 0, etag, {etag})
                counts["checked"] += 1
                counts["check_us"] += round((time.perf_counter() - began) * 1e6)
                counts["told"] += is_invalidated(known[number], Offset(counts["commits"]))
            table = any(judge.concerns(change[0]) for change in changes)
            result = run(connection, *statement)
            changed = result != results[number]
            results[number] = result
            counts["judged"] += len(changes)
            counts["changed"] += changed
            counts["table"] += table
            counts["ours"] += ours
            counts["missed"] += changed and not ours
    return report(counts, spent)


def etag_of(statement, rows):
    parsed, arguments = statement
    rows = list(rows.elements()) if isinstance(rows, Counter) else rows
    return result_etag(parsed.query_id, arguments, (), rows, ordered=parsed.ordered)


def report(counts, spent):
    needless_table = counts["table"] - counts["changed"]
    needless_ours = counts["ours"] - counts["changed"]
    ratio = needless_ours / needless_table
    print(
        f"commits {counts['commits']}, queries {len(QUERIES)}: {counts['changed']} results changed; "
        f"invalidations: table-level {counts['table']} ({needless_table / counts['table']:.0%} needless), "
        f"ours {counts['ours']} ({needless_ours / counts['ours']:.0%} needless); "
        f"{spent / counts['judged'] * 1e6:.2f} µs to judge a change"
    )
    print(
        f"precise: {counts['told']} told of {counts['checked']} checked; a check (a run and its hash) takes "
        f"{counts['check_us'] / max(1, counts['checked']):.0f} µs, "
        f"{counts['checked'] / max(1, counts['told']):.2f} checks for one event"
    )
    needless = counts["told"] - counts["changed"]
    print(f"query_needless_precise {needless} 0 {'MISS' if needless else 'PASS'}")
    good = ratio <= BAR and not counts["missed"] and not needless
    print(f"query_missed {counts['missed']} 0 {'MISS' if counts['missed'] else 'PASS'}")
    print(f"query_needless_over_table_level {ratio:.3f} {BAR} {'PASS' if ratio <= BAR else 'MISS'}")
    return 0 if good else 1


def shop(random):
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA)
    with connection:
        for n in range(60):
            connection.execute(
                "INSERT INTO users VALUES (?, ?, ?, ?, 0, 1)", (n + 1, n % 9, f"user {n}", f"{n}@example.com")
            )
            connection.execute("INSERT INTO products VALUES (?, ?, ?, ?)", (f"s{n}", f"product {n}", n % 20, n * 1.5))
        for n in range(200):
            status = random.choice(["open", "paid", "sent"])
            row = (random.randint(1, 60), status, float(random.randint(1, 1000)), n, None)
            connection.execute("INSERT INTO orders (user_id, status, total, created, note) VALUES (?, ?, ?, ?, ?)", row)
            row = (random.randint(1, 200), f"s{random.randrange(60)}", 1, 2.5)
            connection.execute("INSERT INTO items (order_id, sku, count, price) VALUES (?, ?, ?, ?)", row)
    names = {
        table: [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        for table in ("users", "orders", "items", "products")
    }
    changes = []

    def hook(update):
        columns = names[update.table_name]
        before = None if update.old is None else dict(zip(columns, update.old, strict=True))
        after = None if update.new is None else dict(zip(columns, update.new, strict=True))
        changes.append((update.table_name, Op[update.op], before, after))

    connection.preupdate_hook(hook)
    return connection, changes


def write(random):
    weights, texts = zip(*WRITES, strict=True)
    (text,) = random.choices(texts, weights)
    return text.format(
        n=random.randrange(100_000),
        user=random.randint(1, 60),
        order=random.randint(1, 260),
        sku=random.randrange(60),
        status=random.choice(["open", "paid", "sent", "urgent"]),
    )


def run(connection, statement, arguments):
    rows = [repr(row) for row in connection.execute(statement.text, arguments)]
    return rows if "ORDER BY" in statement.text else Counter(rows)


if __name__ == "__main__":
    sys.exit(main())
