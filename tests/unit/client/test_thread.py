"""Facts about running coroutines from threads that do not await."""

import asyncio
import signal
import threading

import pytest

from tailrace.client.errors import ConnectionFailed
from tailrace.client.thread import LoopThread


@pytest.fixture
def thread():
    thread = LoopThread()
    yield thread
    thread.close()


async def answer(value):
    await asyncio.sleep(0)
    return value


def test_a_coroutine_gives_its_result(thread):
    assert thread.run(answer(7)) == 7


def test_a_coroutine_raises_its_error(thread):
    async def fail():
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        thread.run(fail())


def test_many_threads_may_call_at_one_time(thread):
    results = []
    callers = [threading.Thread(target=lambda n=n: results.append(thread.run(answer(n)))) for n in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(results) == list(range(8))


def test_an_interrupt_ends_the_coroutine_before_it_is_raised(thread):
    ended = []

    async def wait():
        try:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        thread.run(wait())
    assert ended == [True]
    assert thread.run(answer(1)) == 1


def test_closing_it_ends_what_still_runs_and_refuses_more():
    thread = LoopThread()
    begun, outcome = threading.Event(), []

    async def wait():
        begun.set()
        await asyncio.Event().wait()

    def call():
        try:
            thread.run(wait())
        except ConnectionFailed as error:
            outcome.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(30)
    thread.close()
    thread.close()
    caller.join(30)
    assert outcome == ["the client was disconnected"]
    with pytest.raises(ConnectionFailed, match="the client was disconnected"):
        thread.run(answer(1))


def test_closing_it_while_many_call_leaves_none_waiting():
    for _ in range(20):
        thread = LoopThread()
        outcomes = []

        def call(thread=thread, outcomes=outcomes):
            try:
                while True:
                    thread.run(answer(1))
            except ConnectionFailed:
                outcomes.append(True)

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        thread.close()
        for caller in callers:
            caller.join(30)
        assert outcomes == [True] * 4
