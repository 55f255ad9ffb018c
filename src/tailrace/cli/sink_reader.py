"""Reading a subscription of a server for a sink that runs elsewhere: the log in bulk, as it grows."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import ConnectionFailed, NotFound, RateLimited, ServerFault, TimedOut
from tailrace.message.relay import Arrived
from tailrace.message.sink import SinkConfig
from tailrace.meta.sink_store import SinkStore
from tailrace.model.chunk import Chunk
from tailrace.model.errors import NotFoundError, SourceUnavailableError, TailraceError
from tailrace.model.number import Offset
from tailrace.model.table import TableSchema

__all__ = ["ServerReader"]

_T = TypeVar("_T")

_ACKNOWLEDGE_S = 0.5
"""How often the sink's progress is reported to the server, at most."""

_LOOK_S = 1.0
"""How often it is looked whether someone has paused the subscription."""

_WAIT_S = 5
"""How long a request waits at the head of the log."""

_BATCHES_AHEAD_MAX = 4
"""Batches that are read while the target is busy with others."""

_CHANGES_AT_ONCE = 2_000
"""What has come meanwhile is handed over together up to this many changes; one batch may have more."""

_OPTIONS = BulkOptions(outage_s_max=0.0)


class ServerReader:
    """Reads for one sink; see `tailrace.message.relay.SinkReader`. The token must be allowed to read the whole source.

    A thread reads ahead, a few batches at most, so that the way to the server takes no time from the target.
    """

    def __init__(self, server: str, token: str | None, name: str, config: SinkConfig, store: SinkStore) -> None:
        self._calling = BulkClient(server, token, _OPTIONS)
        self._server = server
        self._token = token
        self._name = name
        self._config = config
        self._store = store
        self._subscription = ""
        self._head: Offset | None = None
        """Where the log was when the sink first looked: what comes while its target is away is for it, too."""

        self._after = Offset(0)
        self._done = Offset(0)
        self._acknowledged = Offset(0)
        self._acknowledged_s = 0.0
        self._looked_s = float("-inf")
        self._paused = False
        self._ahead: _Ahead | None = None

    @property
    def after(self) -> Offset:
        """Return the offset behind which it began to read, or reads on."""
        return self._after

    def tables(self) -> Sequence[TableSchema]:
        """Return the tables that the sink is for, as the server knows them."""
        source, tables = self._config.source, self._config.tables
        try:
            head = self._reached(lambda: self._calling.info(source)).head
        except NotFound:
            raise NotFoundError(f"there is no source {source[:64]!r} on the server") from None
        if self._head is None:
            self._head = Offset(head)
        return [table.versions[-1].schema for table in self._reached(lambda: self._calling.info(source, tables).tables)]

    def open(self, after: Offset) -> str:
        """Begin behind the cursor, or further."""
        self._end_reading()
        return self._reached(lambda: self._open(after))

    def next(self, timeout_s: float) -> Arrived | None:
        """Return the next changes: all that have come meanwhile, as far as they are not too many at once.

        While the subscription is paused there are none.
        """
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._paused = self._reached(self._is_paused)
            self._looked_s = time.monotonic()
        if self._paused:
            time.sleep(timeout_s)
            return None
        if self._ahead is None:
            client = BulkClient(self._server, self._token, _OPTIONS)
            self._ahead = _Ahead(client, self._config.source, self._config.tables, self._after)
        found = self._reached(lambda: None if self._ahead is None else self._ahead.next(timeout_s))
        if found is None:
            if self._acknowledged < self._done:
                self._reached(self._acknowledge)
            return None
        self._after = found.through
        return found

    def acknowledge(self, through: Offset) -> None:
        """Move the cursor, not more often than is needed."""
        self._done = through
        if time.monotonic() - self._acknowledged_s >= _ACKNOWLEDGE_S:
            self._reached(self._acknowledge)

    def close(self) -> None:
        """Disconnect, with the cursor where it belongs."""
        self._end_reading()
        try:
            if self._subscription:
                self._reached(self._acknowledge)
        except TailraceError:
            return  # the sink goes on where it was; its messages are known by their ids
        finally:
            self._calling.close()

    def _open(self, after: Offset) -> str:
        config = self._config
        stored = self._store.get(self._name)
        if stored is None or not stored.subscription or stored.source != config.source:
            begin = self._head if config.start == "latest" and self._head is not None else config.start
            subscription, cursor = self._calling.subscribe(config.source, config.tables, begin)
            url, source = config.shown_url, config.source
            began_us = self._store.put(self._name, source=source, url=url, subscription=subscription)
            if stored is not None and stored.subscription:
                with contextlib.suppress(NotFound):
                    self._calling.call("cdc.close", {"sub_id": stored.subscription})
        else:
            subscription, began_us = stored.subscription, stored.began_us
            cursor = self._cursor(subscription)
        self._subscription = subscription
        self._after = self._done = self._acknowledged = Offset(max(cursor, after))
        return str(began_us)

    def _cursor(self, subscription: str) -> Offset:
        try:
            return Offset(
                self._calling.call("cdc.ack", {"sub_id": subscription, "offset": 0}, again=True)["acked_offset"]
            )
        except NotFound:
            raise NotFoundError(
                f"the subscription of the sink {self._name!r} was closed: remove the sink to start over"
            ) from None

    def _is_paused(self) -> bool:
        params = {"sub_id": self._subscription, "from_offset": self._after, "limit": 1}
        return bool(self._calling.call("cdc.poll", params)["backpressure"]["paused"])

    def _acknowledge(self) -> None:
        self._acknowledged_s = time.monotonic()
        if self._acknowledged < self._done:
            self._calling.call("cdc.ack", {"sub_id": self._subscription, "offset": self._done}, again=True)
            self._acknowledged = self._done

    def _reached(self, use: Callable[[], _T]) -> _T:
        try:
            return use()
        except (ConnectionFailed, TimedOut, RateLimited, ServerFault) as error:
            self._end_reading()
            raise SourceUnavailableError(f"the server's answer cannot be used now: {error}") from error

    def _end_reading(self) -> None:
        if self._ahead is not None:
            self._ahead.end()
            self._ahead = None


class _Ahead:
    """A thread that reads the log from one place on, until something fails or it is ended."""

    def __init__(self, client: BulkClient, source: str, tables: Sequence[str], after: Offset) -> None:
        self._client = client
        self._source = source
        self._tables = tables
        self._after = after
        self._ended = threading.Event()
        self._read: queue.Queue[Arrived | Exception] = queue.Queue(_BATCHES_AHEAD_MAX)
        self._left: Exception | None = None
        threading.Thread(target=self._run, name="tailrace-sink-reader", daemon=True).start()

    def next(self, timeout_s: float) -> Arrived | None:
        """Return what has come, in order; None where nothing came in time. Raises what the thread failed with."""
        if self._left is not None:
            raise self._left
        try:
            found = self._read.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        changes, through = list(found.changes), found.through
        while len(changes) < _CHANGES_AT_ONCE:
            try:
                more = self._read.get_nowait()
            except queue.Empty:
                break
            if isinstance(more, Exception):
                self._left = more
                break
            changes += more.changes
            through = more.through
        return Arrived(changes, through)

    def end(self) -> None:
        """Have the thread end soon; what it reads is nobody's any more."""
        self._ended.set()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                for schemas, batch, through in self._client.poll(self._source, self._after, self._tables, _WAIT_S):
                    changes = list(Chunk(batch, schemas).changes()) if batch is not None and batch.num_rows else []
                    if through > self._after:
                        self._after = through
                        self._put(Arrived(changes, through))
                    if self._ended.is_set():
                        return
        except Exception as error:  # whoever takes it raises it
            self._put(error)
        finally:
            self._client.close()

    def _put(self, item: Arrived | Exception) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._read.put(item, timeout=1.0)
                return
