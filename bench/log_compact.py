"""A log written one commit at a time, replayed before and after compaction, against one written in groups.

And what a filter that wants 1 % of the changes costs against delivering all, where those are spread and where they lie
together. All in one run, by processor time of the process with all its threads, so that other work on the machine
counts little; in a process that takes its memory as a server does. Each log lies on disk, sealed but for its last
commit: in a log of 5 M commits the newest segment is 1 %.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop
from msgspec.structs import replace

from bench._served import run_as_server
from bench.log_read import TABLES, VIEW, drained, report
from tailrace.clock import SystemClock
from tailrace.interface.skeindb.present import encode
from tailrace.log import DiskFiles, File, Log, LogOptions
from tailrace.model.commit import Draft
from tailrace.model.number import Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.subscription.bulk import bulk_runs
from tailrace.subscription.filter import Filter

CHANGES = int(os.environ.get("BENCH_CHANGES", "1000000"))
GROUP = 1000
ROUNDS = 3
FILTER_ROUNDS = 9
REPLAY_RATIO_MIN = 0.5
SPREAD_RATIO_MIN = 5.0
CLUSTERED_RATIO_MIN = 50.0
OPTIONS = LogOptions(retention_bytes=None, retention_age_s=None, compact=False, ring_changes_max=1)
SINGLE = replace(OPTIONS, frame_changes_max=1)
SEALING = replace(OPTIONS, segment_bytes_max=1)

Rare = Callable[[int], bool]


def every_hundredth(number: int) -> bool:
    return number % 100 == 0


def together(number: int) -> bool:
    return CHANGES // 3 <= number < CHANGES // 3 + CHANGES // 100


def commit(first: int, count: int, rare: Rare) -> Draft:
    """Return a commit. Changes of the rare kind are of another table, and all of one key."""
    made = Draft(Position(str(first)), 1_700_000_000_000_000 + first)
    for number in range(first, first + count):
        image = b'{"id":%d,"customer":"customer-%06d","status":"paid","note":"%s"}' % (
            number,
            number % 1000,
            b"n" * 100,
        )
        key = b"[-1]" if rare(number) else b"[%d]" % (number * 7919 % 1_000_003)
        made.add(Op.INSERT, SchemaId(2 if rare(number) else 1), key, after=image)
    return made


class Unsynced:
    """An open file whose sync does nothing: a sync for each of so many commits takes minutes and is not measured."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedFiles(DiskFiles):
    """Files of a log that is only made to be read."""

    def open(self, name: str, *, write: bool = False) -> File:
        return Unsynced(super().open(name, write=write))

    def create(self, name: str) -> File:
        return Unsynced(super().create(name))


async def write(directory: Path, options: LogOptions, commit_changes: int, rare: Rare) -> None:
    log = await Log.open(UnsyncedFiles(directory), options, SystemClock())
    for schema in TABLES:
        await log.put_schema(schema)
    step = 2000 if commit_changes == 1 else 16 * commit_changes
    for first in range(0, CHANGES, step):
        numbers = range(first, min(first + step, CHANGES), commit_changes)
        await asyncio.gather(*(log.append([commit(number, commit_changes, rare)]) for number in numbers))
    await log.close()
    log = await Log.open(DiskFiles(directory), SEALING, SystemClock())
    await log.append([commit(CHANGES, 1, rare)])
    await log.close()


async def compact(directory: Path) -> float:
    log = await Log.open(DiskFiles(directory), OPTIONS, SystemClock())
    begin = time.process_time()
    await log.compact()
    seconds = time.process_time() - begin
    await log.close()
    return seconds


async def replay(directory: Path, chosen: Filter | None, *, send: bool = False) -> float:
    """Return the seconds for reading everything that may pass, encoding what does and, if wanted, sending it."""
    log = await Log.open(DiskFiles(directory), OPTIONS, SystemClock())
    wanted = None if chosen is None else chosen.wanted(log.schemas())
    with drained() as sink:
        begin, after = time.process_time(), Offset(0)
        while True:
            if chosen is not None:
                after = await log.skip(after, lambda: wanted)
            chunk = await log.read(after, lambda: wanted)
            if chunk is None:
                break
            rows = chosen.select(chunk) if chosen else range(len(chunk))
            if len(rows):
                encoded = encode(chunk, rows, VIEW)
                if send:
                    sink.sendall(encoded.cut(after, len(chunk), 1 << 30).data)
            after = chunk.last
        seconds = time.process_time() - begin
    await log.close()
    return seconds


async def bulk(directory: Path, schemas: frozenset[SchemaId] | None) -> float:
    log = await Log.open(DiskFiles(directory), OPTIONS, SystemClock())
    begin = time.process_time()
    async for _ in bulk_runs(log, Offset(0), log.head, schemas, _serialized):
        pass
    seconds = time.process_time() - begin
    await log.close()
    return seconds


def _serialized(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(batch.serialize().size for batch in batches if batch.num_rows)


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS))


def measure_replay(single: Path, group: Path) -> bool:
    good = True
    for name, run in (
        ("feed", lambda path: uvloop.run(replay(path, None))),
        ("bulk", lambda path: uvloop.run(bulk(path, None))),
    ):
        before, grouped = best(lambda: run(single)), best(lambda: run(group))  # noqa: B023
        print(f"{name}: one commit a frame {CHANGES / before / 1e3:.0f} k changes/s, {grouped / before:.2f} of groups")
    seconds = uvloop.run(compact(single))
    print(f"compaction takes {seconds / CHANGES * 1e6:.1f} µs of processor time a change")
    for name, run in (
        ("feed", lambda path: uvloop.run(replay(path, None))),
        ("bulk", lambda path: uvloop.run(bulk(path, None))),
    ):
        after, grouped = best(lambda: run(single)), best(lambda: run(group))  # noqa: B023
        measured = f"{CHANGES / after / 1e3:.0f} k changes/s, {grouped / after:.2f} of groups"
        reached = grouped / after >= REPLAY_RATIO_MIN
        good &= report(f"{name}: one commit a frame, compacted", measured, f"{REPLAY_RATIO_MIN}", good=reached)
    return good


def measure_filters(spread: Path, clustered: Path) -> bool:
    good = True
    by_table = Filter(TableTarget((TABLES[1].table,)), FilterOptions(tuple(Op)))
    by_key = Filter(
        TableTarget(tuple(table.table for table in TABLES)), FilterOptions(tuple(Op), key=({"t": "i64", "v": -1},))
    )
    for place, path, bar in (("spread", spread, SPREAD_RATIO_MIN), ("together", clustered, CLUSTERED_RATIO_MIN)):
        uvloop.run(compact(path))
        filters = {"all": None, "table": by_table, "key": by_key}
        times: dict[str, list[float]] = {name: [] for name in filters}
        for _ in range(FILTER_ROUNDS):
            for name, chosen in filters.items():
                times[name].append(uvloop.run(replay(path, chosen, send=True)))
        everything = min(times["all"])
        for name in ("table", "key"):
            seconds = min(times[name])
            ratio = everything / seconds
            measured = (
                f"{ratio:.1f}x; {seconds * 1e9 / CHANGES:.1f} against {everything * 1e9 / CHANGES:.0f} ns a change"
            )
            good &= report(f"1 % by {name}, {place} / deliver all", measured, f"{bar}x", good=ratio >= bar)
    return good


def run() -> int:
    with tempfile.TemporaryDirectory() as name:
        single, group, clustered = (Path(name) / part for part in ("single", "group", "clustered"))
        uvloop.run(write(single, SINGLE, 1, every_hundredth))
        uvloop.run(write(group, OPTIONS, GROUP, every_hundredth))
        uvloop.run(write(clustered, OPTIONS, GROUP, together))
        good = measure_replay(single, group)
        good &= measure_filters(group, clustered)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(run_as_server("bench.log_compact"))
