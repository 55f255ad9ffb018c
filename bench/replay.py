"""A log of single-change commits, compacted, replayed through every door against the same log written in groups.

Over SSE and in bulk from a server in a process of its own, and by Spark's source from the files; and the newest changes
from memory, before any segment is sealed. `BENCH_WHOLE=1` takes 5 million changes in place of 1 million. Ratios are of
the best of some rounds in which both logs take turns: by the clock, which is held to the bar, and by processor time of
the server or, with Spark, of all its processes, which other work on the machine disturbs less.
"""

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
from msgspec.structs import replace

from bench.log_compact import GROUP, OPTIONS, SEALING, SINGLE, Unsynced, UnsyncedFiles, compact, every_hundredth
from bench.log_compact import commit as commit_of
from bench.log_read import TABLES, VIEW, report
from bench.spark_source import Spent, drain
from bench.sse_throughput import READ_BYTES, Peer, drink
from tailrace.clock import SystemClock
from tailrace.interface.skeindb.present import encode
from tailrace.log import DiskFiles, File, Log, LogOptions, tend
from tailrace.log.recover import recover
from tailrace.log.writer import Writer, encode_frame
from tailrace.meta.store import MetaStore
from tailrace.model.commit import Draft
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.start import Earliest
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, SubscribeRequest, sub_id_of
from tailrace.pipeline.spark import find_java, open_session
from tailrace.subscription.service import ServiceOptions, SubscriptionService

CHANGES = int(os.environ.get("BENCH_CHANGES", "5000000" if os.environ.get("BENCH_WHOLE") else "1000000"))
NEWEST = 65_536
NEWEST_OPTIONS = LogOptions(retention_bytes=None, retention_age_s=None, compact=False, ring_bytes_max=64 << 20)
ROUNDS = 3
RATIO_MIN = 0.5
BUFFER_BYTES = 4 << 20
MARK = b"\ndata: {"
SUB_ID = "sub_0000000000000001"


def commit(first: int, count: int) -> Draft:
    return commit_of(first, count, every_hundredth)


class Gathered(Unsynced):
    """An open file that writes what follows each other at once: a write for each of so many frames takes minutes."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._begin = 0
        self._data = bytearray()

    def write_at(self, place: int, parts: Any) -> None:
        if place != self._begin + len(self._data) or len(self._data) >= BUFFER_BYTES:
            self.flush()
            self._begin = place
        for part in parts:
            self._data += part

    def flush(self) -> None:
        if self._data:
            self._file.write_at(self._begin, [bytes(self._data)])
            self._begin += len(self._data)
            self._data.clear()

    def read_at(self, place: int, size: int) -> bytes:
        self.flush()
        return self._file.read_at(place, size)

    def truncate(self, size: int) -> None:
        self.flush()
        self._file.truncate(size)

    def close(self) -> None:
        self.flush()
        self._file.close()


class GatheredFiles(DiskFiles):
    """Files of a log that is only made to be read."""

    def open(self, name: str, *, write: bool = False) -> File:
        return Gathered(super().open(name, write=write))

    def create(self, name: str) -> File:
        return Gathered(super().create(name))


async def write(directory: Path, commit_changes: int) -> None:
    """Write a log, a frame for each commit, by the log's own writer, without the waits of group commit."""
    (directory / "log").mkdir(parents=True)
    log = await Log.open(UnsyncedFiles(directory / "log"), OPTIONS, SystemClock())
    for schema in TABLES:
        await log.put_schema(schema)
    await log.close()
    files = GatheredFiles(directory / "log")
    writer = Writer(files, SINGLE, SystemClock(), recover(files))
    for index, first in enumerate(range(0, CHANGES, commit_changes), start=1):
        draft = commit(first, commit_changes)
        writer.store(encode_frame([draft], Offset(first + 1), index, SystemClock().now_us(), index))
    writer.close()
    log = await Log.open(DiskFiles(directory / "log"), SEALING, SystemClock())
    await log.append([commit(CHANGES, 1)])
    store = await MetaStore.open(f"sqlite:///{directory}/meta.db", SystemClock())
    service = await SubscriptionService.open({"app": log}, store, ServiceOptions())
    request = SubscribeRequest(
        SourceTarget("app"),
        filter=FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE)),
        include=Include(after=True),
        format=Format.PLAIN_JSON,
        start=Earliest(),
    )
    made = await service.subscribe(request)
    assert sub_id_of(made.id) == SUB_ID
    await store.close()
    await log.close()


def stream_bytes(peer: Peer) -> int:
    """Read all changes over SSE, count them, and return how many bytes that were."""
    count = size_bytes = 0
    tail = b""
    with peer.connect(SUB_ID) as connection:
        while count <= CHANGES:
            data = connection.recv(READ_BYTES)
            assert data, f"the stream ended after {count} changes"
            count += (tail + data).count(MARK)
            tail = data[-(len(MARK) - 1) :]
            size_bytes += len(data)
    return size_bytes


def read_bulk(peer: Peer) -> float:
    """Read all changes in bulk; return the seconds."""
    with socket.create_connection(("127.0.0.1", peer.port)) as connection:
        begin = time.perf_counter()
        path = f"/api/v1/bulk/app/changes?after=0&through={CHANGES}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        buffer = bytearray(READ_BYTES)
        size_bytes, last = 0, b""
        while got := connection.recv_into(buffer):
            size_bytes, last = size_bytes + got, bytes(buffer[max(0, got - 5) : got])
        assert last == b"0\r\n\r\n"
        assert size_bytes > 100 * CHANGES
        return time.perf_counter() - begin


def processor_time(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(peer: Peer, read: Callable[[], float]) -> Spent:
    """Return the time that reading takes by the clock, and that of the server's processor."""
    begin_s = processor_time(peer.process.pid)
    time_s = read()
    return Spent(time_s, processor_time(peer.process.pid) - begin_s)


def compare(name: str, measure: Callable[[str], Spent], rounds: int = ROUNDS) -> bool:
    """Measure both logs in turn; report the ratio of the best rounds."""
    spent: dict[str, list[Spent]] = {"single": [], "group": []}
    for _ in range(rounds):
        for which, taken in spent.items():
            taken.append(measure(which))
    single, group = (min(each.time_s for each in taken) for taken in spent.values())
    own, other = (min(each.processor_s for each in taken) for taken in spent.values())
    ratio = group / single
    shown = f"{ratio:.2f}; {CHANGES / single / 1e6:.2f} against {CHANGES / group / 1e6:.2f} M changes/s;"
    shown += f" by processor time {other / own:.2f}, {own:.2f} against {other:.2f} s"
    return report(f"{name}: one commit a frame, compacted / groups", shown, f"{RATIO_MIN}", good=ratio >= RATIO_MIN)


def measure_server(directory: Path) -> bool:
    peers = {which: Peer("--serve", str(directory / which)) for which in ("single", "group")}
    try:
        sizes = {which: stream_bytes(peer) for which, peer in peers.items()}

        def stream(which: str) -> float:
            return sizes[which] / drink(peers[which], SUB_ID, sizes[which])

        good = compare("SSE", lambda which: served(peers[which], lambda: stream(which)))
        return good & compare("bulk over HTTP", lambda which: served(peers[which], lambda: read_bulk(peers[which])))
    finally:
        for peer in peers.values():
            peer.end()


def measure_spark(directory: Path) -> bool:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")]))
    java = find_java(directory / "java")
    with ExitStack() as stack:
        spark = open_session(java, master="local[2]", confs={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        options = {"source": "app", "layout": "envelope"}
        streams = {
            which: spark.readStream.format("tailrace").options(**options, log_dir=str(directory / which / "log")).load()
            for which in ("single", "group")
        }
        return compare("Spark, files", lambda which: drain(streams[which], directory))


async def read_newest(directory: Path, options: LogOptions, commit_changes: int) -> float:
    """Return the processor time of reading and encoding the newest changes from memory, in seconds a change."""
    directory.mkdir()
    log = await Log.open(UnsyncedFiles(directory), options, SystemClock())
    for schema in TABLES:
        await log.put_schema(schema)
    for first in range(0, NEWEST, 1024):
        numbers = range(first, first + 1024, commit_changes)
        await asyncio.gather(*(log.append([commit(number, commit_changes)]) for number in numbers))
    best = float("inf")
    for _ in range(ROUNDS):
        begin, after = time.process_time(), Offset(0)
        while (chunk := await log.read(after)) is not None:
            assert log.recent(after) is chunk
            encode(chunk, range(len(chunk)), VIEW)
            after = chunk.last
        best = min(best, time.process_time() - begin)
    await log.close()
    return best / NEWEST


def measure_newest(directory: Path) -> bool:
    single_options = replace(NEWEST_OPTIONS, frame_changes_max=1)
    single = uvloop.run(read_newest(directory / "newest single", single_options, 1))
    group = uvloop.run(read_newest(directory / "newest group", NEWEST_OPTIONS, 1024))
    shown = f"{group / single:.2f}; {1e-6 / single:.2f} against {1e-6 / group:.2f} M changes/s of processor time"
    name = f"newest {NEWEST} from memory: one commit a frame / groups"
    return report(name, shown, f"{RATIO_MIN}", good=group / single >= RATIO_MIN)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        good = measure_newest(directory)
        begin = time.perf_counter()
        for which, commit_changes in (("single", 1), ("group", GROUP)):
            uvloop.run(write(directory / which, commit_changes))
        print(f"wrote 2 logs of {CHANGES:,} changes in {time.perf_counter() - begin:.0f} s", flush=True)
        begin = time.perf_counter()
        tend._SHARE_IDLE = 1.0  # without rests: nobody else waits for the lock
        seconds = uvloop.run(compact(directory / "single" / "log"))
        shown = f"{seconds / CHANGES * 1e6:.1f} µs of processor time a change"
        print(f"compaction takes {shown}, {time.perf_counter() - begin:.0f} s in all", flush=True)
        good &= measure_server(directory)
        good &= measure_spark(directory)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
