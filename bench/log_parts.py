"""A commit of millions of changes through the pump and the log, in parts: its memory against the size of the commit.

`python -m bench.log_parts [CHANGES]`. After a smaller commit, which fills all buffers and caches, the large one is
captured, read back, and the log is checked and opened again; the peak of the process may grow by little.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import uvloop

from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.log.verify import verify
from tailrace.model.commit import Draft
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.testing.source import ScriptedSource

CHANGES = 2_000_000
WARM_CHANGES = 200_000
PART_CHANGES = 8192
RATIO_MAX = 0.25

SCHEMA = TableSchema(TableName("app", "orders"), 1, (Column("id", Kind.I64), Column("note", Kind.STR)), ("id",))


class LargeCommits(ScriptedSource):
    """Yields one commit of each size, in parts that are made when they are asked for."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__("app", [])
        self._sizes = sizes

    async def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft], None]:
        for number, size in enumerate(self._sizes, 1):
            for part, begin in enumerate(range(0, size, PART_CHANGES)):
                count = min(PART_CHANGES, size - begin)
                draft = Draft(Position(str(number)), 1, part=part, more=begin + count < size)
                for key in range(begin, begin + count):
                    image = b'{"id":%d,"note":"%s"}' % (key, b"n" * 130)
                    draft.add(Op.INSERT, SchemaId(1), b"[%d]" % key, after=image)
                yield [draft]
        await asyncio.Event().wait()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def capture(log: Log, size: int) -> float:
    """Return the seconds that one commit of this many changes takes to be confirmed."""
    source = LargeCommits([size])
    pump = Pump(source, log, CaptureState())
    await pump.open()
    begin = time.perf_counter()
    pumping = asyncio.create_task(pump.run())
    head = log.head
    await log.wait(head, 3600)
    seconds = time.perf_counter() - begin
    assert log.head == head + size
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    return seconds


async def read(log: Log, after: Offset) -> float:
    begin = time.perf_counter()
    first = after
    while (chunk := await log.read(after)) is not None:
        after = chunk.last
    return (after - first) / (time.perf_counter() - begin)


async def measure(directory: Path, changes: int) -> bool:
    files = DiskFiles(directory)
    log = await Log.open(files, LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    await capture(log, min(changes, WARM_CHANGES))
    await read(log, Offset(0))
    before_bytes, head = peak_bytes(), log.head
    size_bytes = -sum(path.stat().st_size for path in directory.iterdir())
    seconds = await capture(log, changes)
    size_bytes += sum(path.stat().st_size for path in directory.iterdir())
    captured_bytes = peak_bytes() - before_bytes
    rate = await read(log, head)
    await log.close()
    assert not verify(files).problems
    log = await Log.open(files, LogOptions(), SystemClock())
    assert (log.head, log.last_index) == (head + changes, 2)
    await log.close()
    grown_bytes = peak_bytes() - before_bytes
    ratio = grown_bytes / size_bytes
    good = ratio <= RATIO_MAX
    print(
        f"peak memory for a commit in parts / its size: {ratio:.3f} (bar {RATIO_MAX}) {'PASS' if good else 'MISS'}  "
        f"{changes} changes, {size_bytes / 1e6:.0f} MB; capture grew by {captured_bytes / 1e6:.1f} MB, reading, "
        f"checking and opening to {grown_bytes / 1e6:.1f} MB; captured {changes / seconds / 1e3:.0f} k changes/s, read "
        f"{rate / 1e3:.0f} k changes/s",
        flush=True,
    )
    return good


def main() -> int:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else CHANGES
    with tempfile.TemporaryDirectory() as name:
        return 0 if uvloop.run(measure(Path(name), changes)) else 1


if __name__ == "__main__":
    sys.exit(main())
