"""Group commit: many appends, one frame, one sync.

Appends collect on the event loop and go to two worker threads, or come from a thread that stores them itself while
nothing else waits (`append_now`): a single commit then goes to the disk without a change of thread.

Of the two workers, one stores: it takes what has come, encodes it, writes it and waits for the disk. Meanwhile the
other encodes what comes next, if that is enough to be worth it, so that the first goes on with the next frame at once.
So the disk is hardly idle while there is work, and whatever arrives during a sync shares the next one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.log.hybrid import HybridClock
from tailrace.log.options import LogOptions
from tailrace.log.writer import EncodedFrame, Stored, Writer, disk_error, encode_frame
from tailrace.model.commit import Appended, Draft
from tailrace.model.errors import AppendTooLargeError, LogClosedError, LogWriteError
from tailrace.model.number import Index, Offset

__all__ = ["APPEND_BYTES_MAX", "GroupCommit"]

APPEND_BYTES_MAX = 1024 * 1024 * 1024
"""Arrow counts the bytes of a column in 31 bits; one append is one frame."""

_OVERLAP_BYTES_MIN = 32 * 1024
"""Less than this is not worth encoding while the disk is busy; it rather waits for company."""


class _Request(Struct, gc=False, eq=False):
    """One append on its way. `whole` says that these are whole commits, and not one part."""

    drafts: Sequence[Draft]
    changes: int
    size_bytes: int
    whole: bool
    appended: asyncio.Future[Appended] | None
    """Who waits for it on the event loop; None where a thread waits that stores it itself."""


class _Open(Struct, gc=False, eq=False):
    """A commit of which more parts will come: where it began, its timestamp, and the number of the next part."""

    first_offset: Offset
    hlc: int
    part: int


class _Group(Struct, eq=False):
    """The appends of one frame, and the numbers that it will have if all before it succeed."""

    ticket: int
    requests: list[_Request]
    first_offset: Offset
    first_index: Index
    append_time_us: int
    first_hlc: int
    refused: Exception | None = None


class GroupCommit:
    """Runs the writer in threads. All methods are called on one event loop; `publish` is called there too.

    After a failure everything that was waiting fails as well: an append may build on the one before it, and a log that
    held only the later one would have a hole. So do all parts of a commit that come after one that failed.
    """

    def __init__(
        self,
        writer: Writer,
        options: LogOptions,
        clock: Clock,
        *,
        append_time_us: int,
        hybrid: HybridClock,
        publish: Callable[[Stored], None],
    ) -> None:
        self._writer = writer
        self._options = options
        self._clock = clock
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        # On the event loop.
        self._arrived: list[_Request] = []
        self._admission = asyncio.Lock()
        self._room = asyncio.Event()
        self._pending_bytes = 0
        self._pending_changes = 0
        self._failures = 0
        self._closed = False
        # Shared with the workers, under the lock.
        self._lock = threading.Lock()
        self._to_store = threading.Condition(self._lock)
        self._to_encode = threading.Condition(self._lock)
        self._queue: deque[_Request] = deque()
        self._queue_bytes = 0
        self._ending = False
        self._storing = False
        self._storing_directly = False
        self._encoding = False
        self._ready: _Encoded | None = None
        self._next_ticket = 0
        self._doomed_below = 0
        self._doom: Exception | None = None
        self._planned = (writer.next_offset, writer.next_index)
        self._open: _Open | None = None
        self._append_time_us = append_time_us
        self._hybrid = hybrid
        self._unpublished: dict[int, int] = {}
        self._workers = [
            threading.Thread(target=self._store_on, name="tailrace-log-store", daemon=True),
            threading.Thread(target=self._encode_on, name="tailrace-log-encode", daemon=True),
        ]
        for worker in self._workers:
            worker.start()

    async def append(self, drafts: Sequence[Draft], changes: int, size_bytes: int) -> Appended:
        """Return the numbers of the drafts once they are on disk. Waits while too much is pending.

        Raises:
            LogFullError, LogWriteError: The disk refused; nothing of it counts.
            AppendTooLargeError: It does not fit into one frame.
            LogClosedError: The log was closed before it was taken.
        """
        if size_bytes > APPEND_BYTES_MAX:
            raise AppendTooLargeError(size_bytes=size_bytes, size_bytes_max=APPEND_BYTES_MAX)
        if self._closed or self._is_full() or self._admission.locked():
            await self._admit()
        appended: asyncio.Future[Appended] = self._loop.create_future()
        # From here to the `await` nothing yields: appends of one loop are queued in the order in which they were
        # called, which is the order that a source relies on.
        self._pending_bytes += size_bytes
        self._pending_changes += changes
        self._arrived.append(_Request(drafts, changes, size_bytes, drafts[0].whole, appended))
        if len(self._arrived) == 1:
            self._loop.call_soon(self._hand_over)  # after all tasks that are ready now have appended
        return await appended

    def append_now(self, drafts: Sequence[Draft], changes: int, size_bytes: int) -> None:
        """Do what `append` does, in this thread, not the event loop's. Durable on return; published soon after.

        Where other appends are on their way, it waits for its turn behind them.

        Raises:
            LogFullError, LogWriteError, AppendTooLargeError, LogClosedError: As `append`.
        """
        if size_bytes > APPEND_BYTES_MAX:
            raise AppendTooLargeError(size_bytes=size_bytes, size_bytes_max=APPEND_BYTES_MAX)
        with self._lock:
            if self._ending:
                raise LogClosedError("the log is closed")
            group = None
            if not (self._queue or self._storing or self._encoding or self._ready):
                # The workers see both flags: none of them takes anything until this is stored.
                self._storing = self._storing_directly = True
                self._queue.append(_Request(drafts, changes, size_bytes, drafts[0].whole, None))
                self._queue_bytes += size_bytes
                group = self._take()
        if group is None:
            asyncio.run_coroutine_threadsafe(self.append(drafts, changes, size_bytes), self._loop).result()
            return
        outcome = self._store(_encode(group))
        self._end(group, outcome)  # before others may store: what is published is published in its order
        with self._lock:
            self._storing = self._storing_directly = False
            if self._queue or self._ready or self._ending:  # else a thread would wake for nothing
                self._to_store.notify()
        if isinstance(outcome, Exception):
            raise disk_error(outcome) if isinstance(outcome, OSError) else outcome

    async def close(self) -> None:
        """Finish what was taken, then end the workers."""
        self._closed = True
        self._room.set()
        self._hand_over()
        with self._lock:
            self._ending = True
            self._to_store.notify()
        for worker in self._workers:
            await asyncio.to_thread(worker.join)

    def abandon(self) -> None:
        """Give up the commit of which more parts were to come, if there is one."""
        with self._lock:
            self._close_commit()

    def hlc_complete(self) -> int:
        """Return a hybrid timestamp below which no commit will be published any more that is not published now."""
        with self._lock:
            least = min(self._unpublished.values(), default=self._hybrid.last + 1)
            return (least if self._open is None else min(least, self._open.hlc)) - 1

    def _is_full(self) -> bool:
        return (
            self._pending_bytes >= self._options.pending_bytes_max
            or self._pending_changes >= self._options.pending_changes_max
        )

    async def _admit(self) -> None:
        """Wait for room, first come, first served."""
        # An append that waits for room has not been queued, so a failure meanwhile does not reach it. It may build on
        # the one that failed: it must fail as well, or the log would get a hole.
        failures = self._failures
        async with self._admission:
            while self._is_full() and not self._closed:
                self._room.clear()
                await self._room.wait()
            if self._closed:
                raise LogClosedError("the log is closed")
            if failures != self._failures:
                raise LogWriteError("an append before this one failed")

    def _hand_over(self) -> None:
        if not self._arrived:
            return
        with self._lock:
            self._queue.extend(self._arrived)
            self._queue_bytes += sum(request.size_bytes for request in self._arrived)
            if not self._storing:
                self._to_store.notify()
            elif self._may_encode():
                self._to_encode.notify()
        self._arrived.clear()

    def _succeeded(self, group: _Group, stored: Stored) -> None:
        # A part of a commit is on disk, but nobody may see it before the last part is: readers act on whole commits.
        if not stored.frame.header.continues:
            self._publish(stored)
        with self._lock:
            del self._unpublished[group.ticket]
        if group.requests[0].appended is None:
            return  # a thread has stored it, alone, and knows; it was never pending
        offset, index = group.first_offset, group.first_index
        for request in group.requests:
            appended = Appended(
                index, offset, Index(index + len(request.drafts) - 1), Offset(offset + request.changes - 1)
            )
            offset, index = Offset(appended.last_offset + 1), Index(appended.last_index + 1)
            if request.appended is not None and not request.appended.done():
                request.appended.set_result(appended)
        self._release(group.requests)

    def _failed(self, requests: list[_Request], error: Exception) -> None:
        self._failures += 1
        # What has arrived but was not handed over yet stands behind the failure too. It fails here, on the loop, where
        # no other append can slip in between.
        requests = [*requests, *self._arrived]
        self._arrived.clear()
        for request in requests:
            if request.appended is not None and not request.appended.done():
                request.appended.set_exception(disk_error(error) if isinstance(error, OSError) else error)
        self._release(requests)

    def _release(self, requests: list[_Request]) -> None:
        for request in requests:
            if request.appended is not None:  # what a thread stores itself was never pending
                self._pending_bytes -= request.size_bytes
                self._pending_changes -= request.changes
        self._room.set()

    # The rest runs in the workers.

    def _store_on(self) -> None:
        """Store groups in the order of their tickets, until all is done."""
        while (encoded := self._next_to_store()) is not None:
            self._end(encoded.group, self._store(encoded))

    def _store(self, encoded: "_Encoded") -> Stored | Exception:
        """Write and sync a frame, unless one before it failed; return what came of it."""
        # A doomed group was encoded with numbers that count on the failed one. Writing it would leave a gap in the
        # offsets.
        if encoded.group.ticket < self._doomed_below:
            assert self._doom is not None
            return self._doom
        if isinstance(encoded.frame, Exception):
            return encoded.frame
        try:
            return self._writer.store(encoded.frame)
        except Exception as error:  # the appenders get it, whatever it is
            return error

    def _next_to_store(self) -> "_Encoded | None":
        """Return the next group, encoded by the other worker or, where that has none, here; None when all is done."""
        with self._lock:
            self._storing = self._storing_directly
            self._to_store.wait_for(self._may_store)
            self._storing = True
            encoded, self._ready = self._ready, None
            group = self._take() if encoded is None and self._queue else None
            # The second case is the end: the other worker is woken once more so that it sees `_ending` and returns.
            if self._may_encode() or (encoded is None and group is None):
                self._to_encode.notify()
        return encoded if group is None else _encode(group)

    def _encode_on(self) -> None:
        """Encode a group ahead while another is stored, until all is done."""
        while True:
            with self._lock:
                self._to_encode.wait_for(lambda: self._may_encode() or (self._ending and not self._queue))
                if not self._queue:
                    return
                self._encoding = True
                group = self._take()
            encoded = _encode(group)
            with self._lock:
                self._encoding = False
                self._ready = encoded
                self._to_store.notify()

    def _may_store(self) -> bool:
        if self._storing_directly:
            return False
        # While the other worker encodes, its group has the older ticket: nothing may be taken from the queue here, or
        # frames would be stored out of order.
        return self._ready is not None or (not self._encoding and bool(self._queue or self._ending))

    def _may_encode(self) -> bool:
        # One group ahead at most. A deeper pipeline would split the queue into more, smaller frames, each with its own
        # sync; appends that wait in the queue share one instead.
        waits = self._encoding or self._ready is not None
        return self._storing and not waits and self._queue_bytes >= _OVERLAP_BYTES_MIN

    def _take(self) -> _Group:
        """Return the next group."""
        queue, requests = self._queue, [self._queue.popleft()]
        changes, size, commits = requests[0].changes, requests[0].size_bytes, len(requests[0].drafts)
        # A part is a frame of its own: the header counts the commits that end in a frame, and 0 is how a part is
        # recognized.
        while requests[0].whole and queue and queue[0].whole:
            request = queue[0]
            if (
                changes + request.changes > self._options.frame_changes_max
                or size + request.size_bytes > self._options.frame_bytes_max
            ):
                break
            changes += request.changes
            size += request.size_bytes
            commits += len(request.drafts)
            requests.append(queue.popleft())
        self._queue_bytes -= size
        # Never back, though the clock may be set back: retention by age searches frames by this time.
        self._append_time_us = max(self._append_time_us, self._clock.now_us())
        draft = requests[0].drafts[0]
        refused, opened = None, self._open
        if not draft.part:
            self._close_commit()
            opened = None
        # An earlier part failed or was abandoned, and the source has not noticed yet. Its parts are gone; accepting the
        # rest would show half a transaction as a whole one.
        elif opened is None or opened.part != draft.part:
            refused = LogWriteError(
                "parts of this commit that came before were dropped; append it again from its first"
            )
        offset, index = self._planned
        # All parts of a commit carry the timestamp of the first: merged streams order commits by it, and `hlc_complete`
        # must stay below it for as long as the commit is open.
        hlc = self._hybrid.take(commits, self._append_time_us) if opened is None else opened.hlc
        group = _Group(self._next_ticket, requests, offset, index, self._append_time_us, hlc, refused)
        self._unpublished[self._next_ticket] = hlc
        self._next_ticket += 1
        # Numbers are planned before the disk has answered, so that the next group can be encoded meanwhile. `_end`
        # takes them back when a group fails.
        self._planned = (Offset(offset + changes), Index(index + (0 if draft.more else commits)))
        self._open = _Open(opened.first_offset if opened else offset, hlc, draft.part + 1) if draft.more else None
        return group

    def _close_commit(self) -> None:
        """Forget the commit of which more parts were to come; the writer drops them when another one begins."""
        if self._open is not None:
            self._planned = (self._open.first_offset, self._planned[1])
            self._open = None

    def _end(self, group: _Group, outcome: Stored | Exception) -> None:
        requests = group.requests
        if not isinstance(outcome, Exception):
            self._loop.call_soon_threadsafe(self._succeeded, group, outcome)
            return
        with self._lock:
            del self._unpublished[group.ticket]
            # Only the first failure dooms. A doomed group that ends here later was planned before it; appends that came
            # since have valid numbers and must not fail with it.
            if group.ticket >= self._doomed_below:
                self._doom, self._doomed_below = outcome, self._next_ticket
                requests = [*requests, *self._queue]
                self._queue.clear()
                self._queue_bytes = 0
                self._open = None
                self._planned = (self._writer.whole_offset, self._writer.next_index)
        self._loop.call_soon_threadsafe(self._failed, requests, outcome)


class _Encoded(Struct, frozen=True, eq=False):
    """A group and its frame, or why there is none."""

    group: _Group
    frame: EncodedFrame | Exception


def _encode(group: _Group) -> _Encoded:
    if group.refused is not None:
        return _Encoded(group, group.refused)
    try:
        drafts = [draft for request in group.requests for draft in request.drafts]
        return _Encoded(
            group, encode_frame(drafts, group.first_offset, group.first_index, group.append_time_us, group.first_hlc)
        )
    except Exception as error:  # the appenders get it, whatever it is
        return _Encoded(group, error)
