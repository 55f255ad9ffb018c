"""No change that alters a query's result is judged irrelevant: random queries and writes against SQLite itself."""

import os
from collections import Counter
from contextlib import suppress
from random import Random

import apsw
import pytest

from integration.query_generator import Database, Queries, fill, writes
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.sqlite.catalog import Rowid
from tailrace.sql.sqlite.query import QueryJudge, analyse, bind, parse
from tailrace.subscription.query import advance, begin, result_etag, state_tag
from tailrace.subscription.query.precise import VerifiedResult, is_invalidated, verify

LONG = bool(os.environ.get("LONG_TESTS"))
SEEDS = range(2000 if LONG else 80)
QUERIES_PER_SEED = 26
COMMITS_PER_SEED = 30


class Blind:
    """A catalog without SQLite's own word on what a query touches: our analysis must be sound by itself."""

    def __init__(self, catalog):
        self._catalog = catalog

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def footprint(self, sql, arguments):
        return None


class Watched:
    """One query on its way through the commits."""

    def __init__(self, connection, sql, arguments, *, ordered, catalog):
        self.statement = parse(sql)
        self.arguments = bind(arguments, self.statement.arguments)
        self.ordered = ordered
        self.connection = connection
        self.dependencies = analyse(self.statement, Blind(catalog))
        self.judge = QueryJudge(self.dependencies, self.arguments)
        self.result = self.run()
        self.state = begin(self.dependencies, "log", Offset(0))
        self.verified = VerifiedResult(Offset(0), 0, self.etag)

    def run(self):
        rows = list(self.connection.execute(self.statement.text, self.arguments, can_cache=False))
        ordered = self.statement.ordered
        self.etag = result_etag(self.statement.query_id, self.arguments, (), rows, ordered=ordered)
        rows = [repr(row) for row in rows]
        return rows if self.ordered else Counter(rows)

    def tag(self):
        return state_tag(self.statement.query_id, self.arguments, self.state)


class Changes:
    """The row changes of each transaction, from SQLite's pre-update hook, in the form that the log has."""

    def __init__(self, connection, catalog):
        self._tables = {table.name: table for table in catalog.tables()}
        self._list = []
        connection.preupdate_hook(self._hook)

    def take(self):
        taken, self._list = self._list, []
        return taken

    def _hook(self, update):
        table = self._tables[update.table_name]
        before = None if update.old is None else self._image(table, update.old)
        after = None if update.new is None else self._image(table, update.new)
        old_key = None if before is None else self._key(table, before, update.rowid)
        new_key = None if after is None else self._key(table, after, update.rowid_new)
        if update.op == "INSERT" and self._list and self._list[-1][:3] == (table.name, Op.DELETE, new_key):
            _, _, _, before, _ = self._list.pop()  # a replaced row is one update of its key
            self._list.append((table.name, Op.UPDATE, new_key, before, after))
        elif update.op == "UPDATE" and old_key != new_key:
            self._list.append((table.name, Op.DELETE, old_key, before, None))
            self._list.append((table.name, Op.INSERT, new_key, None, after))
        else:
            self._list.append((table.name, Op[update.op], old_key or new_key, before, after))

    def _image(self, table, values):
        pairs = zip(table.columns, values, strict=False)
        return {column.name: value for column, value in pairs if not column.generated}

    def _key(self, table, image, rowid):
        return repr([rowid] if table.rowid is Rowid.KEY else [image[name] for name in table.key])


def build(random):
    """Return a random database with rows in it, and its connection."""
    connection = apsw.Connection(":memory:", statementcachesize=0)  # DELETE compiled before the hook shows no rows
    database = Database(random)
    for statement in database.statements:
        try:
            connection.execute(statement)
        except apsw.SQLError:
            assert "INDEX" in statement  # an index on a generated column may not be possible
    for statement in fill(database):
        try_to_write(connection, statement)
    for number in range(random.randint(0, 3)):
        sql, names = Queries(database, arguments=False).view()
        name = f"v{number}"
        try:
            connection.execute(database.add_view(name, sql, names))
            info = connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
            names = [column for (column,) in info]
            connection.execute(f"SELECT * FROM {name} LIMIT 0")
        except apsw.Error:
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        else:
            if all(column.isidentifier() for column in names):
                database.views[name] = names
    return connection, database


def try_to_write(connection, statement):
    with suppress(apsw.ConstraintError, apsw.SQLError, apsw.MismatchError):  # no rowid; NULL in a key
        connection.execute(statement)


def watch(connection, database, catalog):
    watched = []
    queries = Queries(database)
    for _ in range(QUERIES_PER_SEED * 6):
        if len(watched) == QUERIES_PER_SEED:
            break
        sql, arguments, ordered = queries.query()
        try:
            connection.execute(f"EXPLAIN {sql}", arguments, can_cache=False)
        except apsw.Error:
            continue
        try:
            query = Watched(connection, sql, arguments, ordered=ordered, catalog=catalog)
        except InvalidRequestError as error:
            if "cannot be read" not in str(error):  # without SQLite's word, sqlglot must be able to read it
                raise
        except apsw.Error:
            continue
        else:
            watched.append(query)
    return watched


def check(seed):
    """Run one seed. Return how many cases were checked, results changed, and were judged relevant."""
    random = Random(seed)
    connection, database = build(random)
    catalog = QueryCatalog(connection)
    watched = watch(connection, database, catalog)
    changes = Changes(connection, catalog)
    offset = 0
    counts = Counter(queries=len(watched), understood=sum(query.dependencies.understood for query in watched))
    for _ in range(COMMITS_PER_SEED):
        with connection:
            for statement in writes(database):
                try_to_write(connection, statement)
        commit = changes.take()
        for query in watched:
            judge_commit(query, commit, offset, counts, seed)
        offset += len(commit)
    return counts


def judge_commit(query, commit, offset, counts, seed):
    versions = {
        table: Offset(offset + number)
        for number, (table, op, _, before, after) in enumerate(commit, 1)
        if query.judge.relevant(table, op, before, after)
    }
    old_tag, old_etag = query.tag(), query.etag
    query.state = advance(query.state, versions, Offset(offset + len(commit)))
    try:
        result = query.run()
    except apsw.Error:
        return
    counts["cases"] += 1
    counts["judged"] += bool(versions)
    counts["table_level"] += any(query.judge.concerns(table) for table, *_ in commit)
    if result != query.result and not query.dependencies.volatile:
        counts["changed"] += 1
        hidden = (seed, query.statement.text, query.arguments, commit, query.dependencies.dependencies)
        assert versions, hidden
        assert query.tag() != old_tag, hidden
        assert query.etag != old_etag, hidden
    if not query.dependencies.volatile:
        check_precise(query, Offset(offset + len(commit)), counts, told=bool(versions), changed=result != query.result)
    query.result = result


def check_precise(query, through, counts, *, told, changed):
    """A precise subscriber, who is asked only about what was not ruled out, is told of changed results alone."""
    if not told:
        return
    query.verified = verify(query.verified, through, 0, query.etag, {query.etag})
    told = is_invalidated(query.verified, through)
    counts["told"] += told
    assert told or not changed, (query.statement.text, query.arguments)
    assert changed or not told, (query.statement.text, query.arguments)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.timeout(3600 if LONG else 120)
def test_no_change_of_a_result_is_judged_irrelevant(part):
    counts = Counter()
    for seed in SEEDS[part::8]:
        counts += check(seed)
    assert counts["cases"] > 200 * len(SEEDS[part::8])
    assert counts["changed"] > counts["cases"] // 20  # the writes do touch results
    assert counts["understood"] > 0.9 * counts["queries"]  # the analysis is not sound by giving up
    assert counts["judged"] < counts["table_level"]  # nor by saying yes to everything
    assert counts["told"] == counts["changed"]
