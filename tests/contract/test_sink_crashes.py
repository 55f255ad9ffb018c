"""A sink whose process is killed at any moment has, in the end, each change once."""

import multiprocessing
import os
import random

import pytest

from sink_places import PLACES, rows_of
from sink_worker import BATCHES, tell, work
from tailrace.pipeline.sink.base import Mode

LONG = bool(os.environ.get("LONG_TESTS"))
KILLS = 20 if LONG else 2
CASES = [
    ("parquet", Mode.APPEND),
    ("delta", Mode.HISTORY),
    ("iceberg", Mode.CURRENT),
    ("parquet-s3", Mode.APPEND),
    ("delta-s3", Mode.CURRENT),
    ("iceberg-s3", Mode.CURRENT),
    ("sqlite", Mode.HISTORY),
    ("postgresql", Mode.CURRENT),
    ("mysql", Mode.HISTORY),
]
if LONG:
    CASES = [(kind, mode) for kind, place in PLACES.items() for mode in place.kinds]
WAIT_S = 60


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "sink_worker",
            "tailrace.pipeline.sink.delta",
            "tailrace.pipeline.sink.iceberg",
            "tailrace.pipeline.sink.files",
            "tailrace.pipeline.sink.mysql",
            "tailrace.pipeline.sink.postgres",
        ]
    )
    return context


def run(processes, place, kill_after):
    """Let a process apply batches; kill it somewhat after so many. Return the last batch that it told of."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=work, args=(place.url, place.mode, sender))
    process.start()
    sender.close()
    told = []
    try:
        while len(told) <= kill_after:
            assert receiver.poll(WAIT_S)
            told.append(receiver.recv())
        receiver.poll(random.random() * 0.02)
        process.kill()
    except EOFError:
        pass
    process.join(WAIT_S)
    receiver.close()
    return process.exitcode, [number for number in told if number is not None]


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_a_sink_whose_process_is_killed_has_each_change_once(kind, mode, tmp_path, servers, processes):
    place = PLACES[kind](tmp_path, mode, servers)
    seen = -1
    for _ in range(KILLS):
        _, told = run(processes, place, random.randrange(0, 4))
        assert all(number >= seen for number in told), "a batch that was there is gone"
        seen = max([seen, *told])
    assert run(processes, place, BATCHES + 1)[0] == 0
    source, batches = tell()
    sink = place.sink()
    sink.open(source.schemas)
    assert sink.applied() == BATCHES - 1
    for table in source.tables:
        assert rows_of(sink, table.schema) == table.rows
        contents = place.contents(table.name)
        if mode is Mode.APPEND:
            (told,) = (sum(t.changes.num_rows for b in batches for t in b.tables if t.schema == table.schema),)
            assert len(contents) == told
        if mode is Mode.HISTORY:
            assert len(contents) == len(table.versions)
    sink.close()
