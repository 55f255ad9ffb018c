"""`tailrace query`: prepare queries on a running server, run them, and watch their results change."""

import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from tailrace.cli.access import ServerAccess, access_options, counted, parse_value, source_option, table_lines
from tailrace.cli.help import Group
from tailrace.cli.process import until_stopped
from tailrace.client import BlockingEvent, Client, NotFound, QueryResult

__all__ = ["query", "query_id_of"]

_ID = re.compile(r"q_[a-z2-7]{16,}")
_QUERY = click.argument("query")
_ARGS = click.argument("args", nargs=-1)


@click.group(cls=Group)
def query() -> None:
    """Prepare queries, run them, and watch their results change.

    QUERY is the id or the name of a prepared query, or SQL. An argument is parsed as JSON if possible, and is text
    otherwise.
    """


@query.command()
@click.argument("sql")
@click.option("--name", help="A name for the query.")
@source_option
@access_options
def prepare(sql: str, name: str | None, source: str | None, access: ServerAccess) -> None:
    """Prepare a query and print its id; - reads the SQL from standard input."""
    with access.client() as client:
        prepared = client.prepare(sys.stdin.read() if sql == "-" else sql, name=name, db=source)
    access.show(prepared, lambda: [prepared.query_id])


@query.command("ls")
@access_options
def list_all(access: ServerAccess) -> None:
    """List the prepared queries."""
    with access.client() as client:
        listed = client.call("query.list")["queries"]
    columns = ("query_id", "name", "db", "canonical")
    lines = [tuple(one[column] or None for column in columns) for one in listed]
    access.show(listed, lambda: table_lines(("query_id", "name", "source", "sql"), lines))


@query.command()
@_QUERY
@_ARGS
@click.option("--etag", help="Print the result only if it has another ETag.")
@source_option
@access_options
def run(query: str, args: Sequence[str], etag: str | None, source: str | None, access: ServerAccess) -> None:
    """Run a query and print its result."""
    with access.client() as client:
        result = client.execute(query_id_of(client, query, source), _values(args), if_none_match=etag)
    access.show(result, lambda: _result_lines(result))


@query.command()
@_QUERY
@_ARGS
@click.option("--run", "and_run", is_flag=True, help="Run the query at the start and after each change.")
@click.option("--precise", is_flag=True, help="Leave out changes after which the result is the same.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many changes.")
@source_option
@access_options
def watch(
    query: str,
    args: Sequence[str],
    access: ServerAccess,
    *,
    and_run: bool,
    precise: bool,
    limit: int | None,
    source: str | None,
) -> None:
    """Print a line each time the result of a query may have changed, until stopped."""
    with until_stopped(), access.client() as client:
        query_id, values = query_id_of(client, query, source), _values(args)
        subscription = client.subscribe_query(query_id, values, format="plain_json", include=(), precise=precise)
        try:
            if and_run:
                _run(client, query_id, values, access)
            for number, event in enumerate(subscription, start=1):
                _print_event(event, access)
                if and_run:
                    _run(client, query_id, values, access)
                if number == limit:
                    return
        finally:
            subscription.close()


def query_id_of(client: Client, text: str, source: str | None) -> str:
    """Return the id of the query that a text means: its id, its name, or its SQL, which is prepared first.

    Raises:
        UsageError: Several queries have that name.
        NotFound: No query has that name.
    """
    if _ID.fullmatch(text):
        return text
    listed = client.call("query.list")["queries"]
    found = [one["query_id"] for one in listed if one["name"] == text and source in (None, one["db"])]
    match found:
        case [query_id]:
            return str(query_id)
        case []:
            if any(map(str.isspace, text)):
                return client.prepare(text, db=source).query_id
            raise NotFound("not_found", f"no query has the id or the name {text[:64]!r}; `query ls` lists them")
    raise click.UsageError(f"{len(found)} queries are named {text!r}: use an id, {', '.join(found)}")


def _values(args: Sequence[str]) -> list[Any]:
    return [parse_value(text) for text in args]


def _run(client: Client, query_id: str, values: Sequence[Any], access: ServerAccess) -> None:
    result = client.execute(query_id, values)
    access.show(result, lambda: _result_lines(result))


def _print_event(event: BlockingEvent, access: ServerAccess) -> None:
    if access.as_json:
        click.echo(event.raw)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(event.commit_ts_ms / 1000))
    click.echo(f"{clock}  {event.query_id}  {event.table}  {event.etag}")


def _result_lines(result: QueryResult) -> list[str]:
    """Return a result as a table, with its ETag below."""
    lines = ["not modified"] if result.not_modified else _data_lines(result.data)
    return [*lines, f"etag {result.etag}"]


def _data_lines(data: Any) -> list[str]:
    match data:
        case {"columns": list(columns), "rows": list(rows)}:
            names = [column if isinstance(column, str) else str(column.get("name")) for column in columns]
            cells = [[row[name] for name in names] if isinstance(row, dict) else row for row in rows]
            return [*table_lines(names, cells), counted(len(rows), "row")]
        case _:
            return table_lines(("data",), [(data,)])
