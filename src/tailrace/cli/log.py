"""`tailrace log`: look into the log of a data directory, also while a server writes it."""

import asyncio
import shutil
import sys
import time
from pathlib import Path

import click
from msgspec import json as msgspec_json

from tailrace.cli.help import Group
from tailrace.clock import SystemClock
from tailrace.datadir import DataDirectory, make_private
from tailrace.direct import lines
from tailrace.log.files import DiskFiles
from tailrace.log.reader import LogReader
from tailrace.log.reset import Begun, reset
from tailrace.log.schemas import SCHEMAS_NAME
from tailrace.log.verify import verify as verify_log
from tailrace.log.writer import disk_error
from tailrace.model.errors import ConfigError
from tailrace.model.number import Offset

__all__ = ["log"]

_shard = click.option("--shard", default=0, show_default=True, help="Number of the shard.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_directory = click.argument("data_dir", type=click.Path(path_type=Path))


@click.group(cls=Group)
def log() -> None:
    """List, print and verify the log of a data directory, or start a new log."""


@log.command("ls")
@_directory
@_shard
@_json
def list_segments(data_dir: Path, shard: int, *, as_json: bool) -> None:
    """List the segments."""
    reader = LogReader(_files(data_dir, shard))
    segments = reader.segments()
    if as_json:
        listing = {"head": reader.head, "horizon": reader.horizon, "last_index": reader.last_index}
        click.echo(msgspec_json.encode({**listing, "segments": segments}))
        return
    click.echo(f"{'segment':30} {'offsets':>23} {'bytes':>12}  from")
    for segment in segments:
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(segment.first_time_us / 1_000_000))
        state = "" if segment.sealed else "  active"
        offsets = f"{segment.first_offset}..{segment.last_offset}"
        click.echo(f"{segment.name:30} {offsets:>23} {segment.size_bytes:>12}  {begun}{state}")
    click.echo(f"horizon {reader.horizon}, head {reader.head}, commits {reader.last_index}")


@log.command("cat")
@_directory
@_shard
@click.option("--after", type=click.IntRange(0), help="Start after this offset; by default at the oldest change.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many changes.")
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; may be repeated.")
def print_changes(data_dir: Path, shard: int, after: int | None, limit: int | None, tables: tuple[str, ...]) -> None:
    """Print changes as JSON lines, oldest first."""
    asyncio.run(_print_changes(LogReader(_files(data_dir, shard)), after, limit, tables))


async def _print_changes(reader: LogReader, after: int | None, limit: int | None, tables: tuple[str, ...]) -> None:
    place = Offset(reader.horizon - 1 if after is None else after)
    left = limit if limit is not None else sys.maxsize
    while left > 0 and (chunk := await reader.read(place)) is not None:
        for line in lines(chunk, tables, place)[:left]:
            click.echo(line)
            left -= 1
        place = chunk.last


@log.command("verify")
@_directory
@_shard
@_json
def verify(data_dir: Path, shard: int, *, as_json: bool) -> None:
    """Check every frame; exit with 1 if anything is wrong."""
    report = verify_log(_files(data_dir, shard))
    if as_json:
        click.echo(msgspec_json.encode(report))
    else:
        for problem in report.problems:
            click.echo(problem)
        state = "is sound" if not report.problems else f"has {len(report.problems)} problems"
        click.echo(f"{report.changes} changes in {report.commits} commits, {report.segments} segments: the log {state}")
    sys.exit(1 if report.problems else 0)


@log.command("reset")
@_directory
@_shard
@click.option("--remove", is_flag=True, help="Delete the old log instead of keeping it.")
@_json
def begin_anew(data_dir: Path, shard: int, *, remove: bool, as_json: bool) -> None:
    """Start a new log, for example after restoring the database from an older copy. Stop the server first.

    The old log is moved to DATA_DIR/replaced. The new one continues its numbers: every subscriber, puller and pipeline
    is asked to take a new snapshot.
    """
    files = _files(data_dir, shard)
    clock = SystemClock()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock.now_us() / 1_000_000))
    with DataDirectory(data_dir):
        aside = None if remove else data_dir / "replaced" / stamp
        begun = _reset(files, clock, None if aside is None else DataDirectory(aside).shard(shard))
    if as_json:
        click.echo(msgspec_json.encode({"first_offset": begun.first_offset, "replaced": aside and str(aside)}))
        return
    click.echo(f"a new log begins with offset {begun.first_offset}; all subscribers will be asked for new snapshots")
    if aside is not None:
        click.echo(f"the old log is in {aside}: remove it when it is no longer needed; inspect it with `tailrace log`")


def _reset(files: DiskFiles, clock: SystemClock, aside: Path | None) -> Begun:
    try:
        if aside is None:
            return reset(files, clock, files.remove)
        make_private(aside)
        if SCHEMAS_NAME in files.names():
            shutil.copy2(files.directory / SCHEMAS_NAME, aside / SCHEMAS_NAME)

        def put_away(name: str) -> None:
            (files.directory / name).rename(aside / name)

        return reset(files, clock, put_away)
    except OSError as error:
        raise disk_error(error) from error


def _files(data_dir: Path, shard: int) -> DiskFiles:
    directory = DataDirectory(data_dir).shard(shard)
    if not directory.is_dir():
        raise ConfigError(f"{data_dir} has no log of a shard {shard}")
    return DiskFiles(directory)
