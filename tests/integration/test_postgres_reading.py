"""Rows of PostgreSQL: what a transaction sees against the log, keys of all types, and what a publication leaves out."""

import asyncio
import json
import threading

import pytest

import postgres_servers
from databases import PASSWORD
from postgres_capture import Database
from postgres_reading import DEADLINE_S, EVERYTHING, reading
from tailrace.model.errors import (
    InvalidRequestError,
    InvalidValueError,
    SourceUnavailableError,
    UnknownTableError,
)
from tailrace.model.key_interval import KeyInterval
from tailrace.model.op import Op
from tailrace.model.table import TableName

ITEM = TableName("app", "item")
NUMBERS = 40

KEYS = {
    "smallint": "i - 20",
    "bigint": "i * 1000000007::bigint - 5",
    "numeric": "(i - 20)::numeric / 7",
    "double precision": "CASE i WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE i / 3.0 END",
    "boolean": None,
    "text": "chr(65 + i) || E'\\t\\n\\\\ '' \" ü' || i",
    'text COLLATE "C"': "chr(65 + i) || i",
    "varchar(20)": "md5(i::text)::varchar(20)",
    "char(12)": "md5(i::text)::char(12)",
    "bytea": "decode(md5(i::text), 'hex')",
    "date": "CASE i WHEN 0 THEN '-infinity' WHEN 1 THEN '0044-03-15 BC' ELSE date '2026-01-01' + i END",
    "timestamptz": "CASE i WHEN 0 THEN 'infinity' ELSE timestamptz '2026-01-01 00:00:00.5+00' + i * interval '1 h' END",
    "time": "CASE i WHEN 0 THEN '24:00:00' ELSE time '00:00' + i * interval '7 minutes' END",
    "interval": "i * interval '1 month 3 days'",
    "uuid": "md5(i::text)::uuid",
    "inet": "('10.0.0.' || i)::inet",
    "bit(8)": "i::bit(8)",
    "jsonb": "jsonb_build_object('n', i)",
    "int[]": "ARRAY[i, NULL, -i]",
    "int4range": "int4range(i, i + 5)",
    "mood": None,
    "positive": "i + 1",
}
"""Types that a key may have, and the key of row i."""


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    yield made
    made.close()


def texts(pages):
    return [json.loads(image) for page in pages for image in page.rows().images]


async def test_pages_and_cuts_follow_the_order_that_the_server_has_for_keys_of_every_type(database):
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s \"fine\"')", "CREATE DOMAIN positive AS int CHECK (VALUE > 0)"
    )
    for number, (type_, key) in enumerate(KEYS.items()):
        database.run(f"CREATE TABLE t{number} (k {type_} PRIMARY KEY, i int)")
        if key is None:
            values = {"boolean": "(false, 0), (true, 1)", "mood": "('it''s \"fine\"', 0), ('sad', 1), ('so so', 2)"}
            database.run(f"INSERT INTO t{number} VALUES {values[type_]}")
        else:
            database.run(f"INSERT INTO t{number} SELECT {key}, i FROM generate_series(0, {NUMBERS - 1}) i")
    async with reading(database.url) as found:
        for number, type_ in enumerate(KEYS):
            name = f"t{number}"
            wanted = [i for (i,) in database.rows(f"SELECT i FROM {name} ORDER BY k")]
            pages = [page async for page in found.pages(name, 3)]
            assert [row["i"] for row in texts(pages)] == wanted, type_
            table = TableName("app", name)
            assert await found.reads.last_key(table) == pages[-1].last or not texts(pages[-1:])
            cuts = await found.reads.cut(table, EVERYTHING, rows=3, count=100)
            assert cuts == [page.last for page in pages if len(page.rows().keys) == 3]
            if len(cuts) > 2:
                between = [page async for page in found.pages(name, 100, KeyInterval(cuts[0], cuts[2]))]
                assert [row["i"] for row in texts(between)] == wanted[3:9], type_


async def test_composite_keys_are_in_the_order_of_the_key(database):
    database.run(
        "CREATE TABLE item (name text, id int, note text, PRIMARY KEY (id, name))",
        "INSERT INTO item SELECT chr(97 + i % 5), i / 5, 'n' FROM generate_series(0, 24) i",
    )
    async with reading(database.url) as found:
        pages = [page async for page in found.pages("item", 4)]
        wanted = database.rows("SELECT id, name FROM item ORDER BY id, name")
        assert [(row["id"], row["name"]) for row in texts(pages)] == wanted
        assert pages[0].schema.key == ("id", "name")
        assert pages[0].last == '[0,"d"]'


async def test_bounds_that_the_type_of_the_key_does_not_have_are_refused(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY)", "CREATE TABLE day (id date PRIMARY KEY)")
    async with reading(database.url) as found:
        for name, bound in [
            ("item", '["x"]'),
            ("item", "[99999999999]"),
            ("item", "[null]"),
            ("item", "[[1]]"),
            ("day", '["2026-02-30"]'),
        ]:
            with pytest.raises(InvalidValueError, match="not a key of table"):
                await found.reads.page(
                    TableName("app", name), KeyInterval(after=bound), rows_max=1, timeout_s=DEADLINE_S
                )


async def test_a_page_ends_where_it_has_many_bytes(database):
    database.run(
        "CREATE TABLE item (id int PRIMARY KEY, text text)",
        "INSERT INTO item SELECT i, repeat('x', 6000000) FROM generate_series(1, 5) i",
    )
    async with reading(database.url) as found:
        pages = [page async for page in found.pages("item", 100)]
        assert [len(page.rows().keys) for page in pages] == [3, 2]
        assert await found.reads.count(ITEM) == 5


async def test_a_table_without_a_key_has_a_snapshot_and_no_pages(database):
    database.run(
        "CREATE TABLE note (text text)",
        "ALTER TABLE note REPLICA IDENTITY FULL",
        "INSERT INTO note VALUES ('a'), (NULL)",
    )
    async with reading(database.url) as found:
        rows, _ = await found.snapshot("note")
        assert rows == {b'["a"]': b'{"text":"a"}', b"[null]": b'{"text":null}'}
        with pytest.raises(InvalidRequestError, match="has no key"):
            await found.reads.page(TableName("app", "note"), EVERYTHING, rows_max=1, timeout_s=DEADLINE_S)


async def test_rows_and_columns_that_the_publication_leaves_out_are_not_read(database):
    if database.version < 15:
        pytest.skip("publications have row filters from version 15 on")
    database.run(
        "CREATE TABLE item (id int PRIMARY KEY, name text, secret text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO item SELECT i, 'n' || i, 's' FROM generate_series(1, 10) i",
        "CREATE PUBLICATION tailrace FOR TABLE item (id, name) WHERE (id % 2 = 0)",
    )
    async with reading(database.url) as found:
        rows, _ = await found.snapshot("item")
        assert [json.loads(key)[0] for key in rows] == [2, 4, 6, 8, 10]
        assert json.loads(rows[b"[2]"]) == {"id": 2, "name": "n2"}
        assert await found.reads.count(ITEM) == 5
        assert await found.reads.cut(ITEM, EVERYTHING, rows=2, count=9) == ["[4]", "[8]"]
        with pytest.raises(UnknownTableError):
            await found.reads.count(TableName("app", "other"))


async def test_partitions_are_read_through_their_root_and_children_apart_from_their_parent(database):
    database.run(
        "CREATE TABLE item (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
        "CREATE TABLE item_1 PARTITION OF item FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE item_2 PARTITION OF item FOR VALUES FROM (10) TO (20)",
        "INSERT INTO item VALUES (1, 'a'), (11, 'b')",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2)",
    )
    async with reading(database.url) as found:
        assert list((await found.snapshot("item"))[0]) == [b"[1]", b"[11]"]
        assert list((await found.snapshot("parent"))[0]) == [b"[1]"]
        assert list((await found.snapshot("child"))[0]) == [b"[2]"]


async def test_a_schema_change_that_the_stream_has_not_described_yet_is_the_next_version(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY)", "INSERT INTO item VALUES (1)")
    async with reading(database.url) as found:
        (page,) = [page async for page in found.pages("item", 10)]
        assert page.schema.version == 1
        database.run("ALTER TABLE item ADD COLUMN name text DEFAULT 'new'")
        (page,) = [page async for page in found.pages("item", 10)]
        assert (page.schema.version, texts([page])) == (2, [{"id": 1, "name": "new"}])
        database.run("INSERT INTO item VALUES (2)")
        await found.catch_up()
        assert found.registry.latest_schema(ITEM)[1] == page.schema
        (page,) = [page async for page in found.pages("item", 10)]
        assert page.schema == found.registry.latest_schema(ITEM)[1]
        database.run("ALTER TABLE item DROP COLUMN name", "ALTER TABLE item RENAME TO thing")
        with pytest.raises(UnknownTableError):
            await found.snapshot("item")
        assert list((await found.snapshot("thing"))[0]) == [b"[1]", b"[2]"]


async def test_rights_that_lack_and_policies_that_hide_rows_are_errors(database):
    role = f"reader_{database.name}"
    database.run(
        "CREATE TABLE item (id int PRIMARY KEY)",
        "INSERT INTO item VALUES (1), (2)",
        "CREATE PUBLICATION tailrace FOR ALL TABLES",
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
    )
    try:
        async with reading(database.server.sql_url(database.name, role)) as found:
            with pytest.raises(SourceUnavailableError, match="GRANT SELECT"):
                await found.snapshot("item")
            database.run(f"GRANT SELECT ON item TO {role}")
            assert len((await found.snapshot("item"))[0]) == 2
            database.run("ALTER TABLE item ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON item USING (id = 1)")
            with pytest.raises(SourceUnavailableError, match="BYPASSRLS"):
                await found.snapshot("item")
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_what_is_committed_without_a_flush_is_read_when_the_log_has_it(database):
    """The server shows such commits before they are on its disk, and sends them after."""
    database.run("CREATE TABLE item (id int PRIMARY KEY)", "SET synchronous_commit = off")
    async with reading(database.url) as found:
        for number in range(20):
            database.run(f"INSERT INTO item VALUES ({number})")
            rows, taken = await found.snapshot("item")
            assert len(rows) == number + 1
            assert taken.barrier.position is not None
        await found.catch_up()
        assert len(found.drafts) == 20


async def test_a_place_that_nobody_flushes_is_reached(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY)")
    async with reading(database.url) as found, asyncio.timeout(DEADLINE_S / 2):
        for _ in range(5):
            database.rows("SELECT pg_logical_emit_message(false, 'none', repeat('x', 100))")
            await found.reads.newest(DEADLINE_S)


async def test_the_connection_is_made_again_after_the_server_ended_it(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY)", "INSERT INTO item VALUES (1)")
    async with reading(database.url) as found:
        assert await found.reads.count(ITEM) == 1
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'tailrace' AND backend_type = 'client backend'"
        )
        assert await found.reads.count(ITEM) == 1


async def test_a_snapshot_that_nobody_waits_for_is_ended(database):
    database.run(
        "CREATE TABLE item (id int PRIMARY KEY, text text)",
        "INSERT INTO item SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i",
    )
    async with reading(database.url) as found:
        task = asyncio.create_task(found.snapshot("item"))
        running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND datname = current_database()"
        async with asyncio.timeout(DEADLINE_S):
            while not database.rows(f"{running} AND state = 'active'")[0][0] and not task.done():
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            while database.rows(f"{running} AND state = 'active'")[0][0]:
                await asyncio.sleep(0.01)
        assert await found.reads.count(ITEM) == 50000


# What transactions see


def set_standby(database, name):
    """Have commits wait for a standby of this name; for none where it is empty."""
    database.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", "SELECT pg_reload_conf()")
    while database.rows("SHOW synchronous_standby_names") != [(name,)]:
        pass


async def test_rows_that_have_a_later_commit_without_an_earlier_one_are_not_given():
    """A commit waits for a synchronous standby: it is in the log, others that came after it are seen, and it is not."""
    server = postgres_servers.started(postgres_servers.VERSIONS[-1])
    try:
        database = Database(server)
        database.run("SET synchronous_commit = local", "CREATE TABLE item (id int PRIMARY KEY)")
        async with reading(database.url) as found:
            set_standby(database, "absent")
            waiting = database.connect()
            writing = threading.Thread(target=lambda: waiting.execute("INSERT INTO item VALUES (1)"), daemon=True)
            writing.start()
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            async with asyncio.timeout(DEADLINE_S):
                while not database.rows(query)[0][0]:
                    await asyncio.sleep(0.01)
            # It is committed, and seen by nobody: the place before it.
            rows, taken = await found.snapshot("item")
            assert rows == {}
            await found.catch_up()
            assert [draft.keys for draft in found.missing(taken)] == [[b"[1]"]]
            database.run("INSERT INTO item VALUES (2)")
            with pytest.raises(SourceUnavailableError, match="another order"):
                await found.reads.page(ITEM, EVERYTHING, rows_max=9, timeout_s=0.5)
            set_standby(database, "")
            await asyncio.to_thread(writing.join, DEADLINE_S)
            rows, taken = await found.snapshot("item")
            assert sorted(rows) == [b"[1]", b"[2]"]
            assert found.missing(taken) == []
        database.leave()
    finally:
        server.stop()


def write_much(database, stop, begin):
    """Write transactions of several kinds until asked to stop."""
    connection = database.connect()
    for number in range(begin, begin + 1000):
        if stop.is_set():
            break
        connection.execute(f"INSERT INTO item VALUES ({number}, 'a')")
        with connection.transaction():
            connection.execute(f"UPDATE item SET name = 'b{number}' WHERE id = {number}")
            with connection.transaction():
                connection.execute(f"INSERT INTO item VALUES ({-number}, 'c')")
        if number % 3 == 0:
            connection.execute(f"DELETE FROM item WHERE id = {number}")
        if number % 97 == 0:
            with connection.transaction():
                connection.execute("TRUNCATE item")
                connection.execute("INSERT INTO item VALUES (0, 'kept')")


async def test_rows_and_the_commits_that_they_lack_make_the_table_while_many_write(database):
    database.run("CREATE TABLE item (id int PRIMARY KEY, name text)", "INSERT INTO item VALUES (0, 'kept')")
    async with reading(database.url) as found:
        stop = threading.Event()
        writers = [threading.Thread(target=write_much, args=(database, stop, 1 + 10_000 * one)) for one in range(4)]
        for writer in writers:
            writer.start()
        try:
            reads = [await found.snapshot("item") for _ in range(30)]
        finally:
            stop.set()
            for writer in writers:
                await asyncio.to_thread(writer.join)
        await found.catch_up()
        wanted = {f"[{id_}]".encode(): {"id": id_, "name": name} for id_, name in database.rows("SELECT * FROM item")}
        for rows, taken in reads:
            made = dict(rows)
            for draft in found.missing(taken):
                for op, key, after in zip(draft.ops, draft.keys, draft.afters, strict=True):
                    match Op(op):
                        case Op.INSERT | Op.UPDATE:
                            made[key] = after
                        case Op.DELETE:
                            del made[key]
                        case Op.TRUNCATE:
                            made.clear()
            assert {key: json.loads(image) for key, image in made.items()} == wanted
