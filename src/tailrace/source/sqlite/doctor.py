"""What is wrong or risky with an SQLite database for capture, and what to do about it. Changes nothing."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from tailrace.model.errors import SourceError, SourceStateError, SourceUnavailableError
from tailrace.source.administration import Finding, Severity
from tailrace.source.sqlite.capture_setup import Status, status
from tailrace.source.sqlite.change_table import FORMAT
from tailrace.source.sqlite.connection import connect, require_capturable, translated
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.registry import read_capture
from tailrace.source.sqlite.schema import read_schema

__all__ = ["NETWORK_FILE_SYSTEMS", "examine", "file_system_of"]

NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "lustre"})
"""File systems whose locks and shared memory SQLite does not trust, and that report no writes of other machines."""

_FREE_BYTES_LEAST = 64 << 20
_FREE_BYTES_LOW = 1 << 30
"""Free disk space below which writers of the database may soon fail, and below which it is scarce."""

_WAITING_MANY = 1_000_000
"""Changes that wait in the database from which on it is worth a look."""

_MOUNTS = Path("/proc/self/mounts")


def examine(path: Path, options: SqliteOptions) -> list[Finding]:
    """Return a finding for each thing that was checked. Where the file cannot be used at all, that is the only one."""
    try:
        require_capturable(path)
    except SourceStateError as error:
        return [_problem("access", str(error), "correct the URL or the permissions, then run doctor again")]
    findings = [_ok("access", f"{os.fspath(path)!r} is a database that this process may write to"), _disk(path)]
    findings += _file_system(path)
    try:
        findings += _inside(path, options)
    except SourceUnavailableError as error:
        findings.append(_problem("lock", str(error), _LOCKED))
    except SourceError as error:
        findings.append(_problem("database", str(error), "do what the message says, then run doctor again"))
    return findings


def _inside(path: Path, options: SqliteOptions) -> Iterator[Finding]:
    with contextlib.closing(connect(path, busy_timeout_ms=options.busy_timeout_ms)) as connection, translated(path):
        mode = str(connection.pragma("journal_mode"))
        yield _journal(mode)
        if mode == "wal":
            yield _write_ahead_log(path, options)
        yield _lock(connection, options)
        yield _keys(connection)
        capture = read_capture(connection)
        if capture is not None and capture.format != FORMAT:
            reason = f"capture was set up in format {capture.format}; this version speaks {FORMAT}"
            yield _problem("capture", reason, "remove it and set it up again, or use the version that set it up")
            return
    yield from _capture(status(path, options))


def _disk(path: Path) -> Finding:
    free_bytes = shutil.disk_usage(path.parent).free
    message = f"{free_bytes >> 20} MiB are free beside the database"
    remedy = "free some space: changes wait in the database until the log has them, and the write-ahead log grows"
    if free_bytes < _FREE_BYTES_LEAST:
        return _problem("disk", message, remedy)
    return _warning("disk", message, remedy) if free_bytes < _FREE_BYTES_LOW else _ok("disk", message)


def _file_system(path: Path) -> Iterator[Finding]:
    try:
        kind = file_system_of(path.resolve(), _MOUNTS.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return  # not Linux
    if kind in NETWORK_FILE_SYSTEMS:
        remedy = "keep the database on a local disk, and run capture on the machine whose applications write to it"
        yield _problem("file system", f"the database is on a network file system ({kind})", remedy)
    elif kind is not None:
        yield _ok("file system", f"the database is on {kind}")


def file_system_of(path: Path, mounts: str) -> str | None:
    """Return the type of the file system that a resolved path is on, by the lines of `/proc/self/mounts`. Pure."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].encode().decode("unicode_escape"))
        # A later mount at the same place hides an earlier one.
        if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = (len(point.parts), fields[2])
    return None if found is None else found[1]


def _journal(mode: str) -> Finding:
    if mode == "wal":
        return _ok("journal mode", "wal")
    message = f"{mode}: readers and writers lock each other out, and transactions may be merged into one commit"
    return _warning("journal mode", message, "PRAGMA journal_mode = wal, once for the database")


def _write_ahead_log(path: Path, options: SqliteOptions) -> Finding:
    try:
        size_bytes = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        size_bytes = 0
    message = f"the write-ahead log has {size_bytes >> 20} MiB"
    if size_bytes <= options.hold_bytes_max:
        return _ok("write-ahead log", message)
    remedy = "end transactions that read for long; borders of transactions may be lost while it is so large"
    return _warning("write-ahead log", message, remedy)


def _lock(connection: apsw.Connection, options: SqliteOptions) -> Finding:
    """Try the write lock, and let it go at once."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        seconds = options.busy_timeout_ms / 1000
        return _warning("lock", f"another program has held the write lock for {seconds:g} s", _LOCKED)
    connection.execute("ROLLBACK")
    return _ok("lock", "the write lock can be had; set a busy timeout in every application that writes")


def _keys(connection: apsw.Connection) -> Finding:
    tables = read_schema(connection).tables.values()
    keyless = sorted(table.name for table in tables if not table.key)
    if not keyless:
        return _ok("keys", f"all {len(tables)} tables have a primary key")
    message = f"without a primary key, rows are known by their row number: {', '.join(keyless)}"
    return _warning("keys", message, "give them a primary key where subscribers or sinks need a key that lasts")


def _capture(found: Status) -> Iterator[Finding]:
    if found.capture is None:
        yield _ok("capture", "not set up; `tailrace serve`, `tail` and `capture setup` set it up")
        return
    message = f"set up for {len(found.tables)} tables; {found.waiting} changes wait, {found.size_bytes} bytes"
    remedy = "start the server whose reader is behind, or forget the reader"
    yield _warning("capture", message, remedy) if found.waiting >= _WAITING_MANY else _ok("capture", message)
    for reader in found.readers:
        message = f"{reader.name}: {reader.waiting} changes wait for it"
        if reader.reading:
            yield _ok("reader", f"{message}; it reads now")
        elif reader.alive:
            remedy = f"start its server; if it will not come back: tailrace capture remove URL --reader {reader.name}"
            yield _warning("reader", f"{message}; no process reads for it, so the database keeps its changes", remedy)
        else:
            yield _ok("reader", f"{message}; its process is gone, it is forgotten when the next reader comes")


_LOCKED = "find the program that writes for so long and let it commit sooner, or give capture a longer busy_timeout"


def _finding(severity: Severity) -> Callable[[str, str, str], Finding]:
    return lambda check, message, remedy: Finding(check, severity, message, remedy)


_warning = _finding(Severity.WARNING)
_problem = _finding(Severity.PROBLEM)


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Severity.OK, message)
