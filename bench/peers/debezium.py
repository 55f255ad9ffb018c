"""Debezium's embedded engine on a slot, for the benchmarks of PostgreSQL. Runs in an environment with `pydbzengine`.

    python debezium.py HOST PORT USER PASSWORD DATABASE CHANGES FOLDER [FIRST]

With FIRST, rows have the ids from there on, and it prints when each was in hand.

Counts change events as JSON, and prints the time and the processor time from the first batch to the last. The virtual
machine is in this process, so its time and memory are those of the process.
"""

import json
import os
import resource
import sys
import time

os.chdir(sys.argv[7])  # the engine begins a log file where it is loaded

from pydbzengine import BasePythonChangeHandler, DebeziumEngine  # noqa: E402


class Counting(BasePythonChangeHandler):
    def __init__(self, changes, first):
        self.left = changes
        self.first = first
        self.arrived = [] if first is None else [0] * changes
        self.began = None

    def handleJsonBatch(self, records):  # noqa: N802 - the name is given
        if self.began is None:
            self.began = time.perf_counter(), time.process_time()
        self.left -= len(records)
        if self.first is not None:
            now = time.monotonic_ns()
            for record in records:
                self.arrived[json.loads(str(record.key()))["id"] - self.first] = now
        if self.left <= 0:
            took, spent = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found = {"seconds": took, "processor_s": spent, "resident_mb": memory, "arrived": self.arrived}
            print(json.dumps(found), flush=True)
            os._exit(0)


def main():
    host, port, user, password, database, changes, folder, *first = sys.argv[1:]
    properties = {
        "name": "engine",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "database.hostname": host,
        "database.port": port,
        "database.user": user,
        "database.password": password,
        "database.dbname": database,
        "topic.prefix": "bench",
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "tailrace",
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "poll.interval.ms": "1" if first else "10",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "tombstones.on.delete": "false",
    }
    with DebeziumEngine(properties, Counting(int(changes), int(first[0]) if first else None)) as engine:
        engine.run()


if __name__ == "__main__":
    main()
