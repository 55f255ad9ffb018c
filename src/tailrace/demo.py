"""The demo's shop: a small SQLite database, a workload on it, and the check that the changes replay to its tables."""

import heapq
import random
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "InOrder", "Replica", "Shop"]

TABLES = ("customers", "products", "orders", "order_lines")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT UNIQUE, city TEXT);
CREATE TABLE IF NOT EXISTS products (
    sku TEXT PRIMARY KEY, title TEXT NOT NULL, price REAL NOT NULL, stock INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
    status TEXT NOT NULL DEFAULT 'new', total REAL NOT NULL DEFAULT 0, placed_at TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE, sku TEXT NOT NULL REFERENCES products (sku),
    quantity INTEGER NOT NULL, PRIMARY KEY (order_id, sku)) WITHOUT ROWID;
"""

_FIRST_NAMES = ("Ada", "Bela", "Chidi", "Dara", "Emil", "Fatma", "Goro", "Hana", "Inés", "Jonas")
_CITIES = ("Accra", "Bergen", "Cusco", "Dakar", "Espoo", "Fukuoka", "Graz", "Hanoi")
_GOODS = ("lamp", "chair", "desk", "shelf", "rug", "mug", "clock", "vase")
_LIFE = {"new": "paid", "paid": "shipped", "shipped": "delivered"}


class Shop:
    """A shop that does business: each `trade` is one transaction. Blocking; for one caller at a time."""

    def __init__(self, path: Path, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 (a workload, not a secret)
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA foreign_keys = ON")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def stock_up(self) -> None:
        """Put the products on the shelves, in one transaction."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO products VALUES (?, ?, ?, ?)",
                [(f"SKU-{number}", title, 5.0 + 3 * number, 100) for number, title in enumerate(_GOODS)],
            )

    def trade(self) -> None:
        """Do one piece of business, in one transaction."""
        deal = self._random.choices(
            (self._welcome, self._order, self._advance, self._restock, self._cancel, self._leave), (20, 35, 30, 8, 5, 2)
        )[0]
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            deal()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        cursor = self._database.execute(f"SELECT * FROM {table}")  # noqa: S608 (one of TABLES)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _pick(self, query: str) -> Any:
        rows = self._database.execute(query).fetchall()
        return self._random.choice(rows)[0] if rows else None

    def _welcome(self) -> None:
        name = self._random.choice(_FIRST_NAMES)
        number = self._random.randrange(10**6)
        self._database.execute(
            "INSERT INTO customers (name, email, city) VALUES (?, ?, ?) "
            "ON CONFLICT (email) DO UPDATE SET city = excluded.city",
            (name, f"{name.lower()}.{number}@example.com", self._random.choice(_CITIES)),
        )

    def _order(self) -> None:
        customer = self._pick("SELECT id FROM customers")
        if customer is None:
            self._welcome()
            customer = self._pick("SELECT id FROM customers")
        order = self._database.execute("INSERT INTO orders (customer_id) VALUES (?)", (customer,)).lastrowid
        for number in self._random.sample(range(len(_GOODS)), self._random.randint(1, 3)):
            sku, quantity = f"SKU-{number}", self._random.randint(1, 4)
            self._database.execute("INSERT INTO order_lines VALUES (?, ?, ?)", (order, sku, quantity))
            self._database.execute("UPDATE products SET stock = stock - ? WHERE sku = ?", (quantity, sku))
        self._database.execute(
            "UPDATE orders SET total = (SELECT sum(quantity * price) FROM order_lines JOIN products USING (sku) "
            "WHERE order_id = orders.id) WHERE id = ?",
            (order,),
        )

    def _advance(self) -> None:
        order = self._pick("SELECT id FROM orders WHERE status <> 'delivered'")
        if order is not None:
            (status,) = self._database.execute("SELECT status FROM orders WHERE id = ?", (order,)).fetchone()
            self._database.execute("UPDATE orders SET status = ? WHERE id = ?", (_LIFE[status], order))

    def _restock(self) -> None:
        sku = f"SKU-{self._random.randrange(len(_GOODS))}"
        self._database.execute("UPDATE products SET stock = stock + 50 WHERE sku = ?", (sku,))

    def _cancel(self) -> None:
        order = self._pick("SELECT id FROM orders WHERE status = 'new'")
        if order is not None:
            self._database.execute("DELETE FROM orders WHERE id = ?", (order,))

    def _leave(self) -> None:
        customer = self._pick("SELECT id FROM customers")
        if customer is not None:
            self._database.execute("DELETE FROM customers WHERE id = ?", (customer,))


class InOrder:
    """Puts the events of several streams of one log into the order of their offsets. Pure.

    An event whose predecessor has not come waits for it, at most `hold_s`.
    """

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._waiting: list[tuple[int, float, Mapping[str, Any]]] = []
        self._last = 0

    def add(self, offset: int, event: Mapping[str, Any], now_s: float) -> None:
        """Take an event that comes now. No two have the same offset."""
        heapq.heappush(self._waiting, (offset, now_s, event))

    def ready(self, now_s: float) -> Iterator[Mapping[str, Any]]:
        """Yield the events whose turn it is."""
        while self._waiting:
            offset, came_s, event = self._waiting[0]
            if offset > self._last + 1 and now_s - came_s < self._hold_s:
                return
            heapq.heappop(self._waiting)
            self._last = max(self._last, offset)
            yield event


class Replica:
    """Tables rebuilt from events alone. Pure."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in TABLES}
        self.applied = 0

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply one event, in its plain JSON form with both images.

        Raises:
            AssertionError: Its before image is not what the earlier events led to.
        """
        rows, key = self._tables[event["table"]], str(event["pk"])
        if rows.get(key) != event.get("before"):
            raise AssertionError(f"before image of {event['table']} {key} does not follow from the earlier changes")
        if event.get("after") is None:
            del rows[key]
        else:
            rows[key] = event["after"]
        self.applied += 1

    def equals(self, table: str, rows: list[dict[str, Any]]) -> bool:
        """Tell whether a table holds exactly these rows."""
        return _sorted(self._tables[table].values()) == _sorted(rows)


def _sorted(rows: Any) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
