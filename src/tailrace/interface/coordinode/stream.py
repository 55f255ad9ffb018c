"""Sending the commits of one shard to one client, until it goes."""

import asyncio

from tailrace.delivery.grpc.call import Call
from tailrace.interface.coordinode.cursor import CommitCursor
from tailrace.interface.coordinode.meter import Meter
from tailrace.interface.coordinode.options import StreamOptions

__all__ = ["send_commits"]


async def send_commits(
    call: Call, cursor: CommitCursor, options: StreamOptions, meter: Meter, *, progress_s: float
) -> None:
    """Send what a cursor reads, then what comes. While commits are left out, tell from time to time how far it read.

    Raises:
        CommitsLostError: The client is so slow that retention has overtaken it.
        LogClosedError: The log was closed.
    """
    loop = asyncio.get_running_loop()
    log = cursor.shard.log
    told_s = loop.time()
    while True:
        reading = await cursor.advance()
        if reading is None:
            if cursor.owes_progress:
                if not await log.wait(cursor.after, progress_s):
                    await call.write(cursor.progress())
            else:
                await log.wait(cursor.after, options.wait_s_max)
            continue
        idle = True
        for piece in reading.pieces(options.write_bytes_max):
            idle = False
            await call.write(piece)
            meter.sent(piece)
        if not idle:
            told_s = loop.time()
        elif cursor.owes_progress and loop.time() - told_s > progress_s:
            told_s = loop.time()
            await call.write(cursor.progress())
        await asyncio.sleep(0)
