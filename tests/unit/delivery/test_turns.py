"""Facts about how streams share the event loop."""

import asyncio

import pytest

from tailrace.delivery.turns import Turns

MIB = 1 << 20


class Rounds:
    """Counts how many turns are taken in each round of the event loop. `cost_s` is how long each takes."""

    def __init__(self, cost_s):
        self.now_s = 0.0
        self.turns = Turns(lambda: self.now_s)
        self.counts = []
        self._cost_s = cost_s

    async def run(self, streams, each):
        """Let so many streams take so many turns each; return the order in which they did."""
        order = []
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self._count())
            tasks = [group.create_task(self._stream(number, each, order)) for number in range(streams)]
            await asyncio.wait(tasks)
            counting.cancel()
        return order

    async def _count(self):
        while True:
            self.counts.append(0)
            await asyncio.sleep(0)

    async def _stream(self, number, each, order):
        for _ in range(each):
            await self.turns.take()
            self.counts[-1] += 1
            self.now_s += self._cost_s
            order.append(number)


async def test_a_few_streams_never_wait():
    rounds = Rounds(0.0)
    await rounds.run(streams=8, each=1)
    assert max(rounds.counts) == 8


async def test_others_run_between_the_turns_of_many_streams():
    rounds = Rounds(cost_s=0.001)
    await rounds.run(streams=1000, each=3)
    assert sum(rounds.counts) == 3000
    assert max(rounds.counts) <= 32
    assert max(rounds.counts[len(rounds.counts) // 2 :]) <= 8  # 5 ms a round, once it is known what a turn costs


async def test_cheap_turns_are_many_in_a_round():
    rounds = Rounds(cost_s=0.000_001)
    await rounds.run(streams=1000, each=20)
    assert max(rounds.counts) > 200


async def test_dear_turns_are_never_too_few_to_go_on():
    rounds = Rounds(cost_s=1.0)
    await rounds.run(streams=100, each=5)
    assert min(count for count in rounds.counts[30:100] if count) >= 3


async def test_turns_are_given_in_the_order_of_asking():
    assert await Rounds(0.001).run(streams=100, each=1) == list(range(100))


async def test_a_stream_that_leaves_while_it_waits_takes_no_turn_from_others():
    turns = Turns()
    waiting = [asyncio.create_task(turns.take()) for _ in range(200)]
    await asyncio.sleep(0)
    for task in waiting[50:150]:
        task.cancel()
    done, _ = await asyncio.wait(waiting)
    assert sum(not task.cancelled() for task in done) >= 100


@pytest.mark.parametrize(
    ("streams", "piece"), [(0, 512), (1, 512), (128, 512), (129, 256), (2000, 32), (100_000, 16)], ids=str
)
def test_the_more_streams_there_are_the_smaller_are_their_pieces(streams, piece):
    turns = Turns()
    held = [turns.joined() for _ in range(streams)]
    for one in held:
        one.__enter__()
    assert turns.piece_bytes(512 << 10) == piece << 10
    assert turns.piece_bytes(1000) == 1000
    assert piece << 10 == 16 << 10 or streams * (piece << 10) <= 64 * MIB
    for one in held:
        one.__exit__(None, None, None)
    assert turns.piece_bytes(512 << 10) == 512 << 10


async def test_who_follows_is_not_held_up_by_replays():
    turns, order = Turns(), []

    async def stream(name, behind):
        await turns.take(behind)
        order.append(name)

    replays = [asyncio.create_task(stream("replay", 10_000)) for _ in range(500)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert 0 < len(order) < 100
    await stream("live", 0)
    assert len(order) < 120
    await asyncio.gather(*replays)
    assert order.count("replay") == 500


async def test_replays_have_turns_however_many_follow():
    turns, replayed = Turns(), 0

    async def follow():
        while replayed < 10:
            await turns.take(0)
            await asyncio.sleep(0)

    async def replay():
        nonlocal replayed
        for _ in range(10):
            await turns.take(1_000_000)
            replayed += 1

    async with asyncio.timeout(20):
        await asyncio.gather(replay(), *(follow() for _ in range(500)))
