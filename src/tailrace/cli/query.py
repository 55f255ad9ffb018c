"""`tailrace query`: prepare queries on a running server, run them, and watch their results change."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from tailrace.cli.access import Access, access_options, parse_value, table_lines
from tailrace.cli.until_stopped import until_stopped
from tailrace.client import BlockingEvent, Client, QueryResult

__all__ = ["query"]

_QUERY = click.argument("query")
_ARGS = click.argument("args", nargs=-1)
_DB = click.option("--db", help="The source's name; may be left out where there is one.")


@click.group()
def query() -> None:
    """Prepare queries, run them, and watch their results change.

    QUERY is the id of a prepared query, or SQL. An argument is JSON where it can be read so, and text otherwise.
    """


@query.command()
@click.argument("sql")
@click.option("--name", help="A name to find it again.")
@_DB
@access_options
def prepare(sql: str, name: str | None, db: str | None, access: Access) -> None:
    """Prepare a query and print its id; - reads the SQL from standard input."""
    with access.client() as client:
        prepared = client.prepare(sys.stdin.read() if sql == "-" else sql, name=name, db=db)
    access.show(prepared, lambda: [prepared.query_id])


@query.command()
@_QUERY
@_ARGS
@click.option("--etag", help="Print the result only if it is not the one of this ETag.")
@_DB
@access_options
def run(query: str, args: Sequence[str], etag: str | None, db: str | None, access: Access) -> None:
    """Run a query and print its result."""
    with access.client() as client:
        result = client.execute(_query_id(client, query, db), _values(args), if_none_match=etag)
    access.show(result, lambda: _result_lines(result))


@query.command()
@_QUERY
@_ARGS
@click.option("--run", "and_run", is_flag=True, help="Run the query at the start and after each change.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many changes.")
@_DB
@access_options
def watch(query: str, args: Sequence[str], access: Access, *, and_run: bool, limit: int | None, db: str | None) -> None:
    """Print a line each time that the result of a query may have changed, until told to stop."""
    with until_stopped(), access.client() as client:
        query_id, values = _query_id(client, query, db), _values(args)
        subscription = client.subscribe_query(query_id, values, format="plain_json", include=())
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


def _query_id(client: Client, text: str, db: str | None) -> str:
    """Return the id of a query; SQL, which has a space somewhere, is prepared first."""
    return client.prepare(text, db=db).query_id if any(map(str.isspace, text)) else text


def _values(args: Sequence[str]) -> list[Any]:
    return [parse_value(text) for text in args]


def _run(client: Client, query_id: str, values: Sequence[Any], access: Access) -> None:
    result = client.execute(query_id, values)
    access.show(result, lambda: _result_lines(result))


def _print_event(event: BlockingEvent, access: Access) -> None:
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
            return [*table_lines(names, cells), f"{len(rows)} rows"]
        case _:
            return table_lines(("data",), [(data,)])
