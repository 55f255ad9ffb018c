"""The rows of a server's tables by intervals of keys, blocking, as Arrow batches."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa
from msgspec import Struct

from tailrace.client.bulk import BulkClient, error_of_answer
from tailrace.client.errors import BadAnswer
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Index, Offset
from tailrace.model.table import TableSchema

__all__ = ["BulkRowsClient", "Plan", "RowsPage"]

_PAGE_KEY = b"tailrace.page"


class Plan(Struct, frozen=True):
    """The last key of each part but the last, the greatest key of the table (None: it is empty), and its rows."""

    cuts: list[str]
    last: str | None
    rows: int = 0


class _Head(Struct, frozen=True):
    offset: Offset
    index: Index
    time_us: int
    schema: TableSchema
    last: str | None
    end: bool
    typed: bool


class RowsPage(Struct, frozen=True):
    """Some rows of a table, and the offset at which they belong.

    They are `typed`, a column for each of the table's, or `key` and `image` in their natural JSON form.
    """

    offset: Offset
    index: Index
    time_us: int
    schema: TableSchema
    rows: pa.RecordBatch
    typed: bool


class BulkRowsClient(BulkClient):
    """A client of the bulk interface that reads tables, too."""

    def plan(self, source: str, table: str, parts: int) -> Plan:
        """Ask for the keys that divide a table into parts with about as many rows each.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        return self._get(_path(source, "ranges"), {"table": table, "parts": parts}, Plan)

    def cut_rows(self, source: str, table: str, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Ask for the last key of each run of this many rows in an interval; at most `count`.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        params = {"table": table, "rows": rows, "count": count, **_bounds(within)}
        return self._get(_path(source, "ranges"), params, Plan).cuts

    def last_key(self, source: str, table: str) -> str | None:
        """Ask for the greatest key that a table has now; None where it has no rows.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        return self._get(_path(source, "ranges"), {"table": table, "rows": 1, "count": 1}, Plan).last

    def rows(self, source: str, table: str, within: KeyInterval, *, typed: bool = False) -> Iterator[RowsPage]:
        """Yield the rows of an interval in order of keys, page by page; each page has an offset of its own.

        With `typed` they are typed where all values of a page are of their columns' kinds.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        while True:
            params = {"table": table, "typed": "true" if typed else "false", **_bounds(within)}
            path = f"{_path(source, 'rows')}?{urlencode(params)}"
            head, rows = self._retried(lambda path=path: _decoded(self._fetch(path)))  # type: ignore[misc]
            yield RowsPage(head.offset, head.index, head.time_us, head.schema, rows, head.typed)
            if head.end or head.last is None:
                return
            within = KeyInterval(head.last, within.through)

    def committed(self, source: str, table: str) -> Offset:
        """Wait until the log has everything that is committed now; return an offset that is no less.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        path = f"{_path(source, 'rows')}?{urlencode({'table': table, 'rows': 1})}"
        return self._retried(lambda: _decoded(self._fetch(path)))[0].offset

    def _fetch(self, path: str) -> bytes:
        status, body = self._exchange("GET", path, None, again=True)
        if status != HTTPStatus.OK:
            raise error_of_answer(status, body)
        return body


def _decoded(body: bytes) -> tuple[_Head, pa.RecordBatch]:
    try:
        reader = pa.ipc.open_stream(body)
        head = msgspec.json.decode(reader.schema.metadata[_PAGE_KEY], type=_Head)
        return head, reader.read_next_batch().replace_schema_metadata(None)
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"the answer is not as expected: {error}") from error


def _bounds(within: KeyInterval) -> Mapping[str, Any]:
    named = {"after": within.after, "through": within.through}
    return {name: key for name, key in named.items() if key is not None}


def _path(source: str, rest: str) -> str:
    return f"/api/v1/bulk/{quote(source, safe='')}/{rest}"
