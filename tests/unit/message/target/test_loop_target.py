"""A loop in a thread of its own runs what another thread gives it."""

import asyncio
import threading

import pytest

from tailrace.message.target.loop_target import TargetThread


async def _named():
    return threading.current_thread().name


async def _cancelled():
    raise asyncio.CancelledError


def test_what_is_run_runs_in_the_thread_of_the_loop_also_after_it_was_closed():
    loop = TargetThread("loop-of-test")
    for _ in range(2):
        assert loop.run(_named()) == "loop-of-test"
        loop.close()


def test_what_the_client_cancels_is_a_connection_that_broke():
    loop = TargetThread("loop-of-test")
    try:
        with pytest.raises(ConnectionAbortedError):
            loop.run(_cancelled())
        assert loop.run(_named()) == "loop-of-test"
    finally:
        loop.close()
