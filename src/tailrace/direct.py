"""Following a database without a server: source, log and pump in this process, events as lines of JSON."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.delivery.view import View
from tailrace.interface.skeindb import present
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.metrics import Metrics
from tailrace.model.chunk import Chunk
from tailrace.model.subscription import Format, Include
from tailrace.source.base import Reader
from tailrace.source.kind import SourceTools
from tailrace.sources import ResolvedSource

__all__ = ["LINES", "follow", "lines"]

LINES = View(present.LINES, Format.PLAIN_JSON, Include(before=True, after=True))
"""Events as lines of plain JSON with both images."""

_WAIT_S = 1.0


async def follow(
    resolved: ResolvedSource,
    directory: Path,
    tables: Sequence[str],
    on_ready: Callable[[], None] = lambda: None,
    format_: Format = Format.PLAIN_JSON,
) -> AsyncGenerator[bytes, None]:
    """Yield the changes of a database from now on, one line each; `tables` empty means all.

    The log is kept in `directory`. Capture is set up for as long as the generator runs. `on_ready` is called when
    every change that is committed later is captured.

    Raises:
        SourceError: The database cannot be captured.
    """
    clock = SystemClock()
    view = View(present.LINES, format_, Include(before=True, after=True))
    reader = Reader(f"tail-{uuid.uuid4()}", ephemeral=True)
    source = resolved.open("default", reader, SourceTools(clock, Metrics())).capture
    log = await Log.open(DiskFiles(directory), LogOptions(), clock)
    pump = Pump(source, log, CaptureState())
    try:
        await pump.open()  # waits where a writer has the database locked
        on_ready()
        capture = asyncio.create_task(pump.run())
        try:
            after = log.head
            while not capture.done():
                chunk = await log.read(after) if await log.wait(after, _WAIT_S) else None
                if chunk is not None:
                    for line in lines(chunk, tables, after, view):
                        yield line
                    after = chunk.last
            await capture
        finally:
            capture.cancel()
            await asyncio.gather(capture, return_exceptions=True)
    finally:
        await source.close()
        await log.close()


def lines(chunk: Chunk, tables: Sequence[str], after: int, view: View = LINES) -> list[bytes]:
    """Return the changes of a chunk that follow `after`, one line each, without the line's end."""
    wanted = {number for number, schema in chunk.schemas.items() if not tables or schema.table.wire in tables}
    schemas = chunk.batch.column("schema").to_pylist()
    first = max(0, after + 1 - chunk.first)
    rows = [row for row in range(first, len(chunk)) if schemas[row] in wanted]
    return [line[:-1] for line in present.encode(chunk, rows, view).events()]
