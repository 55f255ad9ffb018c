"""`tailrace capture`: prepare a database for capture, look at it, change its schema, and take everything away again."""

import sys

import click
from msgspec import json as msgspec_json

from tailrace.cli.help import Group
from tailrace.cli.source import source_at, source_options
from tailrace.source.administration import CaptureStatus, Finding, Severity
from tailrace.sources import without_password

__all__ = ["capture"]


@click.group(cls=Group)
def capture() -> None:
    """Set up, inspect and remove capture in a database. `serve` and `tail` set it up by themselves."""


@capture.command("setup")
@click.argument("url")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def set_up_capture(url: str, options: tuple[str, ...], *, as_json: bool) -> None:
    """Record every write by any process from now on, with or without a running server."""
    advice = source_at(url, options).administer().set_up()
    if as_json:
        click.echo(msgspec_json.encode({"advice": advice}))
        return
    click.echo("capture is set up")
    for text in advice:
        click.echo(f"- {text.replace('URL', without_password(url))}")


@capture.command("remove")
@click.argument("url")
@source_options
@click.option("--reader", help="Remove only this reader, so that it stops keeping changes in the database.")
@click.option(
    "--force", is_flag=True, help="Remove capture even while a server or `tail` is reading; that reader then fails."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def remove_capture(url: str, options: tuple[str, ...], reader: str | None, *, force: bool, as_json: bool) -> None:
    """Remove capture and everything it added, including unread changes. Stop the server first."""
    administration = source_at(url, options).administer()
    if reader is not None:
        administration.remove_reader(reader, force=force)
        removed, said = True, f"removed reader {reader}"
    else:
        removed = administration.remove(force=force)
        said = "capture is removed" if removed else "capture was not set up"
    click.echo(msgspec_json.encode({"removed": removed}) if as_json else said)


@capture.command("status")
@click.argument("url")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_status(url: str, options: tuple[str, ...], *, as_json: bool) -> None:
    """Show what is captured, which readers exist, and how many changes are unread."""
    found = source_at(url, options).administer().status()
    if as_json:
        click.echo(msgspec_json.encode(found))
    else:
        _print_status(found)


def _print_status(found: CaptureStatus) -> None:
    if found.capture is None:
        click.echo("capture is not set up")
        return
    click.echo(f"capture {found.capture}: {found.waiting} changes wait, {found.size_bytes} bytes")
    click.echo(f"tables: {', '.join(found.tables) or 'none'}")
    for label, text in found.facts().items():
        click.echo(f"{label}: {text}")
    for reader in found.readers:
        kind = "a tail" if reader.ephemeral else "a server"
        state = ", gone" if not reader.alive else "" if reader.reading else ", stopped"
        in_bytes = f"{reader.waiting_bytes} bytes of log are kept for it"
        waiting = f"{reader.waiting} changes wait for it" if reader.waiting_bytes is None else in_bytes
        click.echo(f"reader {reader.name} ({kind}{state}): {waiting}")


@capture.command("doctor")
@click.argument("url")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def examine(url: str, options: tuple[str, ...], *, as_json: bool) -> None:
    """Show what is wrong or risky with a database for capture, and what to do; exit with 1 if it cannot be captured."""
    findings = source_at(url, options).administer().doctor()
    if as_json:
        click.echo(msgspec_json.encode({"findings": findings}))
    else:
        for finding in findings:
            _print_finding(finding, url)
    sys.exit(1 if any(finding.severity is Severity.PROBLEM for finding in findings) else 0)


def _print_finding(finding: Finding, url: str) -> None:
    click.echo(f"{finding.severity:<8} {finding.check}: {finding.message}")
    if finding.remedy:
        click.echo(f"{'':<8} → {finding.remedy.replace('URL', without_password(url))}")


@capture.command("exec")
@click.argument("url")
@click.argument("sql")
@source_options
@click.option(
    "--bulk", is_flag=True, help="Run any statements in one transaction whose changes are marked as moved data."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def exec_statements(url: str, sql: str, options: tuple[str, ...], *, bulk: bool, as_json: bool) -> None:
    """Run a schema change that is refused while capture is set up, e.g. ALTER TABLE … DROP COLUMN in SQLite.

    With --bulk, run a bulk load. SQL is `-` for standard input.
    """
    text = sys.stdin.read() if sql == "-" else sql
    source_at(url, options).administer().execute(text, bulk=bulk)
    click.echo(msgspec_json.encode({"done": True}) if as_json else "done")
