"""Appending to the log, against plain `write` + `fdatasync` of the same bytes and against one sync per commit.

Groups are appended to the disk that is there, and to a paced one: files in memory whose sync takes as long as a disk of
450 MB/s would. The log and plain writes share that disk, and so what a busy machine adds to each wait. On it both ways
to encode are measured, where the compiled helper is built. Processor time stands beside the clock: of all threads, and
of the kernel for them.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions, payload
from tailrace.log.files import File
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
PACE_BYTES_S = 450e6
MEMORY = Path("/dev/shm")

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


class PacedFile:
    """A file whose sync returns when a disk of the given pace would have written what came since the last one."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._written = 0
        self._begin_s = 0.0
        self.read_at, self.truncate, self.size, self.close = file.read_at, file.truncate, file.size, file.close

    def write_at(self, place: int, parts: Sequence[bytes | memoryview]) -> None:
        if not self._written:
            self._begin_s = time.perf_counter()
        self._written += sum(len(part) for part in parts)
        self._file.write_at(place, parts)

    def sync(self) -> None:
        left_s = self._begin_s + self._written / PACE_BYTES_S - time.perf_counter()
        self._written = 0
        if left_s > 0:
            time.sleep(left_s)


class PacedFiles(DiskFiles):
    """A directory of such files; it should be in memory."""

    def open(self, name: str, *, write: bool = False) -> File:
        return PacedFile(super().open(name, write=write))

    def create(self, name: str) -> File:
        return PacedFile(super().create(name))


class Taken(NamedTuple):
    """What appending all groups took, by the clock and of the processor, and the sizes of the frames written."""

    seconds: float
    processor_seconds: float
    sizes: list[int]


async def groups(files: DiskFiles, drafts: list[Draft]) -> Taken:
    log = await Log.open(files, LogOptions(frame_changes_max=GROUP_CHANGES, segment_bytes_max=1 << 40), SystemClock())
    await log.put_schema(SCHEMA)
    begin, begin_processor = time.perf_counter(), time.process_time()
    room = asyncio.Semaphore(IN_FLIGHT)

    async def append(one: Draft) -> None:
        await log.append([one])
        room.release()

    async with asyncio.TaskGroup() as tasks:
        for one in drafts:
            await room.acquire()
            tasks.create_task(append(one))
    seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - begin_processor
    await log.close()
    segment = files.directory / next(name for name in files.names() if name.endswith(".bin"))
    return Taken(seconds, processor_seconds, frame_sizes(segment.read_bytes()))


def frame_sizes(data: bytes) -> list[int]:
    place = int.from_bytes(data[16:20], "little")
    sizes = []
    while place < len(data):
        sizes.append(48 + int.from_bytes(data[place + 12 : place + 16], "little"))
        place += sizes[-1]
    return sizes


def plain(files: DiskFiles, sizes: list[int]) -> tuple[float, float]:
    """Return the seconds that writing and syncing the same bytes takes, one frame at a time; and of the processor."""
    frames = [os.urandom(size) for size in sizes]
    file = files.create("plain")
    place = 0
    begin, begin_processor = time.perf_counter(), time.process_time()
    for frame in frames:
        file.write_at(place, [frame])
        file.sync()
        place += len(frame)
    taken = time.perf_counter() - begin, time.process_time() - begin_processor
    file.close()
    files.remove("plain")
    return taken


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


class Measured(NamedTuple):
    """One round: bytes a second and processor time a group, of the log and of plain writes."""

    ours: float
    plain: float
    processor_us: float
    plain_processor_us: float


def measure_round(place: Path | None, make: Callable[[Path], DiskFiles], drafts: list[Draft]) -> Measured:
    with tempfile.TemporaryDirectory(dir=place) as directory:
        taken = uvloop.run(groups(make(Path(directory, "log")), drafts))
        plain_s, plain_processor_s = plain(make(Path(directory)), taken.sizes)
    size_bytes = sum(taken.sizes)
    per_group = 1e6 / len(drafts)
    return Measured(
        size_bytes / taken.seconds,
        size_bytes / plain_s,
        taken.processor_seconds * per_group,
        plain_processor_s * per_group,
    )


def measure_groups(name: str, place: Path | None, make: Callable[[Path], DiskFiles], drafts: list[Draft]) -> bool:
    """Append all groups beside plain writes to such files, with each encoder in turn; the first must pass the bar."""
    encoders = {"compiled": payload.compiled, "pure Python": None} if payload.compiled else {"pure Python": None}
    rounds: dict[str, list[Measured]] = {encoder: [] for encoder in encoders}
    for number in range(ROUNDS + 1):
        for encoder, payload.compiled in encoders.items():
            measured = measure_round(place, make, drafts)
            if number:  # the first round imports and allocates what the others find
                rounds[encoder].append(measured)
    payload.compiled = next(iter(encoders.values()))
    ratios = []
    for encoder, taken in rounds.items():
        ours, plains, processor_us, plain_processor_us = (
            statistics.median(column) for column in zip(*taken, strict=True)
        )
        ratios.append(statistics.median(each.ours / each.plain for each in taken))
        print(
            f"  {encoder}: {ratios[-1]:.2f} of plain {plains / 1e6:.0f} MB/s, log {ours / 1e6:.0f} MB/s;"
            f" processor {processor_us:.0f} us a group, plain {plain_processor_us:.0f} us",
            flush=True,
        )
    return report(name, ratios[0], GROUP_RATIO_MIN, f"{GROUP_CHANGES} changes a group, {GROUPS} groups a round")


def main() -> int:
    drafts = [draft(number * GROUP_CHANGES, GROUP_CHANGES, SchemaId(1)) for number in range(GROUPS)]
    good = measure_groups("append groups of 1000 / plain write+fdatasync", None, DiskFiles, drafts)
    memory = MEMORY if MEMORY.exists() else None
    good &= measure_groups("append groups of 1000 / plain, on a paced disk of 450 MB/s", memory, PacedFiles, drafts)
    ours, peers, bare = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            ours.append(uvloop.run(singles(directory / "many", CALLERS, CALLER_COMMITS)))
            peers.append(uvloop.run(singles(directory / "one", 1, SINGLE_COMMITS)))
            bare.append(SINGLE_COMMITS / plain(DiskFiles(directory), [SINGLE_BYTES] * SINGLE_COMMITS)[0])
    many, one, alone = (statistics.median(rates) for rates in (ours, peers, bare))
    detail = f"64 callers {many:.0f} commits/s, one caller and so one sync per commit {one:.0f}/s"
    good &= report("append single changes / one sync per commit", middle_ratio(ours, peers), SINGLE_RATIO_MIN, detail)
    print(f"for comparison: bare write+fdatasync per commit {alone:.0f}/s, ratio {middle_ratio(ours, bare):.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
