"""The table `kv` of an SQLite database, in the caller's transaction. Blocking.

    key               BLOB PRIMARY KEY  a row whose key is no blob is no entry
    value             BLOB NOT NULL
    expires_time_us   INTEGER           when the entry's time is over, in microseconds since the Unix epoch; NULL: never

An index over `expires_time_us` finds the next entry whose time is over. An expired entry counts as absent everywhere.
"""

import apsw

from tailrace.model.errors import KeyValueError, ResultTooLargeError
from tailrace.source.key_value import Entry, PageLimits

__all__ = ["KV", "KvTable"]

KV = "kv"
"""Name of the table."""

_INDEX = "kv_expires"
_COLUMNS = [("key", 1), ("value", 0), ("expires_time_us", 0)]
"""Names of the columns, and their places in the primary key."""

_CREATE = "CREATE TABLE kv(key BLOB PRIMARY KEY, value BLOB NOT NULL, expires_time_us INTEGER)"
_CREATE_INDEX = f"CREATE INDEX {_INDEX} ON kv(expires_time_us) WHERE expires_time_us IS NOT NULL"
_LIVE = "(expires_time_us IS NULL OR expires_time_us > ?)"
_GET = f"SELECT CAST(value AS BLOB) FROM kv WHERE key = ? AND {_LIVE}"  # noqa: S608
_PUT = (
    "INSERT INTO kv(key, value, expires_time_us) VALUES(?, ?, ?) "
    "ON CONFLICT(key) DO UPDATE SET value = excluded.value, expires_time_us = excluded.expires_time_us"
)
_EXPIRE = "DELETE FROM kv WHERE key = ? AND expires_time_us <= ?"
_DELETE = "DELETE FROM kv WHERE key = ?"
_SCAN = f"SELECT key, CAST(value AS BLOB) FROM kv WHERE typeof(key) = 'blob' AND {_LIVE}"  # noqa: S608
_SWEEP = "DELETE FROM kv WHERE key IN (SELECT key FROM kv WHERE expires_time_us <= ? ORDER BY expires_time_us LIMIT ?)"
_NEXT = "SELECT min(expires_time_us) FROM kv WHERE expires_time_us IS NOT NULL"
_US_PER_S = 1_000_000


class KvTable:
    """Reads and writes the table through one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def exists(self) -> bool:
        """Tell whether there is such a table.

        Raises:
            KeyValueError: There is something else of that name.
        """
        kinds = self._connection.execute("SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (KV,)).get
        if kinds is None:
            return False
        columns = self._connection.execute("SELECT name, pk FROM pragma_table_info(?)", (KV,)).fetchall()
        if kinds != "table" or columns != _COLUMNS:
            raise KeyValueError(
                "the database has a table kv of its own, without the columns key, value and expires_time_us: rename it "
                "(ALTER TABLE kv RENAME TO …), and the next put makes a table for keys and values"
            )
        return True

    def create(self) -> None:
        """Make the table where it is not there, and its index."""
        if not self.exists():
            self._connection.execute(_CREATE)
        if not self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_INDEX,)).get:
            self._connection.execute(_CREATE_INDEX)

    def get(self, keys: list[bytes], now_us: int, bytes_max: int) -> list[bytes | None]:
        """Return the values of keys, None where there is none."""
        values: list[bytes | None] = []
        size_bytes = 0
        for key in keys:
            value: bytes | None = self._connection.execute(_GET, (key, now_us)).get
            size_bytes += len(value or b"")
            if size_bytes > bytes_max:
                raise ResultTooLargeError(f"the values have more than {bytes_max} bytes: ask for fewer keys")
            values.append(value)
        return values

    def put(self, entries: list[Entry], now_us: int) -> None:
        """Insert entries or update them. One whose time is over is removed first: it ends as a delete."""
        for entry in entries:
            expires_us = now_us + entry.ttl_s * _US_PER_S if entry.ttl_s else None
            self._connection.execute(_EXPIRE, (entry.key, now_us))
            self._connection.execute(_PUT, (entry.key, entry.value, expires_us))

    def delete(self, key: bytes, now_us: int) -> bool:
        """Remove a key; tell whether it was there."""
        self._connection.execute(_EXPIRE, (key, now_us))
        self._connection.execute(_DELETE, (key,))
        return self._connection.changes() > 0

    def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits, now_us: int) -> list[Entry]:
        """Return the first entries with a prefix after a key."""
        entries: list[Entry] = []
        size_bytes = 0
        lower = (">=", prefix) if after is None or after < prefix else (">", after)
        end = _end_of(prefix)
        bounds = [lower] if end is None else [lower, ("<", end)]
        where = " AND ".join(f"key {comparison} ?" for comparison, _ in bounds)
        bindings = (now_us, *(bound for _, bound in bounds), limits.entries_max)
        rows = self._connection.execute(f"{_SCAN} AND {where} ORDER BY key LIMIT ?", bindings)
        for key, value in rows:
            size_bytes += len(key) + len(value)
            if entries and size_bytes > limits.bytes_max:
                break
            entries.append(Entry(key, value))
        return entries

    def sweep(self, now_us: int, entries_max: int) -> None:
        """Remove entries whose time is over, those first for which it has been for longest."""
        self._connection.execute(_SWEEP, (now_us, entries_max))

    def next_expiry_us(self) -> int | None:
        """Return when the next entry's time is over; None when no entry's is."""
        found: int | None = self._connection.execute(_NEXT).get
        return found


def _end_of(prefix: bytes) -> bytes | None:
    """Return the first key after all that begin with a prefix; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
