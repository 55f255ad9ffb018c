"""Capture on a disk whose syncs take long: what comes during one sync shares the next, so nothing piles up."""

import asyncio
import threading

import pytest

from sqlite_capture import DEADLINE_S, StdlibWriter
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource
from tailrace.testing.files import MemoryFiles


class SlowFile:
    """An open file whose syncs wait for as long as the disk is `stuck`."""

    def __init__(self, file, disk):
        self._file = file
        self._disk = disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def sync(self):
        self._disk.syncs += 1
        assert self._disk.free.wait(DEADLINE_S)
        self._file.sync()


class SlowFiles(MemoryFiles):
    """A disk that can be stuck, and counts syncs."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.syncs = 0

    def open(self, name, *, write=False):
        return SlowFile(super().open(name, write=write), self)

    def create(self, name):
        return SlowFile(super().create(name), self)


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("waiting", [2, 50, 400])
async def test_commits_that_come_during_a_sync_share_the_next_one(tmp_path, waiting):
    path = tmp_path / "app.db"
    writer = StdlibWriter(path)
    writer.run("PRAGMA journal_mode = wal; PRAGMA synchronous = off; CREATE TABLE t(id INTEGER PRIMARY KEY)")
    files = SlowFiles()
    log = await Log.open(files, LogOptions(), SystemClock())
    source = SqliteSource("app", path, Reader("slow"), SqliteOptions(), SystemClock())
    pump = Pump(source, log, CaptureState())
    await pump.open()
    pumping = asyncio.create_task(pump.run())
    try:
        writer.run("INSERT INTO t VALUES(0)")
        await until(lambda: log.head == 1)  # the first one also makes the segment
        before = files.syncs
        files.free.clear()
        writer.run("INSERT INTO t VALUES(1)")
        await until(lambda: files.syncs == before + 1)
        writer.run("".join(f"INSERT INTO t VALUES({number});" for number in range(2, 2 + waiting)))
        assert log.head == 1, "nothing is shown before it is synced"
        files.free.set()
        await until(lambda: log.head == 2 + waiting)
        assert log.last_index == 2 + waiting, "each is a commit of its own"
        assert files.syncs == before + 2, "one that was under way, and one for all that came meanwhile"
    finally:
        files.free.set()
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        await source.close()
        await log.close()
        writer.close()
