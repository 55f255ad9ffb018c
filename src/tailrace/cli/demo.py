"""`tailrace demo`: a shop with a live workload and its changes on the terminal; with --once, a proof that all came."""

import asyncio
import contextlib
import json
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import uvloop
from msgspec import json as msgspec_json

from tailrace.cli.access import counted
from tailrace.cli.demo_pipeline import DemoPipeline
from tailrace.cli.show import EventLines
from tailrace.client import AsyncClient, AsyncSubscription, NotFound
from tailrace.demo import TABLES, InOrder, Replica, Shop
from tailrace.model.errors import TailraceError

__all__ = ["demo"]

_TRADES_ONCE = 400
_PAUSE_S = 0.25
_PRINT_S = 0.05
_HOLD_S = 1.0
"""How long an event waits for those before it."""

_START_MAX_S = 30.0
_CATCH_UP_MAX_S = 30.0
_STOP_MAX_S = 10.0


@click.command()
@click.option("--once", is_flag=True, help="Run one bounded round, check the result, and exit.")
@click.option("--http-port", default=8080, show_default=True, help="HTTP port; 0 takes a free one.")
@click.option("--grpc-port", default=50051, show_default=True, help="gRPC port; 0 takes a free one.")
@click.option("--trades", default=_TRADES_ONCE, show_default=True, help="With --once: transactions to run.")
@click.option("--pipeline/--no-pipeline", default=True, help="Also copy the shop into Delta tables, with Spark.")
def demo(*, once: bool, http_port: int, grpc_port: int, trades: int, pipeline: bool) -> None:
    """Show what Tailrace does with an example SQLite shop in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as directory:
        ports = (0, 0) if once else (http_port, grpc_port)
        uvloop.run(_demo(Path(directory), ports, trades if once else None, pipeline=pipeline))


async def _demo(directory: Path, ports: tuple[int, int], trades: int | None, *, pipeline: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _progress("starting a server on a shop of its own")
    async with _server(directory, ports) as addresses, AsyncClient(addresses["http"]) as client:
        shop = await asyncio.to_thread(Shop, directory / "embedded.db", 7)
        try:
            copy = _pipeline(directory, addresses["http"]) if pipeline else None
            if trades is None:
                await _show_live(client, shop, stop, copy)
            else:
                await _prove(client, shop, trades)
                await _prove_copy(shop, copy, trades)
        finally:
            shop.close()


@contextlib.asynccontextmanager
async def _server(directory: Path, ports: tuple[int, int]) -> Any:
    """Run `tailrace serve` on the directory as a process of its own; yield the addresses that it announces."""
    command = [sys.executable, "-m", "tailrace", "serve", "--json", "--logging-level", "warning"]
    command += ["--data-dir", str(directory), "--http-port", str(ports[0]), "--grpc-port", str(ports[1])]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_MAX_S)
        if not line:
            raise TailraceError(f"the server did not start (exit code {await process.wait()}); its message is above")
        yield json.loads(line)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_MAX_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _subscribe(client: AsyncClient) -> list[AsyncSubscription]:
    """Subscribe to every table of the shop."""
    subscriptions = []
    deadline = time.monotonic() + _CATCH_UP_MAX_S
    for table in TABLES:
        while True:
            try:
                subscriptions.append(await client.subscribe_table("default", table, format="plain_json"))
                break
            except NotFound:  # the server has yet to notice the tables just made
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
    return subscriptions


def _pipeline(directory: Path, server: str) -> DemoPipeline | None:
    """Return the demo's pipeline; None, and say why, where it cannot be run."""
    demo = DemoPipeline(directory, server)
    reason = demo.skipped()
    if reason is not None:
        click.echo(f"demo: {reason}")
        return None
    return demo


async def _show_live(client: AsyncClient, shop: Shop, stop: asyncio.Event, copy: DemoPipeline | None) -> None:
    subscriptions = await _subscribe(client)
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        if copy is not None:  # beside the trade: it takes a while
            tasks.create_task(_follow(copy, stack))
        await _trade_live(client, subscriptions, shop, stop)
    if copy is not None:
        if await copy.copied():
            _progress("comparing the Delta tables with the shop's")
            await copy.verify()
        else:
            click.echo("demo: ended before the pipeline had copied the shop's tables: there is nothing to compare")
    click.echo("demo ended; its directory is removed")


async def _follow(copy: DemoPipeline, stack: contextlib.AsyncExitStack) -> None:
    """Make the pipeline and have it follow until the stack is left."""
    try:
        await copy.create()
    except TailraceError as error:
        click.echo(f"demo: the pipeline is left out: {error}", err=True)
        return
    await stack.enter_async_context(copy.following())
    _progress("a pipeline copies the tables into Delta tables with Spark, and follows their changes")


async def _trade_live(
    client: AsyncClient, subscriptions: list[AsyncSubscription], shop: Shop, stop: asyncio.Event
) -> None:
    click.echo(_invitation(client.url, [subscription.sse_url for subscription in subscriptions]))
    events = InOrder(_HOLD_S)
    tasks = [asyncio.create_task(_take(subscription, events)) for subscription in subscriptions]
    tasks.append(asyncio.create_task(_print(events)))
    try:
        await asyncio.to_thread(shop.stock_up)
        while not stop.is_set():
            await asyncio.to_thread(shop.trade)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _PAUSE_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _take(subscription: AsyncSubscription, events: InOrder) -> None:
    async for event in subscription:
        decoded = msgspec_json.decode(event.raw)
        events.add(decoded["seq"], decoded, time.monotonic())


async def _print(events: InOrder) -> None:
    """Print the events of all tables in the order of their offsets: each table has a stream of its own."""
    lines = EventLines()
    while True:
        for event in events.ready(time.monotonic()):
            click.echo(lines.line(event))
        await asyncio.sleep(_PRINT_S)


def _progress(text: str) -> None:
    """Say on standard error what takes a while."""
    click.echo(f"demo: {text} …", err=True)


def _invitation(url: str, paths: list[str]) -> str:
    call = {"skeinql": "1.0", "id": 1, "method": "cdc.subscribe_table", "params": {"db": "default", "table": "orders"}}
    return "\n".join(
        (
            "",
            f"A shop is trading; Tailrace serves its changes at {url}. Try in another terminal:",
            "",
            f"  curl -N {url}{paths[TABLES.index('orders')]}",
            f"  curl {url}/api/v1/rpc -H 'content-type: application/json' -d {shlex.quote(json.dumps(call))}",
            f"  tailrace tail --server {url} --table orders",
            f"  curl {url}/metrics",
            "",
            "Ctrl-C ends it.",
            "",
        )
    )


async def _prove(client: AsyncClient, shop: Shop, trades: int) -> None:
    """Trade, follow all streams, and check that what arrived replays to exactly the shop's tables."""
    _progress(f"running {trades + 1} transactions, and replaying their changes")
    replica = Replica()
    tasks = [asyncio.create_task(_replay(subscription, replica)) for subscription in await _subscribe(client)]
    try:
        await asyncio.to_thread(shop.stock_up)
        for _ in range(trades):
            await asyncio.to_thread(shop.trade)
        rows = {table: shop.rows(table) for table in TABLES}
        deadline = time.monotonic() + _CATCH_UP_MAX_S
        while not all(replica.equals(table, rows[table]) for table in TABLES):
            failed = [task for task in tasks if task.done()]
            if failed:
                await failed[0]
            if time.monotonic() > deadline:
                raise TailraceError("demo: the replayed tables are not equal to the shop's tables")
            await asyncio.sleep(0.02)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    total = sum(map(len, rows.values()))
    click.echo(
        f"demo: {counted(replica.applied, 'change')} of {counted(trades + 1, 'transaction')} received; replayed, they "
        f"are exactly the {counted(total, 'row')} of the shop's {len(TABLES)} tables"
    )


async def _prove_copy(shop: Shop, copy: DemoPipeline | None, trades: int) -> None:
    """Copy the shop into Delta tables, trade on, follow the changes with Spark, and compare."""
    if copy is None:
        return
    await copy.create()
    _progress("copying these rows into Delta tables")
    await copy.drain()
    _progress(f"running {trades} more transactions, and following them with Spark")
    for _ in range(trades):
        await asyncio.to_thread(shop.trade)
    await copy.drain()
    total = sum(len(shop.rows(table)) for table in TABLES)
    _progress(f"comparing the Delta tables with the shop's, which have {total} rows now")
    await copy.verify()


async def _replay(subscription: AsyncSubscription, replica: Replica) -> None:
    async for event in subscription:
        try:
            replica.apply(msgspec_json.decode(event.raw))
        except AssertionError as error:
            raise TailraceError(f"demo: {error}") from error
