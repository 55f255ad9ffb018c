"""Errors of PostgreSQL as errors of a source: what passes by itself, and what to do about the rest. Pure."""

import contextlib
import re
from collections.abc import Iterator

import psycopg

from tailrace.model.errors import SourceError, SourceStateError, SourceUnavailableError

__all__ = ["translate", "translated"]

_GRANT = "ALTER ROLE … REPLICATION; GRANT CONNECT ON DATABASE … TO …; see docs/reference/postgresql.md"

_BY_STATE: dict[str, str] = {
    "28P01": "the password is wrong: correct it in the URL, PGPASSWORD or the password file",
    "28000": "the server refuses this user, host or database: add a line to pg_hba.conf, or correct the URL",
    "3D000": "the database does not exist: correct the URL",
    "42501": f"the role lacks a right: {_GRANT}",
    "42704": "what the slot needs did not exist at the time of its changes: drop the slot, and begin a new log with "
    "'tailrace log reset'",
    "53400": "all replication slots are in use: raise max_replication_slots, or drop one that nobody needs",
    "55000": "do what the server says, then start again",
    "58P01": "the server has removed write-ahead log that the slot needs",
}
"""What to do about errors that do not pass, by SQLSTATE."""

_BY_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("password authentication failed|no password supplied|password retrieved"), _BY_STATE["28P01"]),
    (re.compile("no pg_hba.conf entry|role .* does not exist|not permitted to log in"), _BY_STATE["28000"]),
    (re.compile('database ".*" does not exist'), _BY_STATE["3D000"]),
    (re.compile("permission denied to start WAL sender|must be superuser or replication role"), _BY_STATE["42501"]),
    (re.compile("permission denied for database"), _BY_STATE["42501"]),
    (
        re.compile("certificate verify failed|root certificate file|does not match host name|server does not support"),
        "the connection cannot be encrypted as sslmode asks: correct sslmode, sslrootcert, or the server",
    ),
)
"""The same for errors while connecting, of which libpq gives the text alone."""


def translate(error: psycopg.Error) -> SourceError:
    """Return the error of a source that an error of PostgreSQL is. What is not known passes by itself."""
    text = _text_of(error)
    remedy = _BY_STATE.get(error.sqlstate or "")
    if remedy is None and error.sqlstate is None:
        remedy = next((remedy for pattern, remedy in _BY_TEXT if pattern.search(text)), None)
    if remedy is None:
        return SourceUnavailableError(f"PostgreSQL: {text}")
    return SourceStateError(f"PostgreSQL: {text}; {remedy}")


def _text_of(error: psycopg.Error) -> str:
    """Return what the server said, on one line."""
    primary = error.diag.message_primary
    if primary is None:
        return " ".join(str(error).split()) or type(error).__name__
    hint = error.diag.message_detail or error.diag.message_hint
    return f"{primary} ({hint})" if hint else primary


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of PostgreSQL as errors of a source."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
