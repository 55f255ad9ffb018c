"""Keeping the lease of a pipeline while its worker works, and noticing what others ask of it."""

import threading
import time
from types import TracebackType
from typing import Self

from tailrace.model.errors import MetadataError
from tailrace.model.pipeline import Lease, Pipeline
from tailrace.pipeline.errors import LeaseError
from tailrace.pipeline.store import PipelineStore

__all__ = ["LEASE_S", "LeaseKeeper"]

LEASE_S = 15.0
"""How long a lease lasts that is not renewed. The clocks of workers must agree better than that."""


class LeaseKeeper:
    """Renews a lease from a thread of its own, inside a `with` block; leaving it gives the lease up."""

    def __init__(self, store: PipelineStore, lease: Lease, lease_s: float = LEASE_S) -> None:
        self.lease = lease
        self._store = store
        self._lease_s = lease_s
        self._end_s = time.monotonic() + lease_s
        self._stop = threading.Event()
        self._lost = False
        self._seen: Pipeline | None = None
        self._thread = threading.Thread(target=self._run, name="tailrace-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if not self._lost:
            try:
                self._store.release(self.lease)
            except (LeaseError, MetadataError):
                return  # it ends by itself

    def check(self) -> None:
        """Return while this worker has the pipeline.

        Raises:
            LeaseError: It has it no longer, or does not know.
        """
        if self._lost or time.monotonic() > self._end_s:
            raise LeaseError(self.lease.name)

    @property
    def wanted(self) -> bool:
        """Tell whether the pipeline is to go on: nobody has paused or removed it."""
        return self._seen is None or not (self._seen.paused or self._seen.cancelled)

    def _run(self) -> None:
        while not self._stop.wait(self._lease_s / 5):
            begin_s = time.monotonic()
            try:
                self._seen = self._store.renew(self.lease, self._lease_s)
            except LeaseError:
                self._lost = True
                return
            except MetadataError:
                continue  # tried again until the lease ends
            self._end_s = begin_s + self._lease_s
