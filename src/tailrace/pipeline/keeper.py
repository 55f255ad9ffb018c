"""Keeping the lease of a pipeline while its worker works, and noticing what others ask of it."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from tailrace.meta.pipeline import Lease, Pipeline
from tailrace.model.errors import MetadataError
from tailrace.pipeline.errors import LeaseError
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.watcher import Watcher

__all__ = ["LEASE_S", "LeaseKeeper", "taken", "worker_name"]

LEASE_S = 15.0
"""How long a lease lasts that is not renewed. The clocks of workers must agree better than that."""

_SILENT_S_MAX = 120.0
"""For how long a worker that waits puts up with a metadata database that does not answer, e.g. because it is locked."""

_WAIT_S = 1.0
"""How often to look whether a pipeline that another worker has is free."""


class LeaseKeeper:
    """Renews a lease from a thread of its own, inside a `with` block; leaving it gives the lease up.

    `begin_s` is the monotonic time before it was asked for: the answer may have taken long.
    """

    def __init__(
        self, store: PipelineStore, lease: Lease, lease_s: float = LEASE_S, begin_s: float | None = None
    ) -> None:
        self.lease = lease
        self._store = store
        self._lease_s = lease_s
        self._end_s = (time.monotonic() if begin_s is None else begin_s) + lease_s
        self._stop = threading.Event()
        self._lost = False
        self._begun: Pipeline | None = None
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

    def begin(self, found: Pipeline) -> None:
        """Begin to work on the pipeline as it was found."""
        self._begun = self._seen = found

    @property
    def wanted(self) -> bool:
        """Tell whether the pipeline is to go on as it was found: nobody has paused, removed or altered it."""
        return self._seen is None or not (self._seen.paused or self._seen.cancelled or self.altered)

    @property
    def altered(self) -> bool:
        """Tell whether someone has altered the pipeline since its worker began."""
        begun, seen = self._begun, self._seen
        return begun is not None and seen is not None and begun.definition != seen.definition

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


def worker_name() -> str:
    """Return the name under which this process owns pipelines."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{time.time_ns():x}"


@contextlib.contextmanager
def taken(
    store: PipelineStore,
    name: str,
    *,
    wait: bool,
    watcher: Watcher,
    stopped: Callable[[], bool],
    owner: str = "",
) -> Iterator[LeaseKeeper | None]:
    """Hold the lease of a pipeline within a `with` block; None where it was `stopped` while it waited.

    Without the name of an `owner` one is made up: whoever comes under the name of the owner takes it at once.

    Raises:
        LeaseError: Another worker has it, and `wait` is false.
        UnknownPipelineError: There is none of that name.
        MetadataError: The metadata database refuses, also after a while to whoever waits.
    """
    owner = owner or worker_name()
    reported_owner = ""
    answered_s = time.monotonic()
    while True:
        begin_s = time.monotonic()
        try:
            lease = store.acquire(name, owner, LEASE_S)
            break
        except LeaseError as error:
            if not wait:
                raise
            answered_s = time.monotonic()
            if error.owner != reported_owner:
                watcher.waiting(error.owner)
                reported_owner = error.owner
        except MetadataError:
            if not reported_owner or time.monotonic() - answered_s > _SILENT_S_MAX:
                raise
        if stopped():
            yield None
            return
        time.sleep(_WAIT_S)
    with LeaseKeeper(store, lease, begin_s=begin_s) as keeper:
        yield keeper
