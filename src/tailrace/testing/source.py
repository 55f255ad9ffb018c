"""A source that plays back a script."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from msgspec.structs import replace

from tailrace.model.commit import Draft, Progress
from tailrace.model.number import Position
from tailrace.model.table import TableSchema
from tailrace.source.base import DirectSource, SchemaRegistry

__all__ = ["DirectScriptedSource", "ScriptedSource", "in_parts"]

_COLUMNS = ("ops", "schemas", "keys", "befores", "afters")


def in_parts(whole: Draft, changes_max: int) -> list[Draft]:
    """Return a commit in parts of this many changes; as it is where it has no more."""
    parts = []
    for part, begin in enumerate(range(0, len(whole), changes_max)):
        columns = {name: getattr(whole, name)[begin : begin + changes_max] for name in _COLUMNS}
        parts.append(replace(whole, part=part, more=begin + changes_max < len(whole), **columns))
    return parts


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

    @property
    def direct(self) -> DirectSource | None:
        """Return nothing: commits come by `commits` alone."""
        return None

    async def open(self, registry: SchemaRegistry) -> None:
        """Open, or raise the next of the scripted errors."""
        self.opened += 1
        if self._open_errors:
            raise self._open_errors.pop(0)

    async def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft] | Progress, None]:
        """Yield the drafts and the progress behind `after`, one at a time."""
        for group in self._groups(after):
            yield group
        await asyncio.Event().wait()

    def _groups(self, after: Position | None) -> Iterator[Sequence[Draft] | Progress]:
        begun = after is None
        for step in list(self._script):
            if isinstance(step, Exception):
                self._script.remove(step)
                raise step
            if begun:
                yield step if isinstance(step, Progress) else [step]
            ended = isinstance(step, Progress) or not step.more
            begun = begun or (ended and step.position == after)

    async def confirm(self, position: Position) -> None:
        """Note the position."""
        self.confirmed.append(position)

    async def close(self) -> None:
        """Do nothing."""

    def tables(self) -> Sequence[TableSchema]:
        """Return no tables."""
        return ()


class DirectScriptedSource(ScriptedSource):
    """The same, with a thread of its own that hands over what it has; see `DirectSource`."""

    @property
    def direct(self) -> DirectSource:
        """Return itself."""
        return self

    async def hand_over(self, after: Position | None, take: Callable[[Sequence[Draft] | Progress], None]) -> None:
        """Call `take` with the script behind `after` in a thread, then wait."""
        ended = threading.Event()

        def play() -> None:
            for group in self._groups(after):
                if ended.is_set():
                    return
                take(group)
            ended.wait()

        playing = asyncio.get_running_loop().run_in_executor(None, play)
        try:
            await asyncio.shield(playing)
        finally:
            ended.set()
            await asyncio.gather(playing, return_exceptions=True)

    def confirm_directly(self, position: Position) -> None:
        """Note the position."""
        self.confirmed.append(position)
