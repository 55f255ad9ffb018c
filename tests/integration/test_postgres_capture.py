"""Facts about what is captured of a real PostgreSQL: identities, large values, large transactions, schema changes."""

import asyncio
import random
from contextlib import aclosing

import pytest

import postgres_servers
from postgres_capture import DEADLINE_S, Database, captured
from tailrace.model.commit import Progress
from tailrace.model.op import Op
from tailrace.model.table import Identity
from tailrace.sources import resolve
from tailrace.testing.registry import MemoryRegistry


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    yield made
    made.close()


async def test_default_identity_gives_the_key_before_and_deletes_and_inserts_where_the_key_changes(database):
    database.run("CREATE TABLE t (b text, a int, v text, PRIMARY KEY (a, b))")
    async with captured(database.url) as capture:
        database.run(
            "INSERT INTO t VALUES ('x', 1, 'one')",
            "UPDATE t SET v = 'two'",
            "UPDATE t SET a = 2",
            "DELETE FROM t",
        )
        changes = await capture.changes(5)
        schema = capture.schema("t")
    assert (schema.identity, schema.key) == (Identity.PRIMARY_KEY, ("a", "b"))
    row = {"b": "x", "a": 1, "v": "one"}
    old, new = {"a": 1, "b": "x"}, {"a": 2, "b": "x"}
    assert changes == [
        ("insert", "t", [1, "x"], None, row),
        ("update", "t", [1, "x"], old, {**row, "v": "two"}),
        ("delete", "t", [1, "x"], old, None),
        ("insert", "t", [2, "x"], None, {**row, "a": 2, "v": "two"}),
        ("delete", "t", [2, "x"], new, None),
    ]


async def test_full_identity_gives_whole_rows_by_the_primary_key_or_without_one_by_the_whole_row(database):
    database.run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "CREATE TABLE free (a int, v text)",
        "ALTER TABLE keyed REPLICA IDENTITY FULL",
        "ALTER TABLE free REPLICA IDENTITY FULL",
    )
    async with captured(database.url) as capture:
        for table in ("keyed", "free"):
            database.run(f"INSERT INTO {table} VALUES (1, 'a')", f"UPDATE {table} SET v = 'b'", f"DELETE FROM {table}")
        keyed, free = {"id": 1, "v": "a"}, {"a": 1, "v": "a"}
        changes = await capture.changes(7)
        assert capture.schema("keyed").identity is Identity.PRIMARY_KEY
        assert capture.schema("free").identity is Identity.WHOLE_ROW
    assert changes == [
        ("insert", "keyed", [1], None, keyed),
        ("update", "keyed", [1], keyed, {"id": 1, "v": "b"}),
        ("delete", "keyed", [1], {"id": 1, "v": "b"}, None),
        ("insert", "free", [1, "a"], None, free),
        ("delete", "free", [1, "a"], free, None),
        ("insert", "free", [1, "b"], None, {"a": 1, "v": "b"}),
        ("delete", "free", [1, "b"], {"a": 1, "v": "b"}, None),
    ]


async def test_an_index_as_identity_is_the_key_and_nothing_captures_inserts_alone(database):
    database.run(
        "CREATE TABLE indexed (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code_key",
        "CREATE TABLE events (id int PRIMARY KEY, v text)",
        "ALTER TABLE events REPLICA IDENTITY NOTHING",
        "CREATE PUBLICATION tailrace FOR TABLE indexed",
        "CREATE PUBLICATION inserts FOR TABLE events WITH (publish = 'insert')",
    )
    async with captured(database.url) as capture:
        database.run("INSERT INTO indexed VALUES (1, 'a')", "UPDATE indexed SET id = 2", "DELETE FROM indexed")
        assert [change[:4] for change in await capture.changes(3)] == [
            ("insert", "indexed", ["a"], None),
            ("update", "indexed", ["a"], {"code": "a"}),
            ("delete", "indexed", ["a"], {"code": "a"}),
        ]
        assert capture.schema("indexed").identity is Identity.UNIQUE_INDEX
    async with captured(database.url, publication="inserts", reader="two") as capture:
        database.run("INSERT INTO events VALUES (1, 'a')")
        assert await capture.changes(1) == [("insert", "events", [], None, {"id": 1, "v": "a"})]
        assert capture.schema("events").identity is Identity.NONE


def large(seed):
    return "".join(random.Random(seed).choices("abcdefghijklmnop", k=20_000))


async def test_a_large_value_that_is_not_touched_is_left_out_and_filled_from_the_row_before_where_that_is_sent(
    database,
):
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, big text)")
    database.run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    async with captured(database.url) as capture:
        big = large(1)
        database.run(f"INSERT INTO t VALUES (1, 1, '{big}')", "UPDATE t SET n = 2", "UPDATE t SET id = 5")
        changes = await capture.changes(4)
        assert changes[0][4] == {"id": 1, "n": 1, "big": big}
        assert changes[1] == ("update", "t", [1], {"id": 1}, {"id": 1, "n": 2})
        assert changes[3] == ("insert", "t", [5], None, {"id": 5, "n": 2})
        database.run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 3")
        assert (await capture.changes(1))[-1][3:] == (
            {"id": 5, "n": 2, "big": big},
            {"id": 5, "n": 3, "big": big},
        )


async def test_a_large_value_in_the_key_is_never_left_out_of_it(database):
    database.run("CREATE TABLE t (id text PRIMARY KEY, n int, other text)")
    database.run("ALTER TABLE t ALTER id SET STORAGE EXTERNAL", "ALTER TABLE t ALTER other SET STORAGE PLAIN")
    key = large(2)[:2500]
    async with captured(database.url) as capture:
        database.run(f"INSERT INTO t VALUES ('{key}', 1, '{large(3)[:1000]}')", "UPDATE t SET n = 2", "DELETE FROM t")
        assert [change[2] for change in await capture.changes(3)] == [[key]] * 3


async def test_a_large_transaction_comes_whole_without_what_was_rolled_back(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    count = 20_000
    other = database.connect()
    async with captured(database.url) as capture:
        with database.connection.transaction():
            database.run(f"INSERT INTO t SELECT n, 'kept' FROM generate_series(1, {count}) n")
            other.execute("INSERT INTO t VALUES (-1, 'meanwhile')")
            with database.connection.transaction(force_rollback=True):
                database.run(f"INSERT INTO t SELECT n + 1000000, 'gone' FROM generate_series(1, {count}) n")
            database.run("CREATE TABLE made (id int PRIMARY KEY)", "INSERT INTO made VALUES (7)")
            database.run(f"UPDATE t SET v = 'last' WHERE id = {count}")
        with other.transaction(force_rollback=True):
            other.execute(f"INSERT INTO t SELECT n + 5000000, 'aborted' FROM generate_series(1, {count}) n")
        database.run("DELETE FROM t WHERE id = -1")
        changes = await capture.changes(count + 5)
    drafts = capture.drafts
    assert [(change[0], change[2]) for change in changes] == [
        ("insert", [-1]),
        *(("insert", [number]) for number in range(1, count + 1)),
        ("schema", []),
        ("insert", [7]),
        ("update", [count]),
        ("delete", [-1]),
    ]
    assert len({draft.position for draft in drafts if not draft.more}) == 3
    assert len({draft.txid for draft in drafts}) == 3


async def test_large_transactions_that_end_in_reverse_order_come_in_the_order_of_their_commits(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    first, second = database.connect(), database.connect()
    async with captured(database.url) as capture:
        database.run("INSERT INTO t VALUES (0, 'before')")
        assert len(await capture.changes(1)) == 1
        for number, connection in enumerate((first, second)):
            connection.autocommit = False
            connection.execute(f"INSERT INTO t SELECT n, 'x' FROM generate_series({number}00001, {number}05000) n")
        second.commit()
        changes = await capture.changes(5000)
        assert {change[2][0] // 100_000 for change in changes} == {1}
    first.commit()
    async with captured(database.url, registry=capture.registry, after=capture.after) as capture:
        changes = await capture.changes(5000)
        assert [change[2][0] for change in changes] == list(range(1, 5001))


async def test_without_streaming_the_same_comes(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    async with captured(database.url, streaming="false") as capture:
        database.run("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 60000) n")
        changes = await capture.changes(60_000)
        assert [change[2][0] for change in changes] == list(range(1, 60_001))
        assert [draft.part for draft in capture.drafts] == list(range(len(capture.drafts)))
        assert len(capture.drafts) > 1


async def test_nothing_of_a_large_transaction_is_handed_over_before_its_commit(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE mark (id int PRIMARY KEY)")
    other = database.connect()
    async with captured(database.url) as capture:
        with database.connection.transaction():
            database.run("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 30000) n")
            other.execute("INSERT INTO mark VALUES (1)")
            assert [change[1] for change in await capture.changes(1)] == ["mark"]
        assert len(await capture.changes(30_000)) == 30_000


async def test_a_prepared_transaction_comes_when_it_is_committed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url) as capture:
        database.run("BEGIN", "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'p'")
        database.run("BEGIN", "INSERT INTO t VALUES (2)", "PREPARE TRANSACTION 'q'")
        database.run("INSERT INTO t VALUES (3)", "COMMIT PREPARED 'p'", "ROLLBACK PREPARED 'q'")
        assert [change[2] for change in await capture.changes(2)] == [[3], [1]]


async def test_schema_changes_inside_a_transaction_and_while_nobody_reads_come_with_the_columns_of_their_time(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    registry = MemoryRegistry()
    async with captured(database.url, registry=registry) as capture:
        with database.connection.transaction():
            database.run("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ADD n int", "INSERT INTO t VALUES (2, 'b', 5)")
        changes = await capture.changes(3)
        assert [change[0] for change in changes] == ["insert", "schema", "insert"]
        assert changes[2][4] == {"id": 2, "v": "b", "n": 5}
        assert changes[1][4] == {"ddl": "ALTER TABLE t ADD n int"}
    database.run(
        "INSERT INTO t VALUES (3, 'c', 6)",
        "ALTER TABLE t RENAME v TO label",
        "INSERT INTO t VALUES (4, 'd', 7)",
        "ALTER TABLE t DROP COLUMN n",
        "ALTER TABLE t ALTER id TYPE bigint",
        "INSERT INTO t VALUES (5, 'e')",
    )
    async with captured(database.url, registry=registry, after=capture.after) as capture:
        changes = [change for change in await capture.changes(6) if change[0] != "schema"]
        assert [change[4] for change in changes] == [
            {"id": 3, "v": "c", "n": 6},
            {"id": 4, "label": "d", "n": 7},
            {"id": 5, "label": "e"},
        ]
        assert [one.version for one in registry.schemas.values()] == [1, 2, 3, 4, 5]


async def test_a_schema_change_is_said_again_when_its_commit_was_not_confirmed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url) as capture:
        database.run("INSERT INTO t VALUES (1)")
        await capture.changes(1)
        database.run("ALTER TABLE t ADD n int", "INSERT INTO t VALUES (2, 2)")
        after = capture.after
        async with asyncio.timeout(DEADLINE_S), aclosing(capture.source.commits(after)) as commits:
            async for group in commits:
                if not isinstance(group, Progress):
                    assert group[0].ops[0] == Op.SCHEMA
                    break
        assert [change[0] for change in await capture.changes(2)] == ["schema", "insert"]


async def test_statements_that_change_the_schema_come_in_their_own_transactions_with_renames_and_drops(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url) as capture:
        database.run("ALTER TABLE t RENAME TO u", "CREATE TABLE w (id int PRIMARY KEY)", "DROP TABLE w")
        database.run("CREATE SCHEMA s", "CREATE TABLE s.x (a int PRIMARY KEY)", "DROP SCHEMA s CASCADE")
        database.run(
            "CREATE INDEX ON u (id)", "CREATE TEMPORARY TABLE mine (a int)", "CREATE TABLE w (id int PRIMARY KEY)"
        )
        database.run("DROP TABLE w; CREATE TABLE v (id int PRIMARY KEY)")
        assert [(change[1], change[4]) for change in await capture.changes(9)] == [
            ("t", {"ddl": "ALTER TABLE t RENAME TO u", "renamed": "u"}),
            ("u", {"ddl": "ALTER TABLE t RENAME TO u"}),
            ("w", {"ddl": "CREATE TABLE w (id int PRIMARY KEY)"}),
            ("w", {"ddl": "DROP TABLE w", "dropped": True}),
            ("s.x", {"ddl": "CREATE TABLE s.x (a int PRIMARY KEY)"}),
            ("s.x", {"ddl": 'DROP TABLE "s"."x"', "derived": True, "dropped": True}),
            ("w", {"ddl": "CREATE TABLE w (id int PRIMARY KEY)"}),
            ("w", {"ddl": "DROP TABLE w; CREATE TABLE v (id int PRIMARY KEY)", "dropped": True}),
            ("v", {"ddl": 'CREATE TABLE "v" ("id" integer NOT NULL, PRIMARY KEY ("id"))', "derived": True}),
        ]
        assert {one.table.wire for one in capture.source.tables()} == {"u", "v"}


async def test_a_schema_change_in_a_streamed_transaction_stands_where_it_was_made(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    async with captured(database.url) as capture:
        with database.connection.transaction():
            database.run("INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, 1000) n")
            database.run("ALTER TABLE t ADD n int", "INSERT INTO t VALUES (1001, 'y', 5)")
        changes = await capture.changes(1002)
    assert [change[0] for change in changes[-2:]] == ["schema", "insert"]
    assert changes[-2][4] == {"ddl": "ALTER TABLE t ADD n int"}


async def test_without_the_triggers_statements_are_derived_and_say_so(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url, ddl_trigger="false") as capture:
        assert database.rows("SELECT FROM pg_event_trigger") == []
        database.run("ALTER TABLE t ADD n int", "INSERT INTO t VALUES (1, 1)", "DROP TABLE t")
        changes = await capture.changes(2)
    ddl = 'CREATE TABLE "t" ("id" integer NOT NULL, "n" integer, PRIMARY KEY ("id"))'
    assert changes[0][4]["derived"] is True
    assert changes[0][4]["ddl"] in {ddl, 'CREATE TABLE "t" ("id" integer, "n" integer, PRIMARY KEY ("id"))'}


async def test_a_user_who_may_not_write_messages_changes_the_schema_as_before(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE SCHEMA theirs", "DROP ROLE IF EXISTS plain_writer")
    database.run("CREATE ROLE plain_writer", "GRANT ALL ON SCHEMA theirs TO plain_writer")
    async with captured(database.url) as capture:
        for (name,) in database.rows(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
        ):
            database.run(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
        database.run("SET ROLE plain_writer", "CREATE TABLE theirs.x (a int PRIMARY KEY)", "RESET ROLE")
        database.run("INSERT INTO theirs.x VALUES (1)")
        changes = await capture.changes(2)
        assert [change[:2] for change in changes] == [("schema", "theirs.x"), ("insert", "theirs.x")]
        assert changes[0][4]["derived"] is True
    database.run("DROP OWNED BY plain_writer", "DROP ROLE plain_writer")


async def test_the_triggers_are_made_once_and_go_with_capture(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    administration = resolve(database.url, {}).administer()
    async with captured(database.url, reader="tail-3", ephemeral=True):
        assert database.rows("SELECT FROM pg_event_trigger") == []
    for _ in range(2):
        administration.set_up()
        assert database.rows("SELECT count(*) FROM pg_event_trigger") == [(2,)]
    assert administration.remove(force=False)
    assert database.rows("SELECT FROM pg_event_trigger") == []
    assert database.rows("SELECT FROM pg_proc WHERE proname LIKE 'tailrace%'") == []


async def test_new_tables_and_renamed_ones_appear_by_themselves(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url) as capture:
        database.run("CREATE TABLE new (id int PRIMARY KEY)", "INSERT INTO new VALUES (1)")
        assert [change[:2] for change in await capture.changes(2)] == [("schema", "new"), ("insert", "new")]
        database.run("ALTER TABLE new RENAME TO newer", "INSERT INTO newer VALUES (2)")
        renamed = [("schema", "new"), ("schema", "newer"), ("insert", "newer")]
        assert [change[:2] for change in await capture.changes(3)] == renamed
        assert {one.table.wire for one in capture.source.tables()} >= {"t", "newer"}


@pytest.mark.parametrize("root", [True, False])
async def test_partitions_are_shown_as_the_partitioned_table_or_as_themselves(database, root):
    database.run(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    async with captured(database.url, partition_root=str(root).lower()) as capture:
        database.run("INSERT INTO p VALUES (1, 'a'), (11, 'b')", "TRUNCATE p")
        changes = await capture.changes(3)
    rows = [change[:3] for change in changes if change[0] == "insert"]
    assert rows == [("insert", "p" if root else "p1", [1]), ("insert", "p" if root else "p2", [11])]
    assert {change[1] for change in changes if change[0] == "truncate"} == ({"p"} if root else {"p1", "p2"})


async def test_a_publication_of_others_is_used_with_its_row_filter_and_columns(database):
    if database.version < 15:
        pytest.skip("publications have filters from version 15 on")
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, secret text)",
        "CREATE PUBLICATION mine FOR TABLE t (id, v) WHERE (id > 10)",
    )
    async with captured(database.url, publication="mine") as capture:
        database.run("INSERT INTO t VALUES (1, 'a', 'x')", "INSERT INTO t VALUES (11, 'b', 'y')")
        assert await capture.changes(1) == [("insert", "t", [11], None, {"id": 11, "v": "b"})]
    assert database.rows("SELECT pubname FROM pg_publication") == [("mine",)]


async def test_stored_generated_columns_come_where_the_publication_has_them(database):
    if database.version < 18:
        pytest.skip("generated columns are published from version 18 on")
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE PUBLICATION tailrace FOR ALL TABLES WITH (publish_generated_columns = stored)",
    )
    async with captured(database.url) as capture:
        database.run("INSERT INTO t VALUES (4)")
        assert (await capture.changes(1))[0][4] == {"id": 4, "twice": 8}
        assert capture.schema("t").column("twice").generated


async def test_a_quiet_table_beside_a_busy_one_does_not_hold_the_log_of_the_server(database):
    database.run(
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "CREATE TABLE busy (id int PRIMARY KEY)",
        "CREATE PUBLICATION tailrace FOR TABLE quiet",
    )
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"
    async with captured(database.url) as capture:
        following = asyncio.create_task(confirm_all(capture.source))
        database.run("INSERT INTO busy SELECT generate_series(1, 1000)")
        (target,) = database.rows("SELECT pg_current_wal_lsn()")[0]
        async with asyncio.timeout(DEADLINE_S):
            while not database.rows(f"SELECT ({confirmed}) >= '{target}'::pg_lsn")[0][0]:
                await asyncio.sleep(0.05)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def confirm_all(source):
    """Confirm progress as it comes, as the pump does."""
    async with aclosing(source.commits(None)) as commits:
        async for one in commits:
            assert isinstance(one, Progress)
            await source.confirm(one.position)


async def test_a_temporary_slot_and_its_publication_are_gone_when_the_source_is_closed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    async with captured(database.url, reader="tail-1", ephemeral=True) as capture:
        assert database.rows("SELECT temporary FROM pg_replication_slots WHERE database = current_database()") == [
            (True,)
        ]
        database.run("INSERT INTO t VALUES (1)")
        assert len(await capture.changes(1)) == 1
    assert database.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
    assert database.rows("SELECT pubname FROM pg_publication") == []


async def test_what_a_killed_tail_left_behind_is_removed_by_the_next_one(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION tailrace_tail_dead FOR ALL TABLES",
        "COMMENT ON PUBLICATION tailrace_tail_dead IS 'made by tailrace'",
    )
    async with captured(database.url, reader="tail-2", ephemeral=True):
        assert database.rows("SELECT pubname FROM pg_publication") == [("tailrace_tail_2",)]
    assert database.rows("SELECT pubname FROM pg_publication") == []
