"""One process writes the log, others read it: on a real disk, also when the writer is killed."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from log_samples import contents, draft, rows_of
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions, LogReader, verify
from tailrace.log.segments import list_segments
from tailrace.model.errors import BehindHorizonError
from tailrace.model.number import Index, Offset

WRITER = """
import asyncio, sys
from pathlib import Path
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.model.commit import Draft
from tailrace.model.number import Position
from tailrace.model.op import Op
from tailrace.model.table import Column, TableName, TableSchema

async def main(directory, commits, retention):
    compacting = {"frame_changes_max": 3, "compact_interval_s": 0.01} if len(sys.argv) > 4 else {}
    options = LogOptions(segment_bytes_max=100_000, retention_changes=retention or None, **compacting)
    log = await Log.open(DiskFiles(Path(directory)), options, SystemClock())
    schema = await log.put_schema(TableSchema(TableName("app", "t"), 1, (Column("id"),)))
    async def append(number):
        draft = Draft(Position(str(number)), number)
        for change in range(3):
            draft.add(Op.INSERT, schema, b"[%d,%d]" % (number, change), after=b'{"id":%d}' % number)
        await log.append([draft])
        print(number, flush=True)
    number = int(log.position or 0)
    while number < commits:
        await asyncio.gather(*(append(number + step) for step in range(1, 6)))
        number += 5
    await log.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
OPTIONS = LogOptions(segment_bytes_max=100_000)


def start(directory: Path, commits: int, retention: int = 0, *more: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(directory), str(commits), str(retention), *more]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


async def until_written(directory: Path) -> LogReader:
    deadline_s = time.monotonic() + 30
    while True:
        reader = LogReader(DiskFiles(directory))
        if reader.head:
            return reader
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)


async def test_another_process_reads_everything_in_order_while_it_is_written(tmp_path):
    commits = 600
    with start(tmp_path, commits) as writer:
        reader = await until_written(tmp_path)
        keys: list[bytes] = []
        deadline_s = time.monotonic() + 60
        while len(keys) < 3 * commits:
            assert time.monotonic() < deadline_s
            chunk = await reader.read(Offset(len(keys)))
            if chunk is None:
                await asyncio.sleep(0.002)
                continue
            assert chunk.last <= reader.head
            keys += chunk.batch.column("key").to_pylist()[len(keys) + 1 - chunk.first :]
        writer.communicate(timeout=30)
    assert keys == [b"[%d,%d]" % (number, change) for number in range(1, commits + 1) for change in range(3)]
    assert len(reader.segments()) > 1
    assert verify(DiskFiles(tmp_path)).problems == ()


async def test_another_process_reads_everything_again_and_again_while_segments_are_compacted(tmp_path):
    commits = 2000
    files = DiskFiles(tmp_path)
    with start(tmp_path, commits, 0, "compact") as writer:
        readers = [await until_written(tmp_path)]
        ended, passes = False, 0
        while not ended:
            ended = writer.poll() is not None
            if passes % 5 == 0:
                readers = [*readers[-3:], LogReader(files)]
            for reader in readers:  # the older ones know files that were replaced since
                reader.refresh()
                after, keys = Offset(0), []
                while after < reader.head:
                    chunk = await reader.read(after) if passes % 2 else reader.load(after)
                    assert chunk is not None
                    keys += chunk.batch.column("key").to_pylist()[after + 1 - chunk.first :]
                    after = chunk.last
                assert keys == [b"[%d,%d]" % (1 + n // 3, n % 3) for n in range(len(keys))]
                assert await reader.commits.offset_before(Index(reader.last_index)) == 3 * (reader.last_index - 1)
                assert len(reader.segments()) >= 1
            assert verify(files).problems == ()
            passes += 1
        assert writer.wait(30) == 0
    assert any(segment.compacted for segment in list_segments(files))
    assert readers[-1].head == 3 * commits


async def test_kill_9_while_segments_are_compacted_loses_nothing(tmp_path):
    for _ in range(4):
        acknowledged = 0
        with start(tmp_path, 100_000, 0, "compact") as writer:
            assert writer.stdout is not None
            for _ in range(150):
                acknowledged = max(acknowledged, int(writer.stdout.readline()))
            writer.kill()
        assert verify(DiskFiles(tmp_path)).problems == ()
        log = await Log.open(DiskFiles(tmp_path), OPTIONS, SystemClock())
        assert log.last_index >= acknowledged
        assert (log.head, log.position) == (3 * log.last_index, str(log.last_index))
        await log.close()
        assert not list(tmp_path.glob("*.tmp"))
    reader = LogReader(DiskFiles(tmp_path))
    after, keys = Offset(0), []
    while (chunk := await reader.read(after)) is not None:
        keys += chunk.batch.column("key").to_pylist()[after + 1 - chunk.first :]
        after = chunk.last
    assert keys == [b"[%d,%d]" % (number, change) for number in range(1, reader.last_index + 1) for change in range(3)]


async def test_another_process_is_told_when_retention_overtakes_it(tmp_path):
    with start(tmp_path, 2000, 600) as writer:
        reader = await until_written(tmp_path)
        after, ended = Offset(0), False
        while True:
            try:
                chunk = await reader.read(after)
            except BehindHorizonError as error:
                after = Offset(error.horizon - 1)
                continue
            if chunk is not None:
                assert chunk.first <= after + 1 <= chunk.last
                after = chunk.last
            elif ended:
                break
            else:
                ended = writer.poll() is not None
                await asyncio.sleep(0.03)
        writer.communicate(timeout=30)
    assert after == 6000
    assert reader.horizon == 6000 - 600 + 1


async def test_every_acknowledged_commit_survives_kill_9(tmp_path):
    acknowledged = 0
    for _ in range(6):
        with start(tmp_path, 100_000) as writer:
            assert writer.stdout is not None
            for _ in range(40):
                acknowledged = max(acknowledged, int(writer.stdout.readline()))
            writer.kill()
            rest = writer.stdout.read().split()
            acknowledged = max([acknowledged, *map(int, rest[:-1])])
        report = verify(DiskFiles(tmp_path))
        assert report.problems == ()
        log = await Log.open(DiskFiles(tmp_path), OPTIONS, SystemClock())
        assert log.last_index >= acknowledged
        assert log.position == str(log.last_index)
        assert log.head == 3 * log.last_index
        await log.close()
    reader = LogReader(DiskFiles(tmp_path))
    after, keys = Offset(0), []
    while (chunk := await reader.read(after)) is not None:
        keys += chunk.batch.column("key").to_pylist()
        after = chunk.last
    assert keys == [b"[%d,%d]" % (number, change) for number in range(1, reader.last_index + 1) for change in range(3)]


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from log_samples import SCHEMA, draft
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions
from tailrace.model.errors import LogFullError

async def main():
    log = await Log.open(DiskFiles(Path(sys.argv[1])), LogOptions(zero_ahead_bytes=0), SystemClock())
    await log.put_schema(SCHEMA)
    await log.append([draft(1)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    refused = 0
    for _ in range(3):
        try:
            await log.append([draft(2, 500)])
        except LogFullError:
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await log.append([draft(2, 500)])
    await log.close()
    print(refused, log.head)

asyncio.run(main())
"""


def test_a_file_that_may_not_grow_is_a_full_disk_and_goes_on_when_it_may(tmp_path):
    arguments = [sys.executable, "-c", LIMITED, str(tmp_path), str(Path(__file__).parent.parent)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["3", "501"]
    report = verify(DiskFiles(tmp_path))
    assert (report.problems, report.changes) == ((), 501)


IN_PARTS = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from log_samples import SCHEMA, draft, parts_of
from tailrace.clock import SystemClock
from tailrace.log import DiskFiles, Log, LogOptions

async def main():
    log = await Log.open(DiskFiles(Path(sys.argv[1])), LogOptions(segment_bytes_max=20_000), SystemClock())
    await log.put_schema(SCHEMA)
    number = log.last_index
    while True:
        number += 1
        for part in parts_of(draft(number, 12), 1 + number % 5):
            await log.append([part])
            print(number, 0 if part.more else 1, flush=True)

asyncio.run(main())
"""


async def test_kill_9_in_the_middle_of_a_commit_in_parts_leaves_whole_commits(tmp_path):
    for killed in range(3):
        arguments = [sys.executable, "-c", IN_PARTS, str(tmp_path), str(Path(__file__).parent.parent)]
        acknowledged = 0
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(30 + killed):
                number, ended = map(int, writer.stdout.readline().split())
                acknowledged = number if ended else acknowledged
                assert LogReader(DiskFiles(tmp_path)).head % 12 == 0  # beside the writer: whole commits alone
            writer.kill()
        assert verify(DiskFiles(tmp_path)).problems == ()
        log = await Log.open(DiskFiles(tmp_path), OPTIONS, SystemClock())
        assert log.last_index >= acknowledged
        assert (log.head, log.position) == (12 * log.last_index, f"p{log.last_index}")
        await log.close()
        assert contents(DiskFiles(tmp_path)) == rows_of([draft(number, 12) for number in range(1, log.last_index + 1)])
