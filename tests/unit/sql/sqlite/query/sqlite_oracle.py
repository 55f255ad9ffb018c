"""Asks SQLite itself: does this write change that result, and what did the judge say of its changes?"""

from collections import Counter

import apsw
from msgspec import Struct

from tailrace.model.op import Op
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.query import QueryJudge, analyse, bind, parse


class Verdict(Struct):
    """What happened: whether the result changed, whether a change was judged relevant, and the dependencies."""

    changed: bool
    relevant: bool
    dependencies: object


class Blind:
    """A catalog that lacks SQLite's own word on what a query touches."""

    def __init__(self, catalog):
        self._catalog = catalog
        self.version = catalog.version

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def footprint(self, sql, arguments):
        return None


def database(*statements):
    connection = apsw.Connection(":memory:", statementcachesize=0)
    for statement in statements:
        connection.execute(statement)
    return connection


def dependencies(connection, sql, *, blind=True):
    catalog = QueryCatalog(connection)
    return analyse(parse(sql), Blind(catalog) if blind else catalog)


def verdict(schema, sql, write, arguments=(), *, ordered=False):
    """Return what a write does to a query's result and how its changes are judged."""
    connection = database(*schema)
    found = dependencies(connection, sql)
    bound = bind(arguments, parse(sql).arguments)
    judge = QueryJudge(found, bound)
    changes = []

    def hook(update):
        info = update.connection.execute("SELECT name FROM pragma_table_info(?)", (update.table_name,))
        names = [name for (name,) in info]  # generated columns come last in these tests and are left out
        before = None if update.old is None else dict(zip(names, update.old, strict=False))
        after = None if update.new is None else dict(zip(names, update.new, strict=False))
        changes.append((update.table_name, Op[update.op], before, after))

    def result():
        rows = [repr(row) for row in connection.execute(parse(sql).text, bound)]
        return rows if ordered else Counter(rows)

    before = result()
    connection.preupdate_hook(hook)
    connection.execute(write)
    connection.preupdate_hook(None)
    assert changes, "the write changes nothing"
    relevant = any(judge.relevant(*change) for change in changes)
    return Verdict(before != result(), relevant, found)
