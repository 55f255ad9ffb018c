"""Appending to the log, against plain `write` + `fdatasync` of the same bytes and against one sync per commit."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema

ROUNDS = 12
GROUPS = 100
GROUP_CHANGES = 1000
IN_FLIGHT = 4
CALLERS = 64
CALLER_COMMITS = 60
SINGLE_COMMITS = 400
SINGLE_BYTES = 950

GROUP_RATIO_MIN = 0.60
SINGLE_RATIO_MIN = 20.0

SCHEMA = TableSchema(
    TableName("app", "orders"),
    1,
    (Column("id", Kind.I64), Column("customer", Kind.STR), Column("note", Kind.STR)),
    ("id",),
)


def draft(first: int, count: int, schema: SchemaId) -> Draft:
    made = Draft(Position(str(first)), 1_700_000_000_000_000 + first)
    for number in range(first, first + count):
        image = b'{"id":%d,"customer":"customer-%06d","note":"%s"}' % (number, number % 1000, b"n" * 130)
        made.add(Op.INSERT, schema, b"[%d]" % number, after=image)
    return made


async def groups(directory: Path, drafts: list[Draft]) -> tuple[float, list[int]]:
    """Return the seconds for all groups and the sizes of the frames that were written."""
    files = DiskFiles(directory)
    log = await Log.open(files, LogOptions(frame_changes_max=GROUP_CHANGES, segment_bytes_max=1 << 40), SystemClock())
    await log.put_schema(SCHEMA)
    begin = time.perf_counter()
    room = asyncio.Semaphore(IN_FLIGHT)

    async def append(one: Draft) -> None:
        await log.append([one])
        room.release()

    async with asyncio.TaskGroup() as tasks:
        for one in drafts:
            await room.acquire()
            tasks.create_task(append(one))
    seconds = time.perf_counter() - begin
    await log.close()
    segment = directory / next(name for name in files.names() if name.endswith(".bin"))
    return seconds, frame_sizes(segment.read_bytes())


def frame_sizes(data: bytes) -> list[int]:
    place = int.from_bytes(data[16:20], "little")
    sizes = []
    while place < len(data):
        sizes.append(48 + int.from_bytes(data[place + 12 : place + 16], "little"))
        place += sizes[-1]
    return sizes


def plain(directory: Path, sizes: list[int]) -> float:
    """Return the seconds that writing and syncing the same bytes takes, one frame at a time."""
    frames = [os.urandom(size) for size in sizes]
    descriptor = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    begin = time.perf_counter()
    for frame in frames:
        os.write(descriptor, frame)
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    (directory / "plain").unlink()
    return seconds


async def singles(directory: Path, callers: int, commits: int) -> float:
    """Return commits a second of this many callers, each appending one change at a time."""
    log = await Log.open(DiskFiles(directory), LogOptions(), SystemClock())
    schema = await log.put_schema(SCHEMA)
    drafts = [[draft(number, 1, schema) for number in range(commits)] for _ in range(callers)]

    async def call(own: list[Draft]) -> None:
        for one in own:
            await log.append([one])

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for own in drafts:
            tasks.create_task(call(own))
    seconds = time.perf_counter() - begin
    await log.close()
    return callers * commits / seconds


def middle_ratio(ours: list[float], peers: list[float]) -> float:
    """Return the median of the ratios of each round: disks have moods, and both sides of a round share one."""
    return statistics.median(one / other for one, other in zip(ours, peers, strict=True))


def report(name: str, ratio: float, bar: float, detail: str) -> bool:
    good = ratio >= bar
    print(f"{name}: {ratio:.2f} (bar {bar:.2f}) {'PASS' if good else 'MISS'}  {detail}", flush=True)
    return good


def main() -> int:
    drafts = [draft(number * GROUP_CHANGES, GROUP_CHANGES, SchemaId(1)) for number in range(GROUPS)]
    ours, peers = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            seconds, sizes = uvloop.run(groups(directory / "log", drafts))
            ours.append(sum(sizes) / seconds)
            peers.append(sum(sizes) / plain(directory, sizes))
    rate, ratio = statistics.median(ours), middle_ratio(ours, peers)
    detail = f"log {rate / 1e6:.0f} MB/s ({rate / sum(sizes) * GROUPS * GROUP_CHANGES / 1e3:.0f} k changes/s)"
    detail += f", plain {statistics.median(peers) / 1e6:.0f} MB/s, {len(sizes)} frames a round"
    good = report("append groups of 1000 / plain write+fdatasync", ratio, GROUP_RATIO_MIN, detail)
    ours, peers, bare = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            ours.append(uvloop.run(singles(directory / "many", CALLERS, CALLER_COMMITS)))
            peers.append(uvloop.run(singles(directory / "one", 1, SINGLE_COMMITS)))
            bare.append(SINGLE_COMMITS / plain(directory, [SINGLE_BYTES] * SINGLE_COMMITS))
    many, one, alone = (statistics.median(rates) for rates in (ours, peers, bare))
    detail = f"64 callers {many:.0f} commits/s, one caller and so one sync per commit {one:.0f}/s"
    good &= report("append single changes / one sync per commit", middle_ratio(ours, peers), SINGLE_RATIO_MIN, detail)
    print(f"for comparison: bare write+fdatasync per commit {alone:.0f}/s, ratio {middle_ratio(ours, bare):.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
