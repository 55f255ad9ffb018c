"""The table `kv` of a PostgreSQL database. Blocking.

    key               bytea PRIMARY KEY
    value             bytea NOT NULL
    expires_time_us   bigint            when the entry's time is over, in microseconds since the Unix epoch; NULL: never

Each method is a transaction. An expired entry counts as absent everywhere.
"""

import contextlib
from collections.abc import Iterator, Sequence

import psycopg

from tailrace.model.errors import KeyValueError, ResultTooLargeError
from tailrace.source.key_value import Entry, PageLimits
from tailrace.source.postgres.failure import translated
from tailrace.source.postgres.lane import LaneConnection
from tailrace.source.postgres.options import PostgresSettings

__all__ = ["KvTable"]

_COLUMNS = [("key", "bytea", True), ("value", "bytea", False), ("expires_time_us", "bigint", False)]
_FIND = """
    SELECT attname::text, format_type(atttypid, atttypmod),
        attnum = ANY(COALESCE((SELECT indkey::int2[] FROM pg_index WHERE indrelid = attrelid AND indisprimary), '{}'))
    FROM pg_attribute WHERE attrelid = to_regclass('public.kv') AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_CREATE = "CREATE TABLE IF NOT EXISTS public.kv(key bytea PRIMARY KEY, value bytea NOT NULL, expires_time_us bigint)"
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS kv_expires ON public.kv(expires_time_us) WHERE expires_time_us IS NOT NULL"
_LIVE = "(expires_time_us IS NULL OR expires_time_us > %s)"
_SIZES = f"SELECT key, octet_length(value) FROM public.kv WHERE key = ANY(%s) AND {_LIVE}"  # noqa: S608
_GET = f"SELECT key, value FROM public.kv WHERE key = ANY(%s) AND {_LIVE}"  # noqa: S608
_PUT = (
    "INSERT INTO public.kv(key, value, expires_time_us) VALUES(%s, %s, %s) "
    "ON CONFLICT(key) DO UPDATE SET value = excluded.value, expires_time_us = excluded.expires_time_us"
)
_EXPIRE = "DELETE FROM public.kv WHERE key = ANY(%s) AND expires_time_us <= %s"
_DELETE = "DELETE FROM public.kv WHERE key = %s"
_SCAN = """
    SELECT key, value FROM (
        SELECT key, value, row_number() OVER (ORDER BY key) AS number,
            sum(octet_length(key) + octet_length(value)) OVER (ORDER BY key) AS size
        FROM (SELECT key, value FROM public.kv WHERE {where} ORDER BY key LIMIT %s) t) t
    WHERE number = 1 OR size <= %s ORDER BY key"""
_SWEEP = """
    DELETE FROM public.kv WHERE key IN (
        SELECT key FROM public.kv WHERE expires_time_us <= %s ORDER BY expires_time_us LIMIT %s)"""
_NEXT = "SELECT min(expires_time_us) FROM public.kv WHERE expires_time_us IS NOT NULL"
_PUBLISHED = """
    SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = 'public' AND tablename = 'kv'"""
_LOCK = 0x7A11_006B_7600
"""Advisory lock of those who make the table."""

_READING, _WRITING = "REPEATABLE READ READ ONLY", "READ COMMITTED READ WRITE"
_US_PER_S = 1_000_000


class KvTable(LaneConnection):
    """A connection that reads and writes the table. `publication` is that of capture; None where nothing captures."""

    def __init__(self, url: str, settings: PostgresSettings, publication: str | None) -> None:
        super().__init__(url, settings)
        self._publication = publication
        self._made = False
        self.rows("SELECT set_config('synchronous_commit', 'on', false)")  # what was put is on disk

    def exists(self) -> bool:
        """Tell whether there is such a table.

        Raises:
            KeyValueError: There is something else of that name.
        """
        columns = self.rows(_FIND)
        if not columns:
            return False
        if columns != _COLUMNS:
            raise KeyValueError(
                "the database has a table kv of its own, without the columns key, value and expires_time_us: rename it "
                "(ALTER TABLE kv RENAME TO …), and the next put makes a table for keys and values"
            )
        return True

    def get(self, keys: Sequence[bytes], now_us: int, bytes_max: int) -> list[bytes | None]:
        """Return the values of keys, None where there is none."""
        with self._transaction(_READING):
            if not self.exists():
                return [None] * len(keys)
            sizes = dict(self.rows(_SIZES, [list(keys), now_us]))
            if sum(sizes.get(key, 0) for key in keys) > bytes_max:
                raise ResultTooLargeError(f"the values have more than {bytes_max} bytes: ask for fewer keys")
            values = dict(self.rows(_GET, [list(sizes), now_us]))
        return [values.get(key) for key in keys]

    def put(self, entries: Sequence[Entry], now_us: int) -> None:
        """Insert entries or update them. One whose time is over is removed first: it ends as a delete.

        In the order of keys, so that two writers never wait for each other.
        """
        with self._transaction():
            if not self._made:
                self._create()
            rising = sorted(entries, key=lambda entry: entry.key)
            rows = [
                (entry.key, entry.value, now_us + entry.ttl_s * _US_PER_S if entry.ttl_s else None) for entry in rising
            ]
            with translated():
                self._connection.execute(_EXPIRE, [[entry.key for entry in rising], now_us])
                self._connection.cursor().executemany(_PUT, rows)
        self._made = True

    def delete(self, key: bytes, now_us: int) -> bool:
        """Remove a key; tell whether it was there."""
        with self._transaction(), translated():
            if not self.exists():
                return False
            self._connection.execute(_EXPIRE, [[key], now_us])
            return self._connection.execute(_DELETE, [key]).rowcount > 0

    def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits, now_us: int) -> list[Entry]:
        """Return the first entries with a prefix after a key."""
        lower = (">=", prefix) if after is None or after < prefix else (">", after)
        stem = prefix.rstrip(b"\xff")
        bounds = [lower, ("<", stem[:-1] + bytes((stem[-1] + 1,)))] if stem else [lower]
        where = " AND ".join([*(f"key {comparison} %s" for comparison, _ in bounds), _LIVE])
        bound = [*(bound for _, bound in bounds), now_us, limits.entries_max, limits.bytes_max]
        with self._transaction(_READING):
            if not self.exists():
                return []
            return [Entry(key, value) for key, value in self.rows(_SCAN.format(where=where), bound)]

    def sweep(self, now_us: int, entries_max: int) -> None:
        """Remove entries whose time is over, those first for which it has been for longest."""
        with self._transaction(), translated():
            self._connection.execute(_SWEEP, [now_us, entries_max])

    def next_expiry_us(self) -> int | None:
        """Return when the next entry's time is over; None when no entry's is."""
        with self._transaction(_READING):
            return self.rows(_NEXT)[0][0] if self.exists() else None

    def _create(self) -> None:
        """Make the table where it is not there, and its index; and look whether it is captured."""
        with translated():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])  # two who make it at once would fail
            if not self.exists():
                self._connection.execute(_CREATE)
            self._connection.execute(_CREATE_INDEX)
        if self._publication is not None and not self.rows(_PUBLISHED, [self._publication]):
            raise KeyValueError(
                f"publication {self._publication} does not have the table kv, so what is put would not be captured: "
                f'make the table ({_CREATE}), then ALTER PUBLICATION "{self._publication}" ADD TABLE public.kv'
            )

    @contextlib.contextmanager
    def _transaction(self, mode: str = _WRITING) -> Iterator[None]:
        """Have what is read be of one moment, and what is written be there as a whole."""
        try:
            with translated(), self._connection.transaction():
                self._connection.execute(f"SET TRANSACTION ISOLATION LEVEL {mode}")
                yield
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.errors.InsufficientPrivilege | psycopg.errors.ReadOnlySqlTransaction):
                raise KeyValueError(
                    f"PostgreSQL: {cause.diag.message_primary}; keys and values need GRANT CREATE ON SCHEMA public, or "
                    "SELECT, INSERT, UPDATE and DELETE on the table kv"
                ) from error
            if isinstance(cause, psycopg.errors.UndefinedTable):
                self._made = False
            raise
