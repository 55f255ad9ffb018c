"""The database of pipelines for the tasks of a server: connected when somebody first asks for it."""

import asyncio
from pathlib import Path

from tailrace.clock import Clock
from tailrace.datadir import make_private
from tailrace.meta.pipeline_catalog import PipelineCatalog

__all__ = ["SharedCatalog"]


class SharedCatalog:
    """One catalog for all tasks of one event loop: that of an SQLAlchemy URL, or, without one, that of an SQLite file.

    Both methods that connect raise `MetadataError` where the database refuses, `ConfigError` for a wrong URL.
    """

    def __init__(self, url: str, file: Path, clock: Clock) -> None:
        self._url = url
        self._file = file
        self._clock = clock
        self._catalog: PipelineCatalog | None = None
        self._opening = asyncio.Lock()

    async def get(self) -> PipelineCatalog:
        """Return the catalog; the file is made where it is missing."""
        async with self._opening:
            if self._catalog is None:
                self._catalog = await asyncio.to_thread(self._open)
            return self._catalog

    async def find(self) -> PipelineCatalog | None:
        """Return the catalog; None where nobody has made the file: then there are no pipelines."""
        if self._catalog is None and not self._url and not self._file.exists():
            return None
        return await self.get()

    async def close(self) -> None:
        """Disconnect."""
        if self._catalog is not None:
            await asyncio.to_thread(self._catalog.close)

    def _open(self) -> PipelineCatalog:
        if self._url:
            return PipelineCatalog.open(self._url, self._clock)
        make_private(self._file.parent)
        return PipelineCatalog.open(f"sqlite:///{self._file}", self._clock)
