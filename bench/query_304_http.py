"""What a 304 saves over HTTP: a prepared join of two tables of 100 000 rows, through `tailrace serve`.

The client asks over one connection, with its ETag and without, in turns; and the query is run on the database directly,
without Tailrace, in the same rounds. The database does not change meanwhile: the server must find that out each time.
"""

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROWS = 100_000
ROUNDS = 12
NOT_MODIFIED_CALLS = 20
PATIENCE_S = 20.0
BAR = 5.0
SQL = (
    "SELECT c.region, count(*), sum(o.total) FROM customers c JOIN orders o ON o.customer_id = c.id "
    "WHERE o.status = ? GROUP BY c.region ORDER BY c.region"
)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "app.db"
        database = fill(path)
        with served(Path(directory), path) as url, httpx.Client(base_url=url, timeout=30) as client:
            best = measure(client, prepare(client), database)
        database.close()
    print(", ".join(f"{what} {seconds * 1e3:.2f} ms" for what, seconds in best.items()))
    worst = 0
    for figure, peer in (("query_304_over_200_http", "200"), ("query_304_http_over_run", "run")):
        ratio = best[peer] / best["304"]
        worst |= ratio < BAR
        print(f"{figure} {ratio:.1f} {BAR} {'PASS' if ratio >= BAR else 'MISS'}")
    return int(worst)


def measure(client, path, database):
    params = {"args": '["open"]'}
    first = client.get(path, params=params)
    assert len(first.json()["data"]["rows"]) == 20
    headers = {"If-None-Match": first.headers["etag"]}
    times = {"run": [], "200": [], "304": []}
    for _ in range(ROUNDS):
        began = time.perf_counter()
        database.execute(SQL, ("open",)).fetchall()
        times["run"].append(time.perf_counter() - began)
        began = time.perf_counter()
        assert client.get(path, params=params).status_code == 200
        times["200"].append(time.perf_counter() - began)
        for _ in range(NOT_MODIFIED_CALLS):
            began = time.perf_counter()
            assert client.get(path, params=params, headers=headers).status_code == 304
            times["304"].append(time.perf_counter() - began)
    return {what: min(rounds) for what, rounds in times.items()}


def prepare(client):
    request = {"skeinql": "1.0", "id": 1, "method": "query.prepare", "params": {"query": SQL}}
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = client.post("/api/v1/rpc", json=request).json()
        if answer["ok"]:
            return f"/api/v1/q/{answer['result']['query_id']}"
        assert time.monotonic() < end, answer
        time.sleep(0.05)


def fill(path):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, region TEXT)")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, status TEXT, total REAL)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO customers VALUES (?, ?)", ((n, f"r{n % 20}") for n in range(ROWS)))
    statuses = ("open", "paid", "sent")
    orders = ((n, n * 7 % ROWS, statuses[n % 3], n % 1000 / 4) for n in range(ROWS))
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
    database.execute("COMMIT")
    return database


@contextlib.contextmanager
def served(directory: Path, database: Path):
    command = [sys.executable, "-m", "tailrace", "serve", "--json", "--data-dir", str(directory / "data")]
    command += ["--source", f"app=sqlite:///{database}", "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout
            yield json.loads(process.stdout.readline())["http"]
        finally:
            process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
