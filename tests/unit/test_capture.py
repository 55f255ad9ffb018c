"""Facts about the pump."""

import asyncio
import threading

import pytest

from log_samples import parts_of
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.log.recover import examine
from tailrace.log.verify import verify
from tailrace.model.commit import Draft, Progress
from tailrace.model.errors import LogClosedError, SourceStateError, SourceUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.retry import Backoff
from tailrace.testing.files import MemoryFiles
from tailrace.testing.source import DirectScriptedSource, ScriptedSource

SCHEMA = TableSchema(TableName("app", "t"), 1, (Column("id", Kind.I64),), ("id",))
AT_ONCE = Backoff(0.0, 0.0)


def commit(position: str, rows: int = 1) -> Draft:
    draft = Draft(position, 1)
    for row in range(rows):
        draft.add(Op.INSERT, 1, b"[%d]" % row, after=b'{"id":%d}' % row)
    return draft


@pytest.fixture(params=[ScriptedSource, DirectScriptedSource], ids=["by the event loop", "by a thread of the source"])
def scripted(request):
    return request.param


@pytest.fixture
async def log():
    log = await Log.open(MemoryFiles(), LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    yield log
    await log.close()


async def pump_until(source, log, head, state=None):
    """Run a pump until the log's head is there."""
    pump = Pump(source, log, state or CaptureState(), AT_ONCE)
    await pump.open()
    task = asyncio.create_task(pump.run())
    try:
        async with asyncio.timeout(30):
            while log.head < head and not task.done():
                await log.wait(log.head, 0.05)
            while log.position not in source.confirmed and not task.done():
                await asyncio.sleep(0)
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_commits_are_appended_in_order_and_then_confirmed(log, scripted):
    source = scripted("app", [commit("1", 2), commit("2")])
    await pump_until(source, log, 3)
    assert log.position == "2"
    assert source.confirmed in (["1", "2"], ["2"])


async def test_it_resumes_after_the_last_position_in_the_log(log, scripted):
    await log.append([commit("1", 2)])
    await pump_until(scripted("app", [commit("1", 2), commit("2")]), log, 3)
    assert (log.head, log.last_index) == (3, 2)


async def test_a_source_that_cannot_be_reached_is_tried_again(log, scripted):
    away = SourceUnavailableError("away")
    source = scripted("app", [commit("1"), away, commit("2")], open_errors=[away])
    state = CaptureState()
    await pump_until(source, log, 2, state)
    assert (log.head, log.position) == (2, "2")
    assert source.opened == 3
    assert state.problem == ""


async def test_a_full_disk_stops_capture_unconfirmed_until_there_is_space(scripted):
    files = MemoryFiles()
    log = await Log.open(files, LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    source, state = scripted("app", [commit("1", 100)]), CaptureState()
    files.capacity_bytes = files.used_bytes()
    pump = Pump(source, log, state, AT_ONCE)
    await pump.open()
    task = asyncio.create_task(pump.run())
    async with asyncio.timeout(30):
        while not state.problem:
            await asyncio.sleep(0)
    assert (log.head, source.confirmed) == (0, [])
    files.capacity_bytes = None
    async with asyncio.timeout(30):
        while not source.confirmed:
            await asyncio.sleep(0)
    assert (log.head, state.problem) == (100, "")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.close()


async def test_a_source_that_needs_help_ends_the_pump(log, scripted):
    with pytest.raises(SourceStateError, match="do this"):
        await pump_until(scripted("app", [SourceStateError("do this")]), log, 1)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def test_progress_without_changes_moves_the_position_and_is_confirmed(log, scripted):
    source = scripted("app", [commit("1"), Progress("2"), commit("3"), Progress("4")])
    pump = Pump(source, log, CaptureState(), AT_ONCE, progress_interval_s=0.0)
    await pump.open()
    task = asyncio.create_task(pump.run())
    await until(lambda: "4" in source.confirmed)
    assert (log.position, log.head, log.last_index) == ("4", 2, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    more = scripted("app", [commit("1"), Progress("2"), commit("3"), Progress("4"), commit("5")])
    await pump_until(more, log, 3)
    assert (log.position, log.last_index) == ("5", 3)


class StepByStep(ScriptedSource):
    """Yields progress, and the next one when that is confirmed."""

    async def commits(self, after):
        for position in ("1", "2"):
            yield Progress(position)
            while position not in self.confirmed:
                await asyncio.sleep(0)


@pytest.mark.parametrize(("interval_s", "confirmed"), [(3600.0, ["1"]), (0.01, ["1", "2"])])
async def test_progress_is_known_at_once_and_confirmed_when_it_was_due_and_is_on_disk(interval_s, confirmed):
    files = MemoryFiles()
    log = await Log.open(files, LogOptions(), SystemClock())
    source = StepByStep("app", [])
    pump = Pump(source, log, CaptureState(), AT_ONCE, progress_interval_s=interval_s)
    await pump.open()
    task = asyncio.create_task(pump.run())
    await until(lambda: log.position == "2" and source.confirmed == confirmed)
    assert examine(files).position == confirmed[-1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.close()
    assert examine(files).position == "2"


def parts(position: str, rows: int, count: int) -> list[Draft]:
    return parts_of(commit(position, rows), count)


async def test_a_commit_in_parts_is_one_commit_and_is_confirmed_once(log, scripted):
    source = scripted("app", [commit("1"), *parts("2", 9, 3), commit("3")])
    await pump_until(source, log, 11)
    assert (log.head, log.last_index, log.position) == (11, 3, "3")
    assert not set(source.confirmed) - {"1", "2", "3"}
    assert source.confirmed == sorted(set(source.confirmed))


async def test_a_source_that_breaks_off_in_the_middle_of_a_commit_begins_it_again(log, scripted):
    away = SourceUnavailableError("away")
    first, second, third = parts("2", 9, 3)
    source = scripted("app", [commit("1"), first, second, away, third, commit("3")])
    await pump_until(source, log, 11)
    chunk = await log.read(0)
    assert (log.head, log.last_index, log.position) == (11, 3, "3")
    assert chunk.first == 1
    assert verify(log._files).commits == 3


async def test_a_disk_that_fills_up_in_the_middle_of_a_commit_takes_all_of_it_later(scripted):
    files = MemoryFiles()
    log = await Log.open(files, LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    source, state = scripted("app", parts("1", 3000, 6)), CaptureState()
    files.capacity_bytes = files.used_bytes() + 60_000
    pump = Pump(source, log, state, AT_ONCE)
    await pump.open()
    task = asyncio.create_task(pump.run())
    await until(lambda: state.problem)
    assert (log.head, source.confirmed) == (0, [])
    files.capacity_bytes = None
    await until(lambda: source.confirmed)
    assert (log.head, log.last_index, source.confirmed, state.problem) == (3000, 1, ["1"], "")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.close()
    assert verify(files).problems == ()


async def test_few_changes_are_appended_by_the_thread_that_hands_them_over(log):
    threads = []
    append_now = log.append_now

    def noted(drafts):
        threads.append(threading.current_thread())
        append_now(drafts)

    log.append_now = noted
    await pump_until(DirectScriptedSource("app", [commit("1"), commit("2", 1000), commit("3")]), log, 1002)
    assert (log.head, log.last_index, log.position) == (1002, 3, "3")
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_pump_that_waits_for_the_disk_can_be_cancelled(scripted):
    files = MemoryFiles()
    log = await Log.open(files, LogOptions(), SystemClock())
    await log.put_schema(SCHEMA)
    files.capacity_bytes = files.used_bytes()
    state = CaptureState()
    pump = Pump(scripted("app", [commit("1"), commit("2")]), log, state, Backoff(3600.0, 3600.0))
    await pump.open()
    task = asyncio.create_task(pump.run())
    await until(lambda: state.problem)
    task.cancel()
    async with asyncio.timeout(30):
        await asyncio.gather(task, return_exceptions=True)
    files.capacity_bytes = None
    await log.close()
    assert verify(files).commits == 0


async def test_a_failure_of_an_append_is_heard_of_though_nothing_more_comes(log):
    source = DirectScriptedSource("app", [Progress("1")])

    async def fails(position, *, durable):
        raise LogClosedError("closed")

    log.progress = fails
    pump = Pump(source, log, CaptureState(), AT_ONCE)
    await pump.open()
    with pytest.raises(LogClosedError):
        async with asyncio.timeout(30):
            await pump.run()
