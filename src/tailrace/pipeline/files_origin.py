"""The files of a log as what a pipeline reads from. Blocking, for one thread."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailrace.log.files import DiskFiles
from tailrace.log.pick import Pick
from tailrace.log.reader import LogReader
from tailrace.log.schemas import Schemas
from tailrace.model.errors import BeyondHeadError, ConfigError
from tailrace.model.number import Offset
from tailrace.model.start import After, AtTime, CursorStart, Earliest, Latest
from tailrace.model.wanted import Conditions
from tailrace.pipeline.origin import CUTS_MAX, WAIT_S, Batches, Window
from tailrace.subscription.bulk import bulk_batch, check_window, find_cuts, find_start, narrowed, schemas_of, sought

__all__ = ["FilesOrigin"]

_LOOK_S = 0.02
"""How often to look at the files while waiting for changes."""

_WORDS: dict[str, CursorStart] = {"earliest": Earliest(), "latest": Latest()}


class FilesOrigin:
    """The log in a directory that this machine sees: that of a shard, or a data directory with a shard of the source.

    There is no server to keep a subscription: nobody sees how far its reader is.

    Raises:
        ConfigError: The directory is not there, or holds no log of the source.
    """

    def __init__(self, directory: str, source: str) -> None:
        self._source = source
        self._reader = LogReader(DiskFiles(_shard(Path(directory), source), make=False))

    def window(self, tables: Sequence[str], *, beyond: int | None = None) -> Window:
        """Look at the files, again and again while there is to be more."""
        self._reader.refresh()
        deadline_s = time.monotonic() + WAIT_S
        while beyond is not None and self._reader.head <= beyond and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            self._reader.refresh()
        wanted = schemas_of(self._reader, self._source, tables)
        known = self._reader.schemas()
        schemas = {number: known[number] for number in (known if wanted is None else wanted)}
        return Window(self._reader.head, self._reader.horizon, schemas)

    def place(self, start: str) -> Offset:
        """Look at the files."""
        self._reader.refresh()
        return asyncio.run(find_start(_start(start), self._reader))

    def cuts(
        self, after: int, through: int, *, changes: int, bytes_max: int | None = None, count: int = CUTS_MAX
    ) -> list[Offset]:
        """Look at the files."""
        self._refresh_to(max(after, through))
        limits: dict[str, Any] = {"changes_max": changes, "bytes_max": bytes_max, "count_max": count}
        return asyncio.run(find_cuts(self._reader, Offset(after), Offset(through), **limits))

    def batches(self, after: int, through: int, tables: Sequence[str], conditions: Conditions | None = None) -> Batches:
        """Read the files."""
        self._refresh_to(through)
        check_window(self._reader, Offset(after), Offset(through))
        schemas = narrowed(self._reader, schemas_of(self._reader, self._source, tables))
        skipping = sought(self._reader, schemas, conditions)
        pick = None if conditions is None or skipping is None else Pick(skipping)
        place = Offset(after)
        while place < through:
            if skipping is not None:
                place = self._reader.skip(place, skipping)
                if place >= through:
                    break
            chunk = self._reader.load_run(place, Offset(through)) if pick is None else self._reader.load(place)
            assert chunk is not None
            last = min(chunk.last, Offset(through))
            yield chunk.schemas, bulk_batch(chunk, place, last, schemas, pick)
            place = last

    def subscribe(self, tables: Sequence[str], after: int) -> str | None:
        """Return None: there is nobody to keep it."""
        del tables, after
        return None

    def acknowledge(self, subscription: str, offset: int) -> None:
        """Do nothing: there is nobody to tell."""

    def unsubscribe(self, subscription: str) -> None:
        """Do nothing: there is nobody to tell."""

    def close(self) -> None:
        """Do nothing: files are closed after each reading."""

    def _refresh_to(self, offset: int) -> None:
        if offset > self._reader.head:
            self._reader.refresh()
        if offset > self._reader.head:
            raise BeyondHeadError(requested=offset, head=self._reader.head)


def _shard(directory: Path, source: str) -> Path:
    """Return the directory of the log of a source."""
    if not directory.is_dir():
        raise ConfigError(
            f"log_dir {directory} is not a directory on this machine: name one that all machines can read, or a server"
        )
    shards = sorted(path for path in (directory / "oplog").glob("*") if path.is_dir()) or [directory]
    for path in shards:
        schemas = Schemas(DiskFiles(path, make=False))
        schemas.load()
        if any(schema.table.source == source for schema in schemas.known.values()):
            return path
    raise ConfigError(f"log_dir {directory} holds no log of source {source!r}")


def _start(text: str) -> CursorStart:
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return word
    if text.isascii() and text.isdigit():
        return After(Offset(int(text)))
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        takes = "earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
        raise ConfigError(f"start takes {takes}, not {text[:64]!r}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return AtTime((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
