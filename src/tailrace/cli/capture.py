"""`tailrace capture`: prepare a database for capture, look at it, change its schema, and take everything away again."""

import sys

import click
from msgspec import json as msgspec_json

from tailrace.cli.help import Group
from tailrace.source.sqlite.bulk import exec_bulk
from tailrace.source.sqlite.capture_setup import exec_ddl, remove, remove_reader, set_up, status
from tailrace.sources import sqlite_path

__all__ = ["capture"]

_ADVICE = """\
- ALTER TABLE … DROP COLUMN is refused by SQLite from now on. Run it with: tailrace capture exec {url} 'ALTER TABLE …'
- A running server writes now and then: set a busy timeout in the application (PRAGMA busy_timeout = 5000).\
"""

_ADVICE_WAL = """\
- The journal mode is {mode}: readers and writers lock each other out, so writes without a busy timeout fail at times,
  and transactions may be merged into one commit. Recommended: PRAGMA journal_mode = wal\
"""


@click.group(cls=Group)
def capture() -> None:
    """Set up, inspect and remove capture in a database. `serve` and `tail` set it up by themselves."""


@capture.command("setup")
@click.argument("url")
def set_up_capture(url: str) -> None:
    """Record every write by any process from now on, with or without a running server."""
    path = sqlite_path(url)
    set_up(path)
    click.echo("capture is set up")
    click.echo(_ADVICE.format(url=url))
    mode = status(path).journal_mode
    if mode != "wal":
        click.echo(_ADVICE_WAL.format(mode=mode))


@capture.command("remove")
@click.argument("url")
@click.option("--reader", help="Remove only this reader, so that it stops keeping changes in the database.")
@click.option(
    "--force", is_flag=True, help="Remove capture even while a server or `tail` is reading; that reader then fails."
)
def remove_capture(url: str, reader: str | None, *, force: bool) -> None:
    """Remove capture and everything it added, including unread changes. Stop the server first."""
    if reader is not None:
        remove_reader(sqlite_path(url), reader, force=force)
        click.echo(f"removed reader {reader}")
    elif remove(sqlite_path(url), force=force):
        click.echo("capture is removed")
    else:
        click.echo("capture was not set up")


@capture.command("status")
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_status(url: str, *, as_json: bool) -> None:
    """Show what is captured, which readers exist, and how many changes are unread."""
    found = status(sqlite_path(url))
    if as_json:
        click.echo(msgspec_json.encode(found))
        return
    if found.capture is None:
        click.echo("capture is not set up")
        return
    click.echo(f"capture {found.capture}: {found.waiting} changes wait, {found.size_bytes} bytes")
    click.echo(f"tables: {', '.join(found.tables) or 'none'}")
    click.echo(f"journal mode: {found.journal_mode}")
    for reader in found.readers:
        kind = "a tail" if reader.ephemeral else "a server"
        state = ", gone" if not reader.alive else "" if reader.reading else ", stopped"
        click.echo(f"reader {reader.name} ({kind}{state}): {reader.waiting} changes wait for it")


@capture.command("exec")
@click.argument("url")
@click.argument("sql")
@click.option(
    "--bulk", is_flag=True, help="Run any statements in one transaction whose changes are marked as moved data."
)
def exec_statements(url: str, sql: str, *, bulk: bool) -> None:
    """Run a schema change that SQLite refuses while triggers name a column, e.g. ALTER TABLE … DROP COLUMN.

    With --bulk, run a bulk load. SQL is `-` for standard input.
    """
    text = sys.stdin.read() if sql == "-" else sql
    if bulk:
        exec_bulk(sqlite_path(url), text)
    else:
        exec_ddl(sqlite_path(url), text)
    click.echo("done")
