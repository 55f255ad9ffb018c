"""From a commit in PostgreSQL to a subscriber over SSE, through `tailrace serve`, and to Debezium's handler.

The writer, the server, the reader and the database are processes of their own. The time runs from the call of COMMIT to
the moment when the reader has the event in hand; ours is on disk by then.

    make bench BENCH=postgres_latency            # DEBEZIUM_PYTHON=…/bin/python for the peer in the same run
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench.latency import over_sse, percentile, process, processor_s, read

RATE = 1_000
SECONDS = int(os.environ.get("SECONDS", "6"))
WARM_UP_SECONDS = 1
TOTAL = RATE * (SECONDS + WARM_UP_SECONDS)
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text, amount double precision, note text)"
INSERT = "INSERT INTO t VALUES (%s, 'a name', 12.5, 'a note of some length that nobody reads')"
PATIENCE_S = 60.0


def write(url, times, first):
    """Commit one row at a time, at the rate; leave the times at which each commit was called."""
    import psycopg

    called = []
    with closing(psycopg.connect(url)) as connection:
        begun = time.monotonic()
        for number in range(TOTAL):
            left = begun + number / RATE - time.monotonic()
            if left > 0:
                time.sleep(left)
            connection.execute(INSERT, [first + number], prepare=True)
            called.append(time.monotonic_ns())
            connection.commit()
    Path(times).write_text(json.dumps(called))


def show(name, called, arrived, spent_s):
    """Print how long rows took."""
    pairs = zip(called[RATE * WARM_UP_SECONDS :], arrived[RATE * WARM_UP_SECONDS :], strict=True)
    found = sorted((there - then) / 1e6 for then, there in pairs)
    shown = "  ".join(f"p{100 * share:g} {percentile(found, share):6.2f}" for share in (0.01, 0.5, 0.9, 0.99))
    print(f"{name:12s} {shown} ms  processor time a commit {spent_s / TOTAL * 1e6:5.0f} us", flush=True)


def start_writer(url, times, first):
    return subprocess.Popen([sys.executable, "-m", "bench.postgres_latency", "--write", url, times, str(first)])


def ours(url, directory):
    """Measure `tailrace serve`."""
    times = directory / "times"
    command = ["-m", "tailrace", "serve", "--json", "--data-dir", directory / "data", "--source", f"app={url}"]
    with process(*command, "--http-port", "0", "--grpc-port", "0") as (pid, addresses), over_sse(addresses) as keys:
        before_s = processor_s(pid)
        with start_writer(url, times, 0) as writing:
            arrived = read(keys, 0, TOTAL)
            assert writing.wait() == 0
        show("tailrace", json.loads(times.read_text()), arrived, processor_s(pid) - before_s)


def theirs(server, database, url, directory, python):
    """Measure Debezium, once its slot is read."""
    from databases import PASSWORD, USER

    server.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')", database)
    words = ["127.0.0.1", server.port, USER, PASSWORD, database, TOTAL, directory, TOTAL]
    script = Path(__file__).parent / "peers" / "debezium.py"
    command = list(map(str, [python, script, *words]))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            end_s = time.monotonic() + PATIENCE_S
            query = "SELECT active FROM pg_replication_slots WHERE slot_name = 'debezium'"
            while not server.execute(query, database)[0][0]:
                assert time.monotonic() < end_s
                time.sleep(0.1)
            times = directory / "times"
            with start_writer(url, times, TOTAL) as writing:
                # It logs to the same place.
                found = json.loads(next(line for line in running.stdout if line.startswith(b'{"seconds"')))
                assert writing.wait() == 0
            show("Debezium", json.loads(times.read_text()), found["arrived"], found["processor_s"])
        finally:
            running.kill()


def main():
    import postgres_servers

    server = postgres_servers.started(15)
    try:
        database = server.new_database()
        server.execute(TABLE, database)
        url = server.sql_url(database)
        with tempfile.TemporaryDirectory() as name:
            ours(url, Path(name))
        if python := os.environ.get("DEBEZIUM_PYTHON"):
            with tempfile.TemporaryDirectory() as name:
                theirs(server, database, url, Path(name), python)
    finally:
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
