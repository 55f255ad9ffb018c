"""The presenter: encodes each chunk once per view and filter and keeps the newest results for whoever comes next."""

from collections import OrderedDict
from collections.abc import Hashable

from msgspec import structs
from prometheus_client import Counter

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.turns import Turns
from tailrace.delivery.view import View
from tailrace.model.number import Offset
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.filter import Filter, Rows
from tailrace.subscription.query.query_filter import QueryFilter

__all__ = ["Presenter"]

_Key = tuple[str, Offset, Offset, Hashable, View, Filter | None]

_SHARE_MIN = 0.25
"""From this share of a chunk on, a filter picks its events out of those of the whole chunk."""

_ABSENT = Encoded.of_list((), (), Offset(0))
"""Stands for what is not kept."""

_ENTRY_BYTES = 512
"""About what an entry takes besides its events."""


class Presenter:
    """Gives the encoded events of feed batches. For tasks of one event loop.

    What was encoded is kept, least recently used out first, up to `bytes_max`. The log never changes what an offset
    means, so a chunk is known by its source, its first and last offsets and what was picked of it, even when it was
    read again.
    """

    def __init__(self, bytes_max: int, encoded_changes: Counter) -> None:
        self.turns = Turns()
        """What streams wait for before they ask for events."""

        self._bytes_max = bytes_max
        self._encoded_changes = encoded_changes
        self._cache: OrderedDict[_Key, Encoded | None] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held by what is kept."""
        return self._bytes

    def encoded(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of a batch's chunk that pass its filter, all of them, as `view` wants them.

        Images are cut to the columns that the filter names.

        Raises:
            PredicateError: The filter failed on a change.
        """
        chunk = batch.chunk
        # Columns are part of the key: the same rows cut otherwise are other bytes.
        if batch.filter.columns:
            view = structs.replace(view, columns=batch.filter.columns)
        if isinstance(batch.filter, QueryFilter):
            view = structs.replace(view, mark=batch.filter.mark)
        key = (batch.source, chunk.first, chunk.last, chunk.picked, view, batch.filter)
        cached = self._cache.get(key, _ABSENT)
        if cached is not _ABSENT:
            self._cache.move_to_end(key)
            return cached or self._whole(batch, view)
        rows = batch.rows()
        if batch.filter.is_restricted:
            encoded = self._encode(batch, rows, view)  # what a whole chunk says is not for everybody
            self._keep(key, encoded)
            return encoded
        if len(rows) == len(chunk) and view.mark is None:
            # Remember that the filter passes everything, and share the bytes of the whole chunk: many filters do on
            # most chunks.
            self._keep(key, None)
            return self._whole(batch, view)
        # Other tables lack the columns to which images are cut: then nothing but the wanted rows is encoded.
        if view.columns or view.mark is not None or len(rows) < len(chunk) * _SHARE_MIN:
            encoded = self._encode(batch, rows, view)
        else:
            encoded = self._whole(batch, view).pick(rows)
        self._keep(key, encoded)
        return encoded

    def _whole(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of all changes of the batch's chunk, ignoring its filter."""
        chunk = batch.chunk
        key = (batch.source, chunk.first, chunk.last, chunk.picked, view, None)
        whole = self._cache.get(key)
        if whole is not None:
            self._cache.move_to_end(key)
            return whole
        whole = self._encode(batch, range(len(chunk)), view)
        self._keep(key, whole)
        return whole

    def _encode(self, batch: FeedBatch, rows: Rows, view: View) -> Encoded:
        self._encoded_changes.inc(len(rows))
        return view.wire.encode(batch.chunk, rows, view)

    def _keep(self, key: _Key, encoded: Encoded | None) -> None:
        """Keep a result; None says that all changes of the chunk pass and the whole chunk's events serve."""
        self._cache[key] = encoded
        self._bytes += _charge(encoded)
        # Counted by encoded bytes and not by entries: one chunk may be a kilobyte or megabytes.
        while self._bytes > self._bytes_max:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= _charge(oldest)


def _charge(encoded: Encoded | None) -> int:
    return _ENTRY_BYTES + (0 if encoded is None else encoded.size_bytes)
