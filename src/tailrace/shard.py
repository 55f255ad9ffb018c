"""A shard: one source with its log and the pump between them."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tailrace.capture import CaptureState, Pump
from tailrace.clock import Clock
from tailrace.log.files import DiskFiles
from tailrace.log.hybrid import HybridClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.number import Offset
from tailrace.source.kind import OpenedSource

__all__ = ["Shard"]

logger = logging.getLogger(__name__)


class Shard:
    """One source with its log and the pump between them. Get one by `open`; `close` it at last."""

    def __init__(self, number: int, opened: OpenedSource, log: Log, directory: Path) -> None:
        self.number = number
        self.directory = str(directory)
        self.name = opened.capture.name
        self.opened = opened
        self.log = log
        self.state = CaptureState()
        self.pump = Pump(opened.capture, log, self.state)

    @classmethod
    async def open(
        cls,
        number: int,
        opened: OpenedSource,
        directory: Path,
        options: LogOptions,
        clock: Clock,
        hybrid: HybridClock,
        floor: Offset | None,
    ) -> "Shard":
        """Open the log of a source; nothing from `floor` on is removed before the holders of the log have said more."""
        name = opened.capture.name
        log = await Log.open(DiskFiles(directory), options, clock, hybrid=hybrid, floor=floor, source=name)
        window = {"horizon": log.horizon, "head": log.head, "position": log.position}
        logger.info("log opened", extra={"source": name, **window})
        return cls(number, opened, log, directory)

    def waiting_for(self) -> Sequence[str]:
        """Return why capture does not move, in words; nothing when it does."""
        if self.state.problem:
            return [f"source {self.name}: {self.state.problem}"]
        return [] if self.state.open else [f"source {self.name} to open"]

    async def run(self) -> None:
        """Capture until cancelled."""
        await self.pump.open()
        await self.pump.run()

    async def close(self) -> None:
        """Close all sides of the source, then the log."""
        opened = self.opened
        async with AsyncExitStack() as stack:  # which closes the rest too where one of them fails
            stack.push_async_callback(self.log.close)
            for part in (opened.capture, opened.reads, opened.values, opened.statements):
                if part is not None:
                    stack.push_async_callback(part.close)
