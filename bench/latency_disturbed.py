"""From a commit in SQLite to an SSE subscriber while something is in the way, against the same without it.

* Syncs of the log that take 20 ms, as on a slow or busy disk: what comes during one shares the next, so a commit waits
  for about two of them, and no queue grows.
* Compaction of sealed segments of small frames: it works in short steps with rests.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.latency import P99_MAX_MS, RATE, make_table, measure, over_sse, process, report
from bench.log_compact import SEALING, SINGLE, UnsyncedFiles
from tailrace.clock import SystemClock
from tailrace.datadir import DataDirectory
from tailrace.log import DiskFiles, Log
from tailrace.log.segments import list_segments
from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op

SYNC_S = 0.02
SYNCS_P50_MAX, SYNCS_P99_MAX = 2.0, 3.5
"""Of a commit that waits for the sync that is under way and for its own, and for the machine."""

SEALED_CHANGES = int(os.environ.get("BENCH_CHANGES", "120000"))
"""Commits of one change each in the log that is compacted: two segments."""

BESIDE_MAX = 1.5
"""p50 while segments are compacted against p50 without."""

COMPACT_INTERVAL_S = 5.0
"""How long after its start a server begins; see `LogOptions`."""


def served(directory: Path, database: Path, sync_s: float = 0.0):
    command = ["-m", "bench.latency_disturbed", "--serve", str(sync_s), "serve", "--json", "--data-dir", directory]
    return process(*command, "--source", f"app=sqlite:///{database}", "--http-port", "0", "--grpc-port", "0")


def serve(sync_s: float, arguments: list[str]) -> None:
    """Be a server, with a slower disk for its log if asked for."""
    from tailrace.cli import main as command
    from tailrace.log import files

    sync = files._sync

    def slowly(descriptor: int) -> None:
        sync(descriptor)
        time.sleep(sync_s)

    if sync_s:
        files._sync = slowly
    sys.argv = ["tailrace", *arguments]
    command()


async def fill(directory: Path) -> None:
    """Add commits of one change each to a log, as its source would have written them, and seal what is there."""
    log = await Log.open(UnsyncedFiles(directory), SINGLE, SystemClock())
    position = log.position
    assert position is not None
    numbers = range(SEALED_CHANGES)
    for first in numbers[::2000]:
        await asyncio.gather(*(log.append([commit(position, number)]) for number in numbers[first : first + 2000]))
    await log.close()
    log = await Log.open(DiskFiles(directory), SEALING, SystemClock())
    await log.append([commit(position, SEALED_CHANGES)])
    await log.close()


def commit(position: Position, number: int) -> Draft:
    made = Draft(position, 1_700_000_000_000_000 + number)
    image = b'{"id":%d,"name":"a name","amount":12.5,"note":"a note of some length that nobody reads"}' % number
    made.add(Op.INSERT, SchemaId(1), b"[%d]" % number, after=image)
    return made


def slow_syncs(directory: Path) -> list[bool]:
    path = directory / "slow.db"
    make_table(path)
    with served(directory / "slow", path, SYNC_S) as (pid, addresses), over_sse(addresses) as keys:
        found = measure(f"syncs of {SYNC_S * 1000:.0f} ms", directory, path, pid, keys)
    syncs_ms = SYNC_S * 1000
    return [
        report("p50 in syncs", found.p(0.5) / syncs_ms, SYNCS_P50_MAX, "x"),
        report("p99 in syncs", found.p(0.99) / syncs_ms, SYNCS_P99_MAX, "x"),
    ]


def compaction(directory: Path) -> list[bool]:
    path, place = directory / "app.db", directory / "data"
    make_table(path)
    with served(place, path) as (pid, addresses), over_sse(addresses) as keys:
        alone = measure(f"{RATE} commits/s", directory, path, pid, keys)
    log = DataDirectory(place).shard(0)
    asyncio.run(fill(log))
    with served(place, path) as (pid, addresses), over_sse(addresses) as keys:
        before = compacted(log)
        time.sleep(COMPACT_INTERVAL_S)
        beside = measure("... while segments are compacted", directory, path, pid, keys)
        done = compacted(log) - before
        print(f"segments compacted meanwhile: {done}, under way: {len(list(log.glob('*.tmp')))}", flush=True)
    return [
        report("p99 while segments are compacted", beside.p(0.99), P99_MAX_MS),
        report("... p50 against the same without", beside.p(0.5) / alone.p(0.5), BESIDE_MAX, "x"),
    ]


def compacted(log: Path) -> int:
    return sum(segment.compacted for segment in list_segments(DiskFiles(log)))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        return 0 if all([*slow_syncs(Path(name)), *compaction(Path(name))]) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", sync_s, *arguments]:
            serve(float(sync_s), arguments)
        case _:
            sys.exit(main())
