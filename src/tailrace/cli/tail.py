"""`tailrace tail`: live changes on the terminal, from a database or from a server."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import click
import uvloop
from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.cli.process import until_stopped
from tailrace.cli.show import EventLines
from tailrace.cli.source import source_at, source_options
from tailrace.client import AsyncClient, AsyncSubscription, ClientError
from tailrace.direct import follow
from tailrace.model.subscription import Format
from tailrace.sources import ResolvedSource, without_password

__all__ = ["tail"]

_EVENTS_WAITING_MAX = 256


@click.command()
@click.argument("url", required=False)
@source_options
@click.option("--server", metavar="HTTP_URL", help="Follow a running server instead of a database.")
@click.option("--source", help="With --server: the source's name; optional when the server has one source.")
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; may be repeated.")
@click.option("--token", envvar="TAILRACE_TOKEN", help="With --server: the token, or set TAILRACE_TOKEN.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as when the output is not a terminal.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many changes.")
def tail(
    url: str | None,
    options: tuple[str, ...],
    server: str | None,
    source: str | None,
    tables: tuple[str, ...],
    token: str | None,
    *,
    as_json: bool,
    limit: int | None,
) -> None:
    """Show changes as they are committed.

    URL is a database such as sqlite:///app.db: capture is set up for as long as the command runs, and removed with it
    unless something else uses it. With --server and --table, the changes come from a running `tailrace serve`.
    """
    if (url is None) == (server is None):
        raise click.UsageError("name either a database URL or --server HTTP_URL")
    if server is not None and options:
        raise click.UsageError("--option goes with a database URL, not with --server")
    if server is not None and not tables:
        raise click.UsageError("--server needs --table")
    output = _output(as_json=as_json or not sys.stdout.isatty())
    with until_stopped():
        if server is not None:
            uvloop.run(_tail_server(server, token, source, tables, output, limit))
        else:
            assert url is not None
            uvloop.run(_tail_database(source_at(url, options), url, tables, output, limit))


class _Output(Struct, frozen=True):
    """How events are asked for, and what becomes of them."""

    format: Format
    show: Callable[[bytes], None]


def _output(*, as_json: bool) -> _Output:
    """Return JSON lines, or text for people: that is made of typed values, which distinguish blobs from texts."""
    lines = EventLines()

    def print_pretty(event: bytes) -> None:
        click.echo(lines.line(msgspec_json.decode(event)))

    return _Output(Format.PLAIN_JSON, click.echo) if as_json else _Output(Format.OBJECTS_JSON, print_pretty)


def _ready(url: str) -> None:
    """Say on standard error that changes from now on are shown: until the first one there is nothing else to see."""
    click.echo(f"tailrace: ready; changes of {without_password(url)} follow", err=True)


async def _tail_database(
    resolved: ResolvedSource, url: str, tables: tuple[str, ...], output: _Output, limit: int | None
) -> None:
    with tempfile.TemporaryDirectory(prefix="tailrace-tail-") as directory:
        followed = follow(resolved, Path(directory), tables, partial(_ready, url), output.format)
        async with contextlib.aclosing(followed) as events:
            await _show(events, output.show, limit)


async def _tail_server(
    url: str,
    token: str | None,
    source: str | None,
    tables: tuple[str, ...],
    output: _Output,
    limit: int | None,
) -> None:
    async with AsyncClient(url, token) as client, contextlib.AsyncExitStack() as stack:
        queue: asyncio.Queue[bytes | ClientError] = asyncio.Queue(_EVENTS_WAITING_MAX)
        for table in tables:
            subscription = await client.subscribe(source, table, format=output.format.value)
            stack.push_async_callback(_end, asyncio.create_task(_pass_on(subscription, queue)))
        _ready(url)
        await _show(_taken(queue), output.show, limit)


async def _show(events: AsyncIterator[bytes], show: Callable[[bytes], None], limit: int | None) -> None:
    shown = 0
    async for event in events:
        show(event)
        shown += 1
        if shown == limit:
            return


async def _taken(queue: asyncio.Queue[bytes | ClientError]) -> AsyncIterator[bytes]:
    while True:
        match await queue.get():
            case ClientError() as error:
                raise error
            case event:
                yield event


async def _pass_on(subscription: AsyncSubscription, queue: asyncio.Queue[bytes | ClientError]) -> None:
    """Put the changes of a subscription into the queue, and in the end the reason why there are no more."""
    try:
        async for event in subscription:
            await queue.put(event.raw)
    except ClientError as error:
        await queue.put(error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
