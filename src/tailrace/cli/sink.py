"""`tailrace sink`: send changes of a server to brokers, search engines and web hooks as they come, without Spark."""

import functools
import os
import signal
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct

from tailrace.cli.access import counted, member_lines, table_lines
from tailrace.cli.dead_letter import dead_letter_group
from tailrace.cli.help import Group
from tailrace.cli.sink_reader import ServerReader
from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import ClientError
from tailrace.clock import SystemClock
from tailrace.config import Config, data_directory, load_config
from tailrace.datadir import DataDirectory, make_private
from tailrace.diagnostics import set_up_logging
from tailrace.envelope.envelopes import ENVELOPES
from tailrace.message.outbox import Outbox
from tailrace.message.relay import Relay, RelayOptions
from tailrace.message.sink import SinkConfig, check_sink_config, sink_named
from tailrace.message.targets import target_of
from tailrace.meta.database import Database
from tailrace.meta.dead_letter import LetterFigures, OnRefused
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.sink_store import LIVES_S, KeptSink, SinkFigures, SinkRun, SinkState, SinkStore
from tailrace.model.errors import ConfigError, InvalidRequestError, NotFoundError
from tailrace.quantity import parse_duration_s
from tailrace.sink_url import Secrets, parse, revealed

__all__ = ["sink"]

_NAME = click.argument("name")
_POLICIES = [str(policy) for policy in OnRefused]


class SinkPlace(Struct, frozen=True):
    """What the options of a command say about where sinks are kept, and how to print."""

    config: Config
    as_json: bool

    def store(self) -> SinkStore:
        """Return the sinks of the metadata database."""
        return SinkStore(self.database())

    def dead_letters(self) -> DeadLetterStore:
        """Return the dead letters of the metadata database."""
        return DeadLetterStore(self.database())

    def database(self) -> Database:
        """Return the metadata database."""
        directory = data_directory(self.config)
        if not self.config.metadata_url:
            make_private(directory)
        url, older = DataDirectory(directory).metadata_at(self.config.metadata_url)
        return Database.open(url, SystemClock(), older)

    def sink(self, name: str) -> str:
        """Return under which name the letters of a sink are kept."""
        return name

    def require(self, name: str) -> KeptSink:
        """Return the sink of that name.

        Raises:
            NotFoundError: There is none.
        """
        stored = self.store().get(name)
        if stored is None:
            raise NotFoundError(f"there is no sink {name[:64]!r}: `tailrace sink ls` lists them")
        return stored

    def show(self, result: Any, *lines: str) -> None:
        """Print a result: as one line of JSON, or as lines for people."""
        if self.as_json:
            click.echo(msgspec.json.encode(result))
            return
        for line in lines:
            click.echo(line)


def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that lead to the sinks; it gets them as one argument, `place`."""

    @click.option("--config", type=click.Path(path_type=Path), help="A TOML file, as `tailrace serve` takes it.")
    @click.option("--data-dir", metavar="DIR", help="The metadata database is in it, unless --metadata-url names one.")
    @click.option("--metadata-url", help="Metadata database; by default an SQLite file in the data directory.")
    @click.option("--secrets", metavar="FILE", help="File with the values of ${NAME} in sink URLs.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def run(
        *,
        config: Path | None,
        data_dir: str | None,
        metadata_url: str | None,
        secrets: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        flags = {"data_dir": data_dir, "metadata_url": metadata_url, "secrets_file": secrets}
        command(place=SinkPlace(load_config(config, os.environ, flags), as_json), **options)

    return run


@click.group(cls=Group)
def sink() -> None:
    """Send changes to brokers, search engines and webhooks as they arrive, without Spark."""


@sink.command()
@_NAME
@click.option("--url", metavar="URL", help="URL of the target, e.g. kafka://host:9092/{table}; default: [sinks.NAME].")
@click.option("--source", default="default", show_default=True, help="The source's name on the server.")
@click.option("--table", "tables", multiple=True, help="A table; may be repeated. All tables by default.")
@click.option("--filter", metavar="PREDICATE", default="", help="Filter of changes: SQL, or CEL with the prefix cel:.")
@click.option("--project", multiple=True, metavar="PART", help="A column, or NAME = EXPRESSION; may be repeated.")
@click.option("--envelope", type=click.Choice(list(ENVELOPES)), help="Message format; tailrace by default.")
@click.option(
    "--on-refused", type=click.Choice(_POLICIES), default="park", help="What to do when a message is rejected."
)
@click.option(
    "--start", type=click.Choice(["earliest", "latest"]), default="latest", help="Where the first run begins."
)
@click.option(
    "--letters-max",
    type=int,
    default=10_000,
    show_default=True,
    help="Maximum number of dead letters; with more, the sink stops.",
)
@click.option(
    "--outage-max", default="10m", help="Exit if the target or the server is unavailable for longer; 'none' for never."
)
@click.option(
    "--server",
    metavar="URL",
    envvar="TAILRACE_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="The server, or set TAILRACE_SERVER.",
)
@click.option("--token", envvar="TAILRACE_TOKEN", help="The token for the server, or set TAILRACE_TOKEN.")
@_placed
def run(place: SinkPlace, name: str, server: str, token: str | None, outage_max: str, **given_options: Any) -> None:
    """Send changes until stopped. The first run creates a subscription; later runs continue it."""
    set_up_logging(place.config.logging.level, place.config.logging.format)
    config = _config(place, name, given_options)
    store, clock = place.store(), SystemClock()
    with sink_named(name):
        url = revealed(parse(config.url), Secrets(place.config.secrets_file).values())
        outbox = Outbox(name, target_of(url, name), config.shape, place.dead_letters(), clock, config.outbox)
    reader = ServerReader(server, token, name, config, store)
    this = SinkRun(store, name)
    last: list[SinkFigures] = []
    connected: list[bool] = []
    _warn_of_start(config, store.get(name))

    def tell(figures: SinkFigures) -> None:
        if not last:
            new = figures.state is not SinkState.FAILED  # one that cannot be configured so leaves nothing behind
            store.meet(name, source=config.source, url=config.shown_url, new=new)
        if figures.state is SinkState.RUNNING and not connected and not place.as_json:
            connected.append(True)
            route = f"{config.source} to {config.shown_url}"
            click.echo(f"sink {name}: connected, {route}, continuing after offset {figures.offset:,}", err=True)
        last[:] = [figures]
        this.note(figures)

    relay = Relay(outbox, reader, tell, clock, RelayOptions(outage_s_max=parse_duration_s(outage_max)))
    _stop_with_signals(relay)
    with sink_named(name):
        relay.run()
    figures = last[0] if last else SinkFigures()
    line = (
        f"sink {name}: {counted(figures.messages, 'message')}, {figures.parked:,} parked, at offset {figures.offset:,}"
    )
    place.show({"name": name, **msgspec.to_builtins(figures)}, line)


@sink.command("ls")
@_placed
def list_all(place: SinkPlace) -> None:
    """List all sinks that were ever run with this metadata database."""
    figures = place.dead_letters().figures()
    found = [_shown(stored, figures) for stored in place.store().all()]
    columns = ("name", "state", "source", "url", "offset", "letters", "problem")
    place.show(found, *table_lines(columns, [[one[column] for column in columns] for one in found]))


@sink.command()
@_NAME
@_placed
def status(place: SinkPlace, name: str) -> None:
    """Show a sink's status."""
    shown = _shown(place.require(name), place.dead_letters().figures())
    place.show(shown, *member_lines(shown))


@sink.command()
@_NAME
@click.option("--server", metavar="URL", envvar="TAILRACE_SERVER", default="http://127.0.0.1:8080", help="The server.")
@click.option("--token", envvar="TAILRACE_TOKEN", help="The token for the server, or set TAILRACE_TOKEN.")
@_placed
def rm(place: SinkPlace, name: str, server: str, token: str | None) -> None:
    """Remove a sink, its subscription and its dead letters: its next run starts over. Stop it first."""
    stored = place.require(name)
    _require_rest(stored)
    client = BulkClient(server, token, BulkOptions(timeout_s=5.0, outage_s_max=0.0))
    try:
        if stored.subscription:
            client.call("cdc.close", {"sub_id": stored.subscription})
        closed = True
    except ClientError:
        closed = False
    finally:
        client.close()
    place.dead_letters().forget(name)
    place.store().remove(name)
    rest = (
        "" if closed else f"; its subscription {stored.subscription} is still on the server, which could not be reached"
    )
    place.show({"removed": name, "closed": closed}, f"sink {name} is removed{rest}")


sink.add_command(dead_letter_group(_placed))


def _config(place: SinkPlace, name: str, given_options: dict[str, Any]) -> SinkConfig:
    """Return what the command line, or else the configuration, says of a sink."""
    if given_options["url"] is not None:
        whole = {
            **given_options,
            "envelope": given_options["envelope"] or "",
            "on_refused": OnRefused(given_options["on_refused"]),
        }
        return check_sink_config(name, SinkConfig(**whole))
    if name not in place.config.sinks:
        raise ConfigError(f"sink {name}: name its --url, or a --config with [sinks.{name}]")
    source_of = click.get_current_context().get_parameter_source
    besides = [option for option in given_options if source_of(option) is ParameterSource.COMMANDLINE]
    if besides:
        raise ConfigError(f"sink {name} is as [sinks.{name}] says: without --url leave out {', '.join(besides)}")
    return place.config.sinks[name]


def _warn_of_start(config: SinkConfig, stored: KeptSink | None) -> None:
    """Say that a sink which was run before does not begin where the options say."""
    on_command_line = click.get_current_context().get_parameter_source("start") is ParameterSource.COMMANDLINE
    if on_command_line and stored is not None and stored.subscription and stored.source == config.source:
        click.echo(
            f"sink {stored.name} continues from its cursor, --start is for the first run: "
            f"`tailrace sink rm {stored.name}` starts it over",
            err=True,
        )


def _require_rest(stored: KeptSink) -> None:
    """Refuse to remove a sink that runs."""
    now_us = SystemClock().now_us()
    if stored.lives(now_us):
        age_s = max(0, round((now_us - stored.figures.time_us) / 1e6))
        raise InvalidRequestError(
            f"sink {stored.name} is running, or was {age_s} s ago: stop it first; "
            f"one that was killed can be removed {LIVES_S} s after its last sign of life"
        )


def _shown(stored: KeptSink, parked: Mapping[str, LetterFigures]) -> dict[str, Any]:
    figures = msgspec.to_builtins(stored.figures)
    time_us = figures.pop("time_us")
    said = datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds") if time_us else ""
    count = parked[stored.name].letters if stored.name in parked else 0
    named = {"name": stored.name, "source": stored.source, "url": stored.url, "subscription": stored.subscription}
    return {**named, **figures, "said": said, "letters": count}


def _stop_with_signals(relay: Relay) -> None:
    assert threading.current_thread() is threading.main_thread()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: relay.stop())
