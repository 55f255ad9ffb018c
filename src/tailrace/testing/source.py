"""A source that plays back a script."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from tailrace.model.commit import Draft, Progress
from tailrace.model.number import Position
from tailrace.model.table import TableSchema
from tailrace.source.base import SchemaRegistry

__all__ = ["ScriptedSource"]


class ScriptedSource:
    """Yields the commits that it was given, in order, and raises the errors that stand between them.

    The script is a list of drafts, progress and exceptions; an exception is raised once, when the stream reaches it.
    After the script's end the stream waits for ever. Positions must be unique; `commits(after)` continues after it.
    `open_errors` are raised by the first calls of `open`.
    """

    def __init__(
        self, name: str, script: Sequence[Draft | Progress | Exception], open_errors: Sequence[Exception] = ()
    ) -> None:
        self.name = name
        self.confirmed: list[Position] = []
        self.opened = 0
        self._script = list(script)
        self._open_errors = list(open_errors)

    async def open(self, registry: SchemaRegistry) -> None:
        """Open, or raise the next of the scripted errors."""
        self.opened += 1
        if self._open_errors:
            raise self._open_errors.pop(0)

    async def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft] | Progress, None]:
        """Yield the drafts and the progress behind `after`, one at a time."""
        begun = after is None
        for step in list(self._script):
            if isinstance(step, Exception):
                self._script.remove(step)
                raise step
            if begun:
                yield step if isinstance(step, Progress) else [step]
            begun = begun or step.position == after
        await asyncio.Event().wait()

    async def confirm(self, position: Position) -> None:
        """Note the position."""
        self.confirmed.append(position)

    async def close(self) -> None:
        """Do nothing."""

    def tables(self) -> Sequence[TableSchema]:
        """Return no tables."""
        return ()
