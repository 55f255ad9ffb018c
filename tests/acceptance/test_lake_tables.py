"""The page about the tables of a lake does what it says: its commands and programs are run."""

import sqlite3

import pytest

from pages import Page
from serving import Server, wait_until

pytest.importorskip("pyspark")

ROWS = 300


@pytest.fixture
def database(tmp_path):
    opened = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, qty INTEGER)")
    opened.executemany("INSERT INTO orders VALUES (?, 1)", [(number,) for number in range(1, ROWS + 1)])
    yield opened
    opened.close()


@pytest.fixture
def page(database, tmp_path):
    server = Server(tmp_path / "data", "--source", f"shop=sqlite:///{tmp_path / 'shop.db'}").wait_ready()
    wait_until(lambda: server.subscribe("orders", "shop"), "the table known")
    environment = {"TAILRACE_SERVER": server.url, "TAILRACE_DATA_DIR": str(tmp_path / "work")}
    yield Page("how-to/lake-tables.md", tmp_path, environment)
    server.stop()


@pytest.mark.timeout(600)
def test_the_page_about_the_tables_of_a_lake_does_what_it_says(page, database):
    for command in page.commands(0):
        page.run(command)
    database.execute("BEGIN")
    database.execute("UPDATE orders SET qty = 10 WHERE id = 1")
    database.execute("DELETE FROM orders WHERE id = 2")
    database.execute("INSERT INTO orders VALUES (1000, 5)")
    database.execute("COMMIT")
    for command in page.commands(1):
        page.run(command)
    by_duckdb, by_polars, travelled, fed, past = map(page.run_program, page.blocks("python"))
    assert by_duckdb == by_polars == f"[({ROWS}, {ROWS - 2 + 10 + 5})]\n"
    states = [tuple(map(int, line.split())) for line in travelled.splitlines()]
    assert [rows for _, _, rows in states][-1] == ROWS
    offsets = [offset for _, offset, _ in states]
    assert offsets == sorted(offsets)
    assert offsets[-1] - offsets[0] == 3
    assert fed.splitlines() == ["delete 2", "insert 1000", "update_postimage 1", "update_preimage 1"]
    assert past == f"[(1, 1, False), (1, 10, True)]\n[({ROWS},)]\n"
