"""Capturing an SQLite database in tests: writers in two SQLite libraries, and a replica made of what was captured."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from contextlib import aclosing

import apsw

from tailrace.clock import SystemClock
from tailrace.model.image import decode_image, encode_image, encode_key
from tailrace.model.op import Op
from tailrace.source.base import Reader
from tailrace.source.sqlite import SqliteOptions, SqliteSource
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 60


class ApswWriter:
    """Writes through the library that we bundle, in this process."""

    def __init__(self, path):
        self._database = apsw.Connection(str(path))
        self._database.set_busy_timeout(60_000)

    def run(self, sql):
        """Run statements; return the rows of the last one."""
        return self._database.execute(sql).fetchall()

    def close(self):
        self._database.close()


class StdlibWriter:
    """Writes through Python's own library, in a process of its own: two libraries must not share a file in one."""

    def __init__(self, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, sql):
        """Run statements; return the rows of the last one."""
        self._process.stdin.write(json.dumps(sql) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if isinstance(answer, str):
            raise apsw.SQLError(answer)
        return [tuple(row) for row in answer]

    def kill(self):
        """End the process in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_CHILD = """
import json, re, sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for line in sys.stdin:
    statements, rows = [""], []
    for piece in re.split("(;)", json.loads(line)):
        statements[-1] += piece
        if piece == ";" and sqlite3.complete_statement(statements[-1]):
            statements.append("")
    try:
        for statement in statements:
            if statement.strip():
                rows = database.execute(statement).fetchall()
        print(json.dumps(rows, default=repr), flush=True)
    except sqlite3.Error as error:
        print(json.dumps(str(error)), flush=True)
"""


class Replica:
    """The tables as a reader of the log knows them. Refuses changes that do not fit what it knows."""

    def __init__(self):
        self.tables = {}

    def apply(self, draft, schemas):
        for op, number, key, before, after in zip(
            draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, strict=True
        ):
            schema = schemas[number]
            name = schema.table.name
            if op == Op.SCHEMA:
                self._apply_schema(schema, json.loads(after)["ddl"])
                continue
            rows = self.tables[name]
            known = rows.get(key)
            assert self._same(known, before, schema), f"{op} {name} {key}: {before} does not fit {known}"
            assert (before is None) == (op == Op.INSERT)
            assert (after is None) == (op == Op.DELETE)
            if after is None:
                rows.pop(key, None)
            else:
                rows[key] = decode_image(after, schema)

    def _apply_schema(self, schema, ddl):
        name = schema.table.name
        if ddl.startswith("DROP TABLE"):
            del self.tables[name]
            return
        names = {column.name for column in schema.columns}
        for row in self.tables.setdefault(name, {}).values():
            for gone in row.keys() - names:
                del row[gone]

    @staticmethod
    def _same(known, before, schema):
        if known is None or before is None:
            return known is None and before is None
        # Values are carried over by name, without the key's: the key of a row is that of the change.
        names = [column.name for column in schema.columns if column.name not in schema.key]
        found = decode_image(before, schema)
        return [known.get(name) for name in names] == [found.get(name) for name in names]

    def rows(self, name, schema):
        """Return the rows of a table by key, columns that are missing as NULL."""
        blank = {column.name: None for column in schema.columns}
        return {
            key: encode_image({**blank, **{n: v for n, v in row.items() if n in blank}}, schema)
            for key, row in self.tables.get(name, {}).items()
        }


class Captured:
    """A source that runs, and what came out of it."""

    def __init__(self, path, resumes=None, after=None, reader="log", options=None):
        self.path = path
        self.registry = resumes.registry if resumes else MemoryRegistry()
        self.replica = resumes.replica if resumes else Replica()
        self.drafts = []
        self.count = 0
        self.after = after or (resumes.after if resumes else None)
        self.source = SqliteSource("app", path, Reader(reader), options or SqliteOptions(), SystemClock())
        self._task = None

    async def start(self):
        await self.source.open(self.registry)
        if not self.replica.tables:
            self._seed()
        self._task = asyncio.create_task(self._run())

    def _seed(self):
        """Know the rows that were there before."""
        database = apsw.Connection(str(self.path))
        for schema in self.source.tables():
            rows = {key: decode_image(image, schema) for key, image in expected_rows(database, schema).items()}
            self.replica.tables[schema.table.name] = rows
        database.close()

    async def _run(self):
        async with aclosing(self.source.commits(self.after)) as commits:
            async for drafts in commits:
                assert drafts
                for draft in drafts:
                    assert len(draft)
                    self.replica.apply(draft, self.registry.schemas)
                    self.drafts.append(draft)
                    self.count += len(draft)
                self.after = drafts[-1].position
                await self.source.confirm(self.after)

    async def stop(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.source.close()

    async def until(self, condition):
        """Wait until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if self._task.done():
                self._task.result()
                raise AssertionError("the source has stopped")
            assert time.monotonic() < deadline, f"nothing more came after {self.changes()[-5:]}"
            await asyncio.sleep(0.002)

    async def changes_of(self, count):
        """Wait for so many changes in all and return them."""
        await self.until(lambda: self.count >= count)
        return self.changes()

    def changes(self):
        """Return all changes as (op, table, key, before, after), decoded."""
        return [change for draft in self.drafts for change in self.decoded(draft)]

    def decoded(self, draft):
        """Return the changes of one commit, decoded."""
        found = []
        for op, number, key, before, after in zip(
            draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, strict=True
        ):
            schema = self.registry.schemas[number]
            if op == Op.SCHEMA:
                images = (None, json.loads(after)["ddl"])
            else:
                images = tuple(None if image is None else decode_image(image, schema) for image in (before, after))
            found.append((Op(op).word, schema.table.name, json.loads(key), *images))
        return found


@contextlib.asynccontextmanager
async def captured(path, **options):
    """Capture a database for the length of a block."""
    capturing = Captured(path, **options)
    await capturing.start()
    try:
        yield capturing
    finally:
        await capturing.stop()


def expected_rows(database, schema):
    """Return the rows of a table as they are, by key, encoded."""
    names = [column.name for column in schema.columns]
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    rowid = "" if schema.key else "rowid,"
    table = schema.table.name.replace('"', '""')
    found = {}
    for row in database.execute(f'SELECT {rowid}{quoted} FROM "{table}"'):
        values = dict(zip(names, row[len(row) - len(names) :], strict=True))
        key = [values[name] for name in schema.key] if schema.key else [row[0]]
        found[encode_key(key, schema)] = encode_image(values, schema)
    return found


def agrees(capturing, database):
    """Return whether the replica equals the tables that the source captures."""
    schemas = {schema.table.name: schema for schema in capturing.source.tables()}
    if set(capturing.replica.tables) - set(schemas):
        return False
    for name, schema in schemas.items():
        try:
            expected = expected_rows(database, schema)
        except apsw.SQLError:
            return False
        if capturing.replica.rows(name, schema) != expected:
            return False
    return True
