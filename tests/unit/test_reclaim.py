"""Facts about giving memory back."""

import asyncio
import socket
from pathlib import Path

import pytest

from tailrace import reclaim
from tailrace.reclaim import Reclaimer, open_descriptors, trim


@pytest.mark.parametrize(
    ("counts", "collected"),
    [
        ([10, 2000, 2000, 10, 10], [3]),
        ([2000, 1200, 900, 800], [2]),
        ([400, 10], []),
        ([10_000, 9_000, 8_000], []),
        ([2000, 10, 2000, 10], [1, 3]),
    ],
    ids=["all at once", "more than are left", "few", "fewer than are left", "again"],
)
async def test_garbage_is_collected_when_more_connections_have_gone_than_are_left(counts, collected):
    calls, seen = [], []

    def count():
        seen.append(counts[len(seen)])
        return seen[-1]

    reclaimer = Reclaimer(count, lambda: calls.append(len(seen) - 1), lambda: None)
    while len(seen) < len(counts):
        await reclaimer.look()
    assert calls == collected


async def test_unused_memory_is_given_back_then_and_from_time_to_time():
    counts, trims = [600, *[1] * 20], []
    reclaimer = Reclaimer(lambda: counts.pop(0), lambda: None, lambda: trims.append(len(counts)))
    while counts:
        await reclaimer.look()
    assert trims == [19, 7]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="nobody tells how many there are")
def test_open_connections_are_counted():
    before = open_descriptors()
    with socket.socket(), socket.socket():
        assert open_descriptors() == before + 2


async def test_what_starting_took_is_given_back_once_soon_after_it(monkeypatch):
    monkeypatch.setattr(reclaim, "_SETTLE_S", 0.0)
    settled = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(Reclaimer(settle=lambda: loop.call_soon_threadsafe(settled.set)).run())
    async with asyncio.timeout(30):
        await settled.wait()
    running.cancel()


def test_trimming_does_no_harm():
    trim()
