"""`tailrace token`: make, list and revoke API keys in the metadata database of a data directory.

Works beside a running server, which notices new keys at once and revoked ones within a second.
"""

import asyncio
import functools
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from tailrace.access.grant import ROLES, Grant, check_grant
from tailrace.access.key import key_hash, make_key
from tailrace.access.keys import credential_of
from tailrace.cli.access import table_lines
from tailrace.cli.help import Group
from tailrace.clock import SystemClock
from tailrace.config import Config, data_directory, load_config
from tailrace.datadir import DataDirectory
from tailrace.meta.key_store import KeyStore, StoredKey
from tailrace.meta.store import MetaStore
from tailrace.model.errors import ConfigError, InvalidRequestError, NotFoundError
from tailrace.quantity import parse_duration_s
from tailrace.subscription.restrict import check_rows

__all__ = ["token"]

_T = TypeVar("_T")
_NAME = re.compile(r"[^\s/\x00-\x1f]{1,128}")
_US_PER_S = 1_000_000


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke API keys."""


class Vault(Struct, frozen=True):
    """Where keys are kept, and how to print."""

    config: Config
    as_json: bool

    def run(self, use: Callable[[KeyStore], Awaitable[_T]]) -> _T:
        """Open the metadata database for one use."""

        async def opened() -> _T:
            clock = SystemClock()
            directory = DataDirectory(data_directory(self.config))
            if not self.config.metadata_url and not directory.path.is_dir():
                raise ConfigError(f"there is no data directory {directory.path}: name it with --data-dir")
            url, older = directory.metadata_at(self.config.metadata_url)
            store = await MetaStore.open(url, clock, older)
            try:
                return await use(KeyStore(store, clock))
            finally:
                await store.close()

        return asyncio.run(opened())


def _vault_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that lead to the metadata database; it gets them as one argument, `vault`."""

    @click.option("--config", "file", type=click.Path(path_type=Path), help="The server's configuration file.")
    @click.option("--data-dir", metavar="DIR", help="The server's data directory.")
    @click.option("--metadata-url", metavar="URL", help="The server's metadata database, where it is elsewhere.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def run(
        *, file: Path | None, data_dir: str | None, metadata_url: str | None, as_json: bool, **options: Any
    ) -> None:
        config = load_config(file, os.environ, {"data_dir": data_dir, "metadata_url": metadata_url})
        command(vault=Vault(config, as_json), **options)

    return run


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES), case_sensitive=False), help="Gives the role's capabilities.")
@click.option("--capability", "capabilities", multiple=True, help="read, write, admin, …; may be repeated.")
@click.option("--tenant", help="May use the source of this name and `default`, unless --namespace is given.")
@click.option("--namespace", "namespaces", multiple=True, help="May use this source; may be repeated.")
@click.option("--table", "tables", multiple=True, metavar="SOURCE.TABLE", help="May read this table; may be repeated.")
@click.option("--rows", multiple=True, metavar="SOURCE.TABLE=SQL", help="May read only these rows; may be repeated.")
@click.option("--expires", metavar="WHEN", help="After a time such as 30d, or at one such as 2030-01-31.")
@_vault_options
def create(
    vault: Vault, name: str, expires: str | None, tables: Sequence[str], rows: Sequence[str], **flags: Any
) -> None:
    """Create a key for NAME and show it once.

    Without --role and --capability it may read; without --namespace, --table and --tenant it reaches all sources.
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter("a name has 1 to 128 characters, none of them a space or a slash")
    predicates = dict(_parse_rows(text) for text in rows)
    grant = Grant(
        tenant=flags["tenant"],
        role=flags["role"],
        capabilities=tuple(flags["capabilities"]),
        namespaces=tuple(flags["namespaces"]) or None,
        tables=tuple(tables) or None,
        rows=predicates,
    )
    try:
        check_grant(grant)
        check_rows(predicates, {})
    except InvalidRequestError as error:
        raise click.BadParameter(str(error)) from error
    key = make_key()
    encoded = msgspec.json.encode(grant).decode()
    expires_time_us = None if expires is None else _parse_expiry(expires)
    hash_ = key_hash(key, vault.config.auth.key_pepper)
    stored = vault.run(lambda keys: keys.add(hash_, name, encoded, expires_time_us))
    if vault.as_json:
        click.echo(msgspec.json.encode({**_members(stored), "token": key}))
        return
    click.echo(key)
    click.echo(f"{credential_of(stored.id)} for {name}. The key is not shown again.", err=True)


@token.command("ls")
@_vault_options
def list_all(vault: Vault) -> None:
    """List the keys without their secrets."""
    stored = vault.run(KeyStore.keys)
    if vault.as_json:
        click.echo(msgspec.json.encode([_members(key) for key in stored]))
        return
    columns = ("id", "name", "created", "expires", "grants")
    rows = [[member[name] for name in columns] for member in map(_members, stored)]
    for line in table_lines(columns, rows):
        click.echo(line)


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_vault_options
def revoke(vault: Vault, ids: Sequence[str]) -> None:
    """Revoke keys by id or by name. Their open connections end within a second."""
    revoked = vault.run(lambda keys: _revoke(keys, ids))
    if vault.as_json:
        click.echo(msgspec.json.encode({"revoked": revoked}))
        return
    for credential in revoked:
        click.echo(f"{credential} is revoked")


async def _revoke(keys: KeyStore, ids: Sequence[str]) -> list[str]:
    """Remove the keys that are named; all names are looked up before the first goes."""
    stored = await keys.keys()
    found: dict[int, None] = {}
    for name in ids:
        named = [key.id for key in stored if name in (credential_of(key.id), key.name)]
        if not named:
            raise NotFoundError(f"there is no key {name}")
        found |= dict.fromkeys(named)
    for key_id in found:
        await keys.remove(key_id)
    return [credential_of(key_id) for key_id in found]


def _members(key: StoredKey) -> dict[str, Any]:
    return {
        "id": credential_of(key.id),
        "name": key.name,
        "created": _shown(key.created_time_us),
        "expires": None if key.expires_time_us is None else _shown(key.expires_time_us),
        "grants": msgspec.json.decode(key.grant),
    }


def _shown(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / _US_PER_S, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _parse_rows(text: str) -> tuple[str, str]:
    path, equals, predicate = text.partition("=")
    if not equals or not predicate.strip():
        raise click.BadParameter(f"{text!r} is not of the form SOURCE.TABLE=SQL")
    return path.strip(), predicate.strip()


def _parse_expiry(text: str) -> int:
    """Return the time that a duration from now, or a date, or a date and time, means."""
    now_us = SystemClock().now_us()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            duration_s = parse_duration_s(text)
        except ConfigError as error:
            raise click.BadParameter(f"{text!r} is neither a time such as 30d nor a date") from error
        if duration_s is None:
            raise click.BadParameter("leave --expires out for a key that does not expire") from None
        return now_us + round(duration_s * _US_PER_S)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    expires_time_us = round(moment.timestamp() * _US_PER_S)
    if expires_time_us <= now_us:
        raise click.BadParameter(f"{text!r} is in the past")
    return expires_time_us
