"""Capture of PostgreSQL into the synced log, against `pg_recvlogical` to /dev/null on the same changes.

The workload of the issue: 60 % inserts, 30 % updates, 10 % deletes, transactions of 1 to 100 rows, 8 columns. Each
reader has a slot of its own from before the changes, so both read the same write-ahead log, one after the other.

    make bench BENCH=postgres_capture            # CHANGES=100000 by default
"""

import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import postgres_servers
from postgres_capture import source_of
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions

CHANGES = int(os.environ.get("CHANGES", "100000"))
VERSION = int(os.environ.get("VERSION", "15"))
TABLE = """
CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(10,2), amount int, made timestamptz,
    active boolean, note text, code uuid)
"""
INSERT = """
INSERT INTO item SELECT n, 'name of item ' || n, mod(n, 10000) / 100.0, mod(n, 1000), now(), mod(n, 2) = 0,
    repeat('note ', 10), gen_random_uuid() FROM generate_series(%s::bigint, %s::bigint) n
"""


def write(server, database):
    """Write the changes; return how many there are."""
    chance, done, last = random.Random(1), 0, 0
    with server.connect(database) as connection:
        connection.execute("SET synchronous_commit = off")
        while done < CHANGES:
            rows = chance.randrange(1, 101)
            kind = chance.random()
            if kind < 0.6 or last < 1000:
                connection.execute(INSERT, [last + 1, last + rows])
                last += rows
                done += rows
            else:
                first = chance.randrange(1, last - rows)
                what = "UPDATE item SET amount = amount + 1, note = note || 'x'" if kind < 0.9 else "DELETE FROM item"
                done += connection.execute(f"{what} WHERE id BETWEEN %s AND %s", [first, first + rows - 1]).rowcount
            connection.commit()
    return done


async def capture(url, directory, changes):
    """Return the seconds and the processor seconds that it takes until the log has all changes."""
    source = source_of(url, slot="ours")
    log = await Log.open(DiskFiles(directory), LogOptions(), SystemClock())
    pump = Pump(source, log, CaptureState())
    await pump.open()
    began, used = time.perf_counter(), time.process_time()
    running = asyncio.create_task(pump.run())
    while log.head < changes and not running.done():
        await log.wait(log.head, 1.0)
    took, spent = time.perf_counter() - began, time.process_time() - used
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await source.close()
    await log.close()
    return took, spent


def receive(server, database, end):
    """Return the seconds that `pg_recvlogical` takes to receive the same changes."""
    options = ["-o", "proto_version=2", "-o", "publication_names=tailrace", "-o", "streaming=on"]
    command = ["--slot=theirs", "--start", "--no-loop", f"--endpos={end}", "-f", "/dev/null", *options]
    began = time.perf_counter()
    program = [server.program("pg_recvlogical"), "-d", server.sql_url(database)]
    subprocess.run([*program, *command], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main():
    server = postgres_servers.started(VERSION, logical_decoding_work_mem="64MB", max_wal_size="4GB")
    try:
        database = server.new_database()
        for identity in ("DEFAULT", "FULL"):
            server.execute(f"DROP TABLE IF EXISTS item; {TABLE}", database)
            server.execute(f"ALTER TABLE item REPLICA IDENTITY {identity}", database)
            server.execute("DROP PUBLICATION IF EXISTS tailrace", database)
            server.execute("CREATE PUBLICATION tailrace FOR ALL TABLES", database)
            for slot in ("ours", "theirs"):
                server.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')", database)
            changes = write(server, database)
            (end,) = server.execute("SELECT pg_current_wal_lsn()", database)[0]
            limit = receive(server, database, end)
            with tempfile.TemporaryDirectory() as directory:
                took, spent = asyncio.run(capture(server.sql_url(database), Path(directory), changes))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"REPLICA IDENTITY {identity}, {changes} changes:")
            print(f"  pg_recvlogical to /dev/null: {changes / limit:,.0f} changes/s")
            print(f"  into the synced log: {changes / took:,.0f} changes/s, {limit / took:.2f} of that")
            print(f"  {spent / changes * 1e6:.1f} us of processor time a change, {memory:.0f} MB resident at most")
            for slot in ("ours", "theirs"):
                server.execute(f"SELECT pg_drop_replication_slot('{slot}')", database)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
