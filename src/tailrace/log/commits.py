"""Finding commits by their index or timestamp, and how much lies behind them. Reads segments, in threads.

A commit lies wholly in one segment; mostly in one block, one that was appended in parts in as many as it needs.
"""

import asyncio
import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from tailrace.log.segments import Segments
from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.number import Index, Offset

__all__ = ["LogCommits"]

Window = Callable[[], tuple[Offset, Offset, Index]]
"""Returns the horizon, the head and the last index as they are now."""


class LogCommits:
    """The commits of an open log. For tasks of its event loop."""

    def __init__(self, segments: Segments, window: Window) -> None:
        self._segments = segments
        self._window = window

    async def first_index(self) -> Index:
        """Return the index of the oldest commit of which all changes can be read; `last_index` + 1 when there is none.

        Raises:
            CorruptSegmentError: The segment that holds it is damaged.
        """
        while True:
            horizon, head, last_index = self._window()
            if horizon > head:
                return Index(last_index + 1)
            with contextlib.suppress(FileNotFoundError):
                index, first = await asyncio.to_thread(_commit_at, self._segments, horizon)
                return index if first == horizon else Index(index + 1)

    async def offset_before(self, index: Index) -> Offset:
        """Return the offset after which a commit begins, the one that comes next included.

        Raises:
            BehindHorizonError: Changes of it were removed by retention.
            BeyondHeadError: Commits before it are not in the log yet.
            CorruptSegmentError: The segment that holds it is damaged.
        """
        _, head, last_index = self._window()
        if index > last_index + 1:
            raise BeyondHeadError(requested=index, head=last_index)
        if index == last_index + 1:
            return head
        try:
            first = await asyncio.to_thread(_find_commit, self._segments, index)
        except FileNotFoundError:
            first = Offset(0)
        horizon = self._window()[0]
        if first < horizon:
            raise BehindHorizonError(requested=first, horizon=horizon)
        return Offset(first - 1)

    async def index_after_hlc(self, hlc: int) -> Index | None:
        """Return the index of the first commit with a larger timestamp, the one that comes next included.

        None where that may have been a commit that retention has removed.

        Raises:
            CorruptSegmentError: A segment is damaged.
        """
        while True:
            last_index = self._window()[2]
            with contextlib.suppress(FileNotFoundError):
                found = await asyncio.to_thread(_index_after_hlc, self._segments, hlc, last_index)
                first = await self.first_index()
                return None if found is not None and found < first else found

    async def size_after(self, offset: Offset) -> int:
        """Return about how many bytes of the log follow a change."""
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread(_size_after, self._segments, offset, self._window()[1])
        return 0


def _commit_at(segments: Segments, offset: Offset) -> tuple[Index, Offset]:
    """Return the index of the commit that holds a change, and the offset of its first change.

    Raises:
        CorruptSegmentError: The segment is damaged.
        FileNotFoundError: Retention has just removed it.
    """
    chunks = segments.load(offset)
    chunk = next(chunk for chunk in chunks if offset <= chunk.last)
    index = chunk.batch.column("index")[offset - chunk.first].as_py()
    return Index(index), _find_commit(segments, Index(index))


def _find_commit(segments: Segments, index: Index) -> Offset:
    """Return the offset of the first change of a commit, which must be in the log.

    Raises:
        CorruptSegmentError: The segment is damaged.
        FileNotFoundError: Retention has just removed it.
    """
    entries = segments.entries
    number = bisect_right(entries, index, key=lambda segment: segment.first_index) - 1
    if number < 0:
        raise FileNotFoundError(f"no segment holds commit {index}")
    sparse, _ = segments.index(entries[number])
    last = entries[number + 1].first_offset if number + 1 < len(entries) else None
    if not len(sparse):
        raise FileNotFoundError(f"no block holds commit {index}")
    offset = sparse.first_offset(sparse.block_before_index(index))
    while last is None or offset < last:  # mostly once, or twice where the commit begins with the next block
        chunks = segments.load(offset)
        for chunk in chunks:
            indexes = chunk.batch.column("index")
            row = bisect_left(indexes, index, key=lambda one: one.as_py())
            if row < len(chunk):
                if indexes[row].as_py() == index:
                    return Offset(chunk.first + row)
                break
        else:
            offset = Offset(chunks[-1].last + 1)
            continue
        break
    raise FileNotFoundError(f"no block holds commit {index}")


def _size_after(segments: Segments, offset: Offset, head: Offset) -> int:
    """Return about how many bytes of the log follow a change, to the size of a block.

    Raises:
        CorruptSegmentError: A segment is damaged.
        FileNotFoundError: Retention has just removed one.
    """
    if offset >= head:
        return 0
    entries = segments.entries
    number = max(0, bisect_right(entries, Offset(offset + 1), key=lambda segment: segment.first_offset) - 1)
    sparse, end = segments.index(entries[number])
    place = sparse.place(max(0, sparse.block_of(Offset(offset + 1)))) or 0
    return end - place + sum(segments.size(segment) for segment in entries[number + 1 :])


def _index_after_hlc(segments: Segments, hlc: int, last_index: Index) -> Index | None:
    """Return the index of the first commit with a larger timestamp, the one that comes next included.

    None where that is the first one in the files, and others came before it.

    Raises:
        CorruptSegmentError: A segment is damaged.
        FileNotFoundError: Retention has just removed one.
    """
    begins: list[Offset] = []
    for segment in segments.entries:
        sparse, _ = segments.index(segment)
        begins += [sparse.first_offset(block) for block in range(len(sparse))]
    if not begins:
        return Index(last_index + 1)
    # A segment may be compacted meanwhile: then what is read begins before the wanted change, and has more changes.
    place = bisect_right(begins, hlc, key=lambda offset: segments.load(offset)[0].batch.column("hlc")[0].as_py())
    if place == 0:
        first = Index(segments.load(begins[0])[0].batch.column("index")[0].as_py())
        return first if first == 1 else None
    chunks = segments.load(begins[place - 1])
    for chunk in chunks:
        stamps = chunk.batch.column("hlc").to_pylist()
        row = bisect_right(stamps, hlc)
        if row < len(stamps):
            return Index(chunk.batch.column("index")[row].as_py())
    if place == len(begins):
        return Index(last_index + 1)
    return Index(segments.load(Offset(chunks[-1].last + 1))[0].batch.column("index")[0].as_py())
