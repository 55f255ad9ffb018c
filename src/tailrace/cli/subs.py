"""`tailrace subs`: look after the subscriptions of a running server."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from tailrace.cli.access import (
    ServerAccess,
    access_options,
    counted,
    member_lines,
    parse_start,
    parse_value,
    source_option,
    table_lines,
)
from tailrace.cli.help import Group
from tailrace.cli.query import query_id_of
from tailrace.client import Backpressure, NotFound, SubscribeOptions, SubscriptionInfo

__all__ = ["subs"]

_SUB_ID = click.argument("sub_id")
_STDIO = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.group(cls=Group)
def subs() -> None:
    """List, create, pause and close subscriptions."""


@subs.command("ls")
@access_options
def list_all(access: ServerAccess) -> None:
    """List all subscriptions."""
    with access.client() as client:
        listed = client.list()
    columns = ("sub_id", "for", "acked", "lag", "state")
    access.show(listed, lambda: table_lines(columns, [_row(entry) for entry in listed]))


@subs.command()
@_SUB_ID
@access_options
def show(sub_id: str, access: ServerAccess) -> None:
    """Show one subscription."""
    with access.client() as client:
        entry = next((entry for entry in client.list() if entry.sub_id == sub_id), None)
    if entry is None:
        raise NotFound("not_found", f"there is no subscription {sub_id}")
    access.show(entry, lambda: member_lines(msgspec.to_builtins(entry)))


@subs.command()
@click.argument("table", required=False)
@source_option
@click.option("--query", help="Subscribe to this prepared query, by id or name, instead of a table.")
@click.option("--arg", "args", multiple=True, metavar="VALUE", help="With --query: an argument; may be repeated.")
@click.option("--precise", is_flag=True, help="With --query: leave out changes after which the result is the same.")
@click.option("--op", "ops", multiple=True, help="Only insert, update, delete or truncate; may be repeated.")
@click.option(
    "--include",
    multiple=True,
    type=click.Choice(["before", "after", "none"]),
    help="Row images; may be repeated. Both by default.",
)
@click.option("--pk", multiple=True, metavar="VALUE", help="Only this key; repeat for each column of the key.")
@click.option("--pk-from", multiple=True, metavar="VALUE", help="Lowest key.")
@click.option("--pk-to", multiple=True, metavar="VALUE", help="Highest key.")
@click.option("--column", "columns", multiple=True, help="Only changes of this column; may be repeated.")
@click.option("--where", metavar="SQL", help="Only rows that match this SQL condition.")
@click.option("--cel", metavar="EXPRESSION", help="Only changes that match this CEL expression.")
@click.option("--format", "format_", default="objects_json", type=click.Choice(["objects_json", "plain_json"]))
@click.option("--from", "start", metavar="START", help="latest, earliest, an offset or a time.")
@click.option("--snapshot", is_flag=True, help="Deliver existing rows first.")
@click.option("--auto-ack", is_flag=True, help="Acknowledge changes when they are sent.")
@access_options
def create(
    access: ServerAccess, table: str | None, query: str | None, source: str | None, args: Sequence[str], **flags: Any
) -> None:
    """Create a durable subscription to TABLE or to a prepared query.

    A VALUE is parsed as JSON if possible (5, "5", true, a typed literal), and is text otherwise.
    """
    if (table is None) == (query is None):
        raise click.UsageError("name either a TABLE or --query")
    if flags["precise"] and query is None:
        raise click.UsageError("--precise is for --query")
    options = _options(flags)
    with access.client() as client:
        if query is not None:
            subscription = client.subscribe_query(
                query_id_of(client, query, source), [parse_value(text) for text in args], **options
            )
        else:
            assert table is not None
            subscription = client.subscribe_table(source, table, **options)
    access.show(
        {"sub_id": subscription.sub_id, "offset": subscription.offset, "sse_url": subscription.sse_url},
        lambda: [subscription.sub_id],
    )


@subs.command()
@_SUB_ID
@access_options
def pause(sub_id: str, access: ServerAccess) -> None:
    """Pause delivery. Retention is not paused."""
    with access.client() as client:
        state = client.pause(sub_id)
    access.show(state, lambda: [f"{sub_id} is paused at {state.acked_offset}, lag {state.backpressure.lag}"])


@subs.command()
@_SUB_ID
@access_options
def resume(sub_id: str, access: ServerAccess) -> None:
    """Resume delivery."""
    with access.client() as client:
        state = client.resume(sub_id)
    access.show(state, lambda: [f"{sub_id} continues after {state.acked_offset}, {_pressure(state.backpressure)}"])


@subs.command()
@_SUB_ID
@click.argument("offset", type=click.IntRange(0))
@access_options
def ack(sub_id: str, offset: int, access: ServerAccess) -> None:
    """Acknowledge all changes up to OFFSET."""
    with access.client() as client:
        done = client.ack(sub_id, offset)
    access.show(done, lambda: [f"{sub_id} is acknowledged up to {done.acked_offset}"])


@subs.command()
@click.argument("sub_ids", nargs=-1, required=True, metavar="SUB_ID...")
@access_options
def close(sub_ids: Sequence[str], access: ServerAccess) -> None:
    """Remove subscriptions."""
    with access.client() as client:
        for sub_id in sub_ids:
            access.show(client.close(sub_id), partial(list, [f"{sub_id} is closed"]))


@subs.command()
@_SUB_ID
@click.option("--to", "start", default="latest", show_default=True, help="latest, earliest, an offset or a time.")
@access_options
def reset(sub_id: str, start: str, access: ServerAccess) -> None:
    """Move the cursor of a subscription forwards or backwards."""
    with access.client() as client:
        done = client.reset(sub_id, parse_start(start))
    access.show(done, lambda: [f"{sub_id} is at {done.acked_offset}"])


@subs.command("export")
@click.argument("file", type=_STDIO, default="-")
@access_options
def export_all(file: Path, access: ServerAccess) -> None:
    """Write all subscriptions to FILE, in the form of cdc_subscriptions.json; to standard output by default."""
    with access.client() as client:
        document = msgspec.json.format(msgspec.json.encode(client.call("cdc.export")), indent=2)
    if str(file) == "-":
        click.echo(document)
    else:
        file.write_bytes(document + b"\n")


@subs.command("import")
@click.argument("file", type=_STDIO)
@access_options
def import_all(file: Path, access: ServerAccess) -> None:
    """Take the subscriptions of FILE, as `export` writes it; - is standard input."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except ValueError as error:
        raise click.BadParameter(f"{file} is not an export of subscriptions: {error}") from error
    with access.client() as client:
        result = client.call("cdc.import", document)
    access.show(result, lambda: [f"{counted(result.get('imported', 0), 'subscription')} imported"])


def _options(flags: dict[str, Any]) -> SubscribeOptions:
    """Return the options of a subscription from those of the command line."""
    options = SubscribeOptions(format=flags["format_"])
    if flags["include"]:
        options["include"] = [image for image in flags["include"] if image != "none"]
    if flags["ops"]:
        options["ops"] = flags["ops"]
    if flags["columns"]:
        options["columns"] = flags["columns"]
    if flags["pk"]:
        options["pk"] = [parse_value(text) for text in flags["pk"]]
    if flags["pk_from"] or flags["pk_to"]:
        options["pk_range"] = (_bound(flags["pk_from"]), _bound(flags["pk_to"]))
    if flags["where"]:
        options["where"] = flags["where"]
    if flags["cel"]:
        options["cel"] = flags["cel"]
    if flags["start"]:
        options["from_"] = parse_start(flags["start"])
    if flags["snapshot"]:
        options["snapshot"] = True
    if flags["auto_ack"]:
        options["auto_ack"] = True
    if flags["precise"]:
        options["precise"] = True
    return options


def _bound(texts: Sequence[str]) -> Any:
    """Return a bound of the key: nothing, one value, or one for each column."""
    values = tuple(parse_value(text) for text in texts)
    return values if len(values) > 1 else next(iter(values), None)


def _row(entry: SubscriptionInfo) -> tuple[Any, ...]:
    target = entry.query_id or f"{entry.db}.{entry.table}"
    pressure = entry.backpressure
    state = "paused" if entry.paused else None
    return entry.sub_id, target, entry.acked_offset, pressure and pressure.lag, pressure.state if pressure else state


def _pressure(pressure: Backpressure) -> str:
    return f"{pressure.state}, lag {pressure.lag}"
