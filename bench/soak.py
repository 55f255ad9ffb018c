"""Memory of a server under a steady load: its growth after the first minutes, as a ratio.

A `tailrace serve` captures an SQLite table while twenty SSE subscribers read. `SOAK_S` is how long (default 300 s),
`SOAK_RATE` how many changes a second (default 1 000), 40 a commit. Beside the ratio, a line for each tenth of the run.
"""

import os
import selectors
import socket
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from serving import Server

SECONDS = float(os.environ.get("SOAK_S", "300"))
RATE = float(os.environ.get("SOAK_RATE", "1000"))
COMMIT_CHANGES = 40
SUBSCRIBERS = 20
KEYS = 50_000
WARM_SHARE = 0.4
"""The first part of a run, in which caches fill; at most `WARM_S_MAX`."""
WARM_S_MAX = 240.0
GROWTH_MAX = 1.05


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


class Readers(threading.Thread):
    """Reads many streams and throws away what comes, but counts it."""

    def __init__(self, url: str, sub_ids: list[str]) -> None:
        super().__init__(daemon=True)
        self.received = 0
        self.stopped = False
        self._selector = selectors.DefaultSelector()
        address = urlsplit(url)
        for sub_id in sub_ids:
            connection = socket.create_connection((address.hostname, address.port))
            connection.sendall(f"GET /api/v1/cdc/sse/{sub_id} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            self._selector.register(connection, selectors.EVENT_READ)

    def run(self) -> None:
        while not self.stopped:
            for key, _ in self._selector.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                self.received += len(key.fileobj.recv(1 << 20))
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def commit(database: sqlite3.Connection, number: int) -> None:
    rows = [
        ((number * COMMIT_CHANGES + place) % KEYS, f"note {number} {'n' * (place * 7 % 300)}")
        for place in range(COMMIT_CHANGES)
    ]
    with database:
        database.executemany("INSERT OR REPLACE INTO orders (id, note) VALUES (?, ?)", rows)


def soak(directory: Path) -> list[tuple[float, float]]:
    """Return the time and the server's memory in MB, once a second."""
    path = directory / "shop.db"
    database = sqlite3.connect(path, timeout=60)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    server = Server(directory / "data", "--source", f"default=sqlite:///{path}", "--retention-events", "200000")
    try:
        server.wait_ready()
        sub_ids = [server.subscribe("orders", include={"after": True})["sub_id"] for _ in range(SUBSCRIBERS)]
        readers = Readers(server.url, sub_ids)
        readers.start()
        samples: list[tuple[float, float]] = []
        begin_s = time.monotonic()
        number = 0
        while (now_s := time.monotonic() - begin_s) < SECONDS:
            if number * COMMIT_CHANGES < now_s * RATE:
                commit(database, number)
                number += 1
            else:
                time.sleep(0.002)
            if len(samples) <= now_s:
                samples.append((now_s, rss_mb(server.process.pid)))
        readers.stopped = True
        readers.join()
        print(f"{number * COMMIT_CHANGES / SECONDS:.0f} changes/s, {readers.received / SECONDS / 1e6:.1f} MB/s sent")
        return samples
    finally:
        server.stop()
        database.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        samples = soak(Path(directory))
    for tenth in range(10):
        part = samples[len(samples) * tenth // 10 : len(samples) * (tenth + 1) // 10]
        print(f"  up to {part[-1][0]:6.0f} s: {statistics.median(memory for _, memory in part):6.1f} MB")
    warm_s = min(WARM_S_MAX, SECONDS * WARM_SHARE)
    warm = [memory for seconds, memory in samples if seconds >= warm_s]
    count = max(1, len(warm) // 6)
    growth = statistics.median(warm[-count:]) / statistics.median(warm[:count])
    print(f"memory at the end against after {warm_s:.0f} s: {growth:.3f} (at most {GROWTH_MAX})")
    return 0 if growth <= GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
