"""`tailrace serve`: capture the sources and serve the interfaces until stopped."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
import uvloop
from msgspec import json as msgspec_json

from tailrace import __version__
from tailrace.app import Addresses, Application
from tailrace.cli.help import GroupedCommand
from tailrace.cli.process import prepare_process
from tailrace.config import SETTINGS, Config, load_config, parse_source, split_list
from tailrace.diagnostics import set_up_logging
from tailrace.model.errors import TailraceError
from tailrace.sources import SOURCE_OPTION

__all__ = ["serve"]

_F = TypeVar("_F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)


def _access_flags(command: _F) -> _F:
    """Give a command a flag for each setting of access and TLS that is no secret."""
    for setting in reversed(SETTINGS):
        if setting.path.startswith(("auth.", "tls.")) and setting.path != "auth.enabled" and not setting.secret:
            command = click.option(setting.flag, metavar="VALUE", help=setting.describe)(command)
    return command


def _limit_flags(command: _F) -> _F:
    """Give a command a flag for each limit of queries, of change streams and of pullers."""
    for setting in reversed(SETTINGS):
        if setting.path.startswith(("query.", "coordinode.", "jimdb.")):
            command = click.option(setting.flag, metavar="VALUE", help=setting.describe)(command)
    return command


class _Serve(GroupedCommand):
    headings: ClassVar[Mapping[str, Sequence[str]]] = {
        "Sources and data": ("sources", "source_options", "data_dir", "metadata_url", "workers", "capture"),
        "Addresses": ("host", "http_port", "grpc_port", "gateway_port", "allowed_"),
        "Log and retention": ("log_", "retention_"),
        "Access": ("auth",),
        "TLS": ("tls_",),
        "Prepared queries": ("query_",),
        "Change streams (CoordiNode interface)": ("coordinode_",),
        "Pullers (JimDB interface)": ("jimdb_",),
        "Gateway and sinks": ("gateway_", "secrets_file"),
        "Diagnostics and output": ("logging_", "as_json", "help"),
    }


@click.command(cls=_Serve)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--source", "sources", multiple=True, metavar="NAME=URL", help="A source; may be repeated.")
@click.option(
    SOURCE_OPTION,
    "source_options",
    multiple=True,
    metavar="SOURCE.OPTION=VALUE",
    help="An option of a source's kind, e.g. app.busy_timeout=10s; may be repeated. SOURCE. may be left out where "
    "there is one source.",
)
@click.option("--data-dir", metavar="DIR", help="Directory of log, metadata and embedded database.")
@click.option("--host", help="Address to listen on.")
@click.option("--http-port", type=int, help="HTTP port; 0 takes a free one.")
@click.option("--grpc-port", "--port", type=int, help="gRPC port; 0 takes a free one.")
@click.option("--allowed-hosts", metavar="NAMES", help="Host names that clients may use; '*' for any.")
@click.option("--allowed-origins", metavar="ORIGINS", help="Web origins that may call the server; '*' for any.")
@click.option("--metadata-url", help="Metadata database, by default an SQLite file in the data directory.")
@click.option("--workers", type=int, metavar="N", help="Processes that deliver streams; 0 delivers in this one.")
@click.option("--capture/--no-capture", "capture_enabled", default=None, help="Capture changes or not.")
@click.option("--log-ring-changes", metavar="N", help="Keep the newest N changes in memory.")
@click.option("--retention-events", metavar="N", help="Keep at most N changes.")
@click.option("--retention-bytes", metavar="SIZE", help="Keep at most this much log, e.g. 4GiB.")
@click.option("--retention-age", metavar="AGE", help="Keep changes this long, e.g. 7d.")
@_limit_flags
@click.option("--auth/--no-auth", default=None, help="Require credentials; see `tailrace token`.")
@_access_flags
@click.option("--ws-port", "gateway_port", type=int, help="Separate port for the WebSocket gateway; 0 turns it off.")
@click.option("--gateway-sql-write/--no-gateway-sql-write", default=None, help="Let SQL write to configured sources.")
@click.option("--secrets-file", metavar="FILE", help="File with the values of ${NAME} in sink URLs.")
@click.option("--logging-level", help="debug, info, warning or error.")
@click.option("--logging-format", help="text, json or auto.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one line of JSON.")
def serve(config: Path | None, sources: tuple[str, ...], *, as_json: bool, **flags: Any) -> None:
    """Capture the sources and serve HTTP and gRPC.

    CONFIG is a TOML file; flags win over TAILRACE_* variables, and those over the file. Without a source, an embedded
    SQLite database in the data directory is made and served.
    """
    loaded = load_config(config, os.environ, _by_path(sources, flags))
    set_up_logging(loaded.logging.level, loaded.logging.format)
    prepare_process()
    uvloop.run(_serve(loaded, as_json=as_json))


def _by_path(sources: tuple[str, ...], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags by their setting's path."""
    nested = {setting.path.replace(".", "_"): setting.path for setting in SETTINGS} | {"auth": "auth.enabled"}
    by_path = {nested.get(name, name): value for name, value in flags.items()}
    for path in ("allowed_hosts", "allowed_origins"):
        if by_path[path] is not None:
            by_path[path] = split_list(by_path[path])
    if sources:
        by_path["sources"] = {name: {"url": source.url} for name, source in map(parse_source, sources)}
    return by_path


async def _serve(config: Config, *, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        logger.info("server stops", extra={"reason": number.name})
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    async with Application(config) as application:
        _announce(application.addresses, as_json=as_json)
        try:
            await application.run(stop)
        except Exception as error:
            reason = str(error) if isinstance(error, TailraceError) else type(error).__name__
            logger.error("server stops", extra={"reason": reason})
            raise
    logger.info("server stopped")


def _announce(addresses: Addresses, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec_json.encode({"event": "listening", "version": __version__, **addresses.as_dict()}).decode())
        return
    click.echo(f"tailrace {__version__}")
    for name, url in addresses.sources.items():
        click.echo(f"  source  {name}  {url}")
    click.echo(f"  data    {addresses.data_dir}")
    click.echo(f"  HTTP    {addresses.http}")
    click.echo(f"  gRPC    {addresses.grpc}")
    if addresses.gateway:
        click.echo(f"  WS      {addresses.gateway}")
