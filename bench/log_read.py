"""Reading the log back into feed-ready bytes on one core, scanning for one table, and starting in the middle."""

import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import uvloop

from tailrace.clock import SystemClock
from tailrace.delivery.view import View
from tailrace.interface.skeindb.present import SSE, encode
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.log.frame import FRAME_HEADER_BYTES, scan
from tailrace.log.segment import read_segment_header
from tailrace.model.commit import Draft
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, TableTarget
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.filter import Filter

CHANGES = 1_000_000
COMMIT_CHANGES = 100
GROUP_COMMITS = 10
RARE_EVERY = 100
ROUNDS = 6
STARTS = 60
SINGLE_COMMITS = 5_000

RATE_MIN = 1_000_000
ARROW_RATIO_MIN = 0.5
FILTER_RATIO_MIN = 5.0
START_MS_MAX = 10.0

COLUMNS = (Column("id", Kind.I64), Column("customer", Kind.STR), Column("status", Kind.STR), Column("note", Kind.STR))
TABLES = [TableSchema(TableName("app", name), 1, COLUMNS, ("id",)) for name in ("orders", "returns")]
VIEW = View(SSE, Format.PLAIN_JSON, Include(before=False, after=True))
OPTIONS = LogOptions(retention_bytes=None, retention_age_s=None)
COLD = LogOptions(retention_bytes=None, retention_age_s=None, cache_bytes_max=0, ring_changes_max=1)


def draft(first: int, count: int) -> Draft:
    made = Draft(Position(str(first)), 1_700_000_000_000_000 + first)
    for number in range(first, first + count):
        image = b'{"id":%d,"customer":"customer-%06d","status":"paid","note":"%s"}' % (
            number,
            number % 1000,
            b"n" * 100,
        )
        made.add(Op.INSERT, SchemaId(2 if number % RARE_EVERY == 0 else 1), b"[%d]" % number, after=image)
    return made


async def write(directory: Path, changes: int, commit_changes: int, group: int) -> None:
    log = await Log.open(DiskFiles(directory), OPTIONS, SystemClock())
    for schema in TABLES:
        await log.put_schema(schema)
    pending = []
    for first in range(0, changes, commit_changes * group):
        drafts = [draft(first + number * commit_changes, commit_changes) for number in range(group)]
        pending.append(asyncio.create_task(log.append(drafts)))
        if len(pending) == 64:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    await log.close()


async def deliver(directory: Path, *, rare_only: bool, send: bool) -> float:
    """Return the seconds for reading everything, encoding what passes the filter and, if wanted, sending it."""
    log = await Log.open(DiskFiles(directory), OPTIONS, SystemClock())
    chosen = Filter(TableTarget((TABLES[1].table,)), FilterOptions(tuple(Op))) if rare_only else None
    with drained() as sink:
        after = Offset(0)
        sought = None if chosen is None else chosen.wanted(log.schemas())
        begin = time.perf_counter()
        while (chunk := await log.read(after, lambda: sought)) is not None:
            rows = chosen.select(chunk) if chosen else range(len(chunk))
            if len(rows):
                encoded = encode(chunk, rows, VIEW)
                if send:
                    sink.sendall(encoded.cut(after, len(chunk), 1 << 30).data)
            after = chunk.last
        seconds = time.perf_counter() - begin
    await log.close()
    return seconds


@contextmanager
def one_core() -> Iterator[None]:
    """Let this process, with all threads that it starts, run on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def drained() -> Iterator[socket.socket]:
    """Give a socket whose other end a process of its own reads and throws away, as a subscriber would."""
    ours, theirs = socket.socketpair()
    code = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); b = bytearray(1 << 20)"
    code += "\nwhile s.recv_into(b): pass"
    with (
        ours,
        subprocess.Popen([sys.executable, "-c", code, str(theirs.fileno())], pass_fds=[theirs.fileno()]),
    ):
        theirs.close()
        try:
            yield ours
        finally:
            ours.close()


def arrow_alone(directory: Path) -> float:
    """Return the seconds that pyarrow needs to make record batches of the same files and do nothing with them."""
    seconds = 0.0
    for path in sorted(directory.glob("*.bin")):
        files = DiskFiles(directory)
        file = files.open(path.name)
        segment = read_segment_header(file, path.name)
        places = [
            (place, header.payload_bytes) for place, header in scan(file.read_at, segment.header_bytes, file.size())
        ]
        file.close()
        begin = time.perf_counter()
        data = pa.py_buffer(path.read_bytes())
        for place, size in places:
            pa.ipc.read_record_batch(data.slice(place + FRAME_HEADER_BYTES, size), segment.schema)
        seconds += time.perf_counter() - begin
    return seconds


async def starts(directory: Path) -> tuple[list[float], list[float]]:
    """Return the seconds to the first change at random offsets, and those of reading from the segment's start to it."""
    log = await Log.open(DiskFiles(directory), COLD, SystemClock())
    chance = random.Random(1)
    segments = await log.segments()
    direct, from_start = [], []
    for _ in range(STARTS):
        wanted = chance.randrange(1, log.head + 1)
        begin = time.perf_counter()
        chunk = await log.read(Offset(wanted - 1))
        direct.append(time.perf_counter() - begin)
        assert chunk is not None
        assert chunk.first <= wanted <= chunk.last
        first = max(segment.first_offset for segment in segments if segment.first_offset <= wanted)
        begin = time.perf_counter()
        after = Offset(first - 1)
        while after < wanted:
            chunk = await log.read(after)
            assert chunk is not None
            after = chunk.last
        from_start.append(time.perf_counter() - begin)
    await log.close()
    return direct, from_start


def report(name: str, measured: str, bar: str, *, good: bool) -> bool:
    print(f"{name}: {measured} (bar {bar}) {'PASS' if good else 'MISS'}", flush=True)
    return good


def measure(directory: Path) -> bool:
    encoded, alone, full, rare = [], [], [], []
    for _ in range(ROUNDS):
        with one_core():
            encoded.append(uvloop.run(deliver(directory, rare_only=False, send=False)))
            alone.append(arrow_alone(directory))
        full.append(uvloop.run(deliver(directory, rare_only=False, send=True)))
        rare.append(uvloop.run(deliver(directory, rare_only=True, send=True)))
    rate, ratio = CHANGES / min(encoded), min(alone) / min(encoded)
    measured = f"{rate / 1e6:.2f} M changes/s, {ratio:.2f} of pyarrow alone"
    bar = f"{RATE_MIN / 1e6:.0f} M changes/s or {ARROW_RATIO_MIN}"
    good = report("read back into feed-ready bytes", measured, bar, good=rate >= RATE_MIN or ratio >= ARROW_RATIO_MIN)
    filtered = min(full) / min(rare)
    measured = f"{filtered:.1f}x; {CHANGES / min(rare) / 1e6:.2f} against {CHANGES / min(full) / 1e6:.2f} M changes/s"
    good &= report("scan for 1 % / deliver all", measured, f"{FILTER_RATIO_MIN}x", good=filtered >= FILTER_RATIO_MIN)
    direct, from_start = uvloop.run(starts(directory))
    middle, scan_ms = (statistics.median(times) * 1e3 for times in (direct, from_start))
    size_mb = sum(path.stat().st_size for path in directory.glob("*.bin")) / 1e6
    measured = f"{middle:.2f} ms, worst {max(direct) * 1e3:.2f} ms, from the segment's start {scan_ms:.0f} ms"
    name = f"first change at a random offset of {size_mb:.0f} MB"
    return good & report(name, measured, f"{START_MS_MAX} ms", good=middle <= START_MS_MAX)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        large, small = Path(name) / "large", Path(name) / "small"
        uvloop.run(write(large, CHANGES, COMMIT_CHANGES, GROUP_COMMITS))
        good = measure(large)
        files = LogOptions(retention_bytes=None, retention_age_s=None, frame_changes_max=1)
        uvloop.run(write_singles(small, files))
        seconds = min(uvloop.run(deliver(small, rare_only=False, send=False)) for _ in range(ROUNDS))
        print(f"for comparison: frames of one change each, {SINGLE_COMMITS / seconds / 1e3:.0f} k changes/s")
    return 0 if good else 1


async def write_singles(directory: Path, options: LogOptions) -> None:
    log = await Log.open(DiskFiles(directory), options, SystemClock())
    for schema in TABLES:
        await log.put_schema(schema)
    for first in range(0, SINGLE_COMMITS, 1000):
        await asyncio.gather(*(log.append([draft(number, 1)]) for number in range(first, first + 1000)))
    await log.close()


if __name__ == "__main__":
    sys.exit(main())
