"""What a PostgreSQL source does when the server, the network or the slot fails: it resumes, or refuses and says why."""

import asyncio
import os
import shutil
import threading
import time
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

import postgres_servers
from certificates import Authority
from databases import USER
from postgres_capture import DEADLINE_S, Database, captured, source_of
from proxy import Proxy
from serving import wait_until
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.metrics import Metrics
from tailrace.model.errors import SourceError, SourceStateError, SourceUnavailableError
from tailrace.model.number import Position
from tailrace.source.administration import Severity
from tailrace.source.kind import SourceTools
from tailrace.source.postgres import slot_watch
from tailrace.source.reader import Reader
from tailrace.sources import resolve
from tailrace.testing.registry import MemoryRegistry


@pytest.fixture(params=postgres_servers.VERSIONS)
def database(request):
    made = Database(postgres_servers.shared(request.param))
    made.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    yield made
    made.close()


@pytest.fixture(params=postgres_servers.VERSIONS)
def own(request):
    """A server for one test, to be ended and started."""
    if reason := postgres_servers.why_not(request.param):
        pytest.skip(reason)
    server = postgres_servers.started(request.param)
    made = Database(server)
    made.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    yield made
    made.leave()
    server.stop()


def findings(url, **options):
    """Return what the doctor finds wrong, by check."""
    found = resolve(url, options).administer().doctor()
    return {one.check: one for one in found if one.severity is not Severity.OK}


async def refused(url, match, **options):
    """Look that a source refuses to open, as a state that someone has to change."""
    source = source_of(url, **options)
    with pytest.raises(SourceStateError, match=match):
        await source.open(MemoryRegistry())
    await source.close()


async def test_a_wrong_password_user_or_database_is_named_with_what_to_do(database):
    server = database.server
    await refused(server.sql_url(database.name, password="wrong"), "the password is wrong")
    await refused(server.sql_url(database.name, user="nobody"), "password is wrong|refuses this user")
    await refused(server.sql_url("nowhere"), "the database does not exist")
    assert "password" in findings(server.sql_url(database.name, password="wrong"))["access"].message
    with pytest.raises(SourceStateError, match="the password is wrong"):
        resolve(server.sql_url(database.name, password="wrong")).check()


async def test_a_server_that_is_away_is_tried_again(database):
    url = f"postgresql://{USER}@127.0.0.1:1/{database.name}"
    source = source_of(url)
    with pytest.raises(SourceUnavailableError):
        await source.open(MemoryRegistry())
    resolve(url).check()


async def test_a_role_needs_replication_and_nothing_else_where_the_publication_is_there(database):
    role = f"least_{database.name}"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    url = database.server.sql_url(database.name, user=role, password="secret")
    try:
        await refused(url, f'ALTER ROLE "{role}" REPLICATION')
        assert findings(url)["role"].remedy == f'ALTER ROLE "{role}" REPLICATION;'
        database.run(f"ALTER ROLE {role} REPLICATION")
        await refused(url, "CREATE PUBLICATION .* FOR ALL TABLES")
        assert "CREATE PUBLICATION" in findings(url)["publication"].remedy
        database.run("CREATE PUBLICATION tailrace FOR ALL TABLES")
        assert "role" not in findings(url)
        async with captured(url) as capture:
            database.run("INSERT INTO t VALUES (1, 'a')")
            assert len(await capture.changes(1)) == 1
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_tables_without_a_key_are_not_published_behind_the_back_of_their_writers(database):
    database.run("CREATE TABLE keyless (v text)")
    await refused(database.url, 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL')
    assert database.rows("SELECT FROM pg_publication") == []
    assert "keyless" in findings(database.url)["replica identity"].remedy
    async with captured(database.url, tables="t"):
        database.run("INSERT INTO keyless VALUES ('a')", "UPDATE keyless SET v = 'b'")


async def test_wal_level_and_free_slots_are_asked_for():
    server = postgres_servers.started(postgres_servers.VERSIONS[0], wal_level="replica", max_replication_slots=1)
    try:
        made = Database(server)
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        made.leave()
        await refused(made.url, "ALTER SYSTEM SET wal_level = 'logical'")
        assert findings(made.url)["wal_level"].severity is Severity.PROBLEM
        server.crash()
        server.settings["wal_level"] = "logical"
        server.go_on()
        async with captured(made.url):
            await refused(made.url, "all replication slots are in use", reader="second")
            assert "max_replication_slots" in findings(made.url)["max_replication_slots"].remedy
    finally:
        server.stop()


async def test_a_slot_that_was_dropped_or_made_again_is_never_a_silent_hole(database):
    registry = MemoryRegistry()
    async with captured(database.url, registry=registry) as capture:
        database.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)
    database.run("SELECT pg_drop_replication_slot('tailrace_log')", "INSERT INTO t VALUES (2, 'lost')")
    async with captured(database.url, registry=registry, after=capture.after) as capture:
        with pytest.raises(SourceStateError, match=r"made again.*tailrace log reset"):
            await capture.changes(1)
    assert database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()") == []
    database.run("SELECT pg_create_logical_replication_slot('tailrace_log', 'pgoutput')")
    async with captured(database.url, registry=registry, after=capture.after) as capture:
        with pytest.raises(SourceStateError, match=r"made again"):
            await capture.changes(1)


async def test_a_slot_that_is_dropped_while_it_is_read_ends_the_stream_and_then_refuses(database):
    async with captured(database.url) as capture:
        database.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)
        waiting = asyncio.create_task(capture.changes(1))
        active = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'tailrace_log' AND active"
        await until(lambda: database.rows(active))
        database.run(f"SELECT pg_terminate_backend(pid, 5000) FROM ({active}) s(pid)")
        with pytest.raises(SourceUnavailableError):
            await waiting
        database.run("SELECT pg_drop_replication_slot('tailrace_log')")
        with pytest.raises(SourceStateError, match="was dropped"):
            await capture.changes(1)


async def test_a_publication_that_was_dropped_is_not_made_again_behind_a_slot(database):
    registry = MemoryRegistry()
    async with captured(database.url, registry=registry) as capture:
        database.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)
    database.run("DROP PUBLICATION tailrace", "INSERT INTO t VALUES (2, 'b')")
    await refused(database.url, r"publication tailrace is gone.*tailrace log reset")
    assert database.rows("SELECT FROM pg_publication") == []


async def test_a_new_timeline_that_has_everything_is_followed(own):
    """Recovery of an archive ends on a new timeline, as the promotion of a standby does."""
    registry = MemoryRegistry()
    async with captured(own.url, registry=registry) as capture:
        own.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)
    own.leave()
    own.server.crash()
    (own.server.directory / "data" / "recovery.signal").touch()
    own.server.settings["restore_command"] = "false"
    own.server.go_on()
    wait_until(lambda: own.server.execute("SELECT pg_is_in_recovery()") == [(False,)], "it is promoted")
    own.server.execute("INSERT INTO t VALUES (2, 'b')", own.name)
    async with captured(own.url, registry=registry, after=capture.after) as again:
        assert [change[2] for change in await again.changes(1)] == [[2]]
    assert [position.split(":")[1] for position in (capture.after, again.after)] == ["1", "2"]


@pytest.mark.parametrize(
    ("plugin", "two_phase", "match"), [("test_decoding", "false", "not pgoutput"), ("pgoutput", "true", "two_phase")]
)
async def test_a_slot_of_another_sort_is_refused(database, plugin, two_phase, match):
    database.run(f"SELECT pg_create_logical_replication_slot('tailrace_log', '{plugin}', false, {two_phase})")
    await refused(database.url, match)


async def test_a_slot_that_the_server_invalidated_is_refused(own):
    own.server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    own.server.execute("ALTER SYSTEM SET max_wal_size = '32MB'")
    own.server.execute("SELECT pg_reload_conf()")
    registry = MemoryRegistry()
    async with captured(own.url, registry=registry) as capture:
        own.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)

    def lost():
        own.run("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1000, 11000) n", "TRUNCATE t")
        own.run("SELECT pg_switch_wal()", "CHECKPOINT")
        return own.rows("SELECT FROM pg_replication_slots WHERE wal_status = 'lost'")

    wait_until(lost, "the slot is lost")
    await refused(own.url, r"was invalidated by the server.*tailrace log reset")
    assert findings(own.url)["slot"].severity is Severity.PROBLEM


async def refused_position(database, capture, match, **changed):
    """Look that a position like the last one, with other parts, is refused."""
    names = ("system", "timeline", "lsn")
    parts = dict(zip(names, capture.after.split(":", 2), strict=True))
    position = Position(":".join({**parts, **changed}[name] for name in names))
    async with captured(database.url, registry=capture.registry, after=position) as again:
        with pytest.raises(SourceStateError, match=match):
            await again.changes(1)


async def test_another_cluster_timeline_or_an_older_copy_is_refused(database):
    async with captured(database.url) as capture:
        database.run("INSERT INTO t VALUES (1, 'a')")
        await capture.changes(1)
    await refused_position(database, capture, "of the PostgreSQL cluster 17", system="17")
    await refused_position(database, capture, "timeline 9, which is not in the history", timeline="9")
    await refused_position(database, capture, "restored from an older copy", lsn="FFFF/0")
    async with captured(database.url, registry=capture.registry, after=capture.after) as again:
        database.run("INSERT INTO t VALUES (2, 'b')")
        assert len(await again.changes(1)) == 1


async def test_the_connection_is_encrypted_and_the_server_checked_as_sslmode_asks(tmp_path):
    if reason := postgres_servers.why_not(15):
        pytest.skip(reason)
    server = postgres_servers.LogicalPostgres(15)
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    certificate, key = authority.sign("server")
    for name, file in (("server.crt", certificate), ("server.key", key)):
        (server.directory / name).write_bytes(Path(file).read_bytes())
        (server.directory / name).chmod(0o600)
        if os.getuid() == 0:
            shutil.chown(server.directory / name, server.account, server.account)
    server.settings |= {
        "ssl": "on",
        "ssl_cert_file": server.directory / "server.crt",
        "ssl_key_file": server.directory / "server.key",
    }
    try:
        server.start()
        made = Database(server)
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        async with captured(made.url, sslmode="verify-full", sslrootcert=str(authority.file)) as capture:
            made.run("INSERT INTO t VALUES (1)")
            assert len(await capture.changes(1)) == 1
            used = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            assert made.rows(f"{used} WHERE application_name = 'tailrace'") == [(True,)]
        await refused(made.url, "cannot be encrypted", sslmode="verify-full", sslrootcert=str(stranger.file))
        made.leave()
    finally:
        server.stop()


class Pumping:
    """A source with a log on disk and the pump between them, as a server has them; in the loop of the test."""

    def __init__(self, url, directory, **options):
        self.source = source_of(url, **options)
        self.directory = directory
        self.state = CaptureState()

    async def __aenter__(self):
        self.log = await Log.open(DiskFiles(self.directory), LogOptions(), SystemClock())
        self.pump = Pump(self.source, self.log, self.state)
        self.task = asyncio.create_task(self._run())
        await until(lambda: self.state.open or self.task.done())
        return self

    async def _run(self):
        await self.pump.open()
        await self.pump.run()

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.source.close()
        await self.log.close()

    async def keys(self):
        """Return the keys of all changes in the log, in order."""
        found, after = [], 0
        while (chunk := await self.log.read(after)) is not None:
            found += [
                (op, bytes(key))
                for op, key in zip(
                    chunk.batch.column("op").to_pylist(), chunk.batch.column("key").to_pylist(), strict=True
                )
            ]
            after = chunk.last
        return found


async def until(condition, deadline_s=DEADLINE_S):
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.01)


def more_than(items, count):
    return len(items) > count


async def test_a_server_that_crashes_and_comes_back_loses_and_repeats_nothing(own, tmp_path):
    writer_ends, written = threading.Event(), []

    def write():
        number = 0
        while not writer_ends.is_set():
            number += 1
            try:
                own.server.execute(f"INSERT INTO t VALUES ({number}, 'x')", own.name)
            except Exception:
                time.sleep(0.01)
                continue
            written.append(number)

    async with Pumping(own.url, tmp_path) as pumping:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for count in (20, 40):
                await until(partial(more_than, written, count))
                await asyncio.to_thread(own.server.crash)
                await asyncio.to_thread(own.server.go_on)
            await until(partial(more_than, written, 60))
        finally:
            writer_ends.set()
            await asyncio.to_thread(writer.join)
        rows = {number for (number,) in own.server.execute("SELECT id FROM t", own.name)}
        await until(lambda: pumping.log.head >= len(rows))
        keys = [int(key[1:-1]) for _, key in await pumping.keys()]
    assert keys == sorted(keys)
    assert set(keys) == rows
    assert len(keys) == len(rows)


async def test_a_connection_that_is_half_open_is_noticed_by_its_silence(database, tmp_path):
    proxy = Proxy(database.server.port)
    url = database.url.replace(f":{database.server.port}/", f":{proxy.port}/")
    try:
        async with Pumping(url, tmp_path, silence_timeout="2s", status_interval="0.5s") as pumping:
            database.run("INSERT INTO t VALUES (1, 'a')")
            await until(lambda: pumping.log.head >= 1)
            proxy.silent = True
            database.run("INSERT INTO t VALUES (2, 'b')")
            await until(lambda: "silent" in pumping.state.problem)
            proxy.mend()
            proxy.cut()
            await until(lambda: pumping.log.head >= 2)
            assert [key for _, key in await pumping.keys()] == [b"[1]", b"[2]"]
    finally:
        proxy.close()


async def test_the_server_hears_from_us_while_the_log_takes_nothing(own, tmp_path):
    """The server ends a connection that is silent for wal_sender_timeout, also where we cannot read."""
    own.server.execute("ALTER SYSTEM SET wal_sender_timeout = '2s'")
    own.server.execute("SELECT pg_reload_conf()")
    async with captured(own.url, status_interval="0.5s") as capture:
        held, taken = threading.Event(), []

        def take(group):
            taken.append(group)
            if len(taken) == 2:
                held.wait(DEADLINE_S)

        following = asyncio.create_task(capture.source.hand_over(None, take))
        own.run("INSERT INTO t VALUES (0, 'a')")
        await until(lambda: len(taken) == 2)
        (pid,) = own.rows("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'tailrace_log'")[0]
        own.run("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 30000) n")
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + 5)
        held.set()
        await until(lambda: sum(len(one) for group in taken[1:] if isinstance(group, list) for one in group) > 30_000)
        assert own.rows("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'tailrace_log'") == [(pid,)]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_positions_that_cannot_be_kept_make_a_large_transaction_wait(database, tmp_path):
    missing = tmp_path / "missing"
    async with captured(database.url, spool_directory=str(missing)) as capture:
        database.run("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n")
        with pytest.raises(SourceUnavailableError, match="spool_directory"):
            await capture.changes(1)
        missing.mkdir()
        assert len(await capture.changes(20_000)) == 20_000


def test_setting_up_looking_and_removing_are_safe_to_repeat(database):
    administration = resolve(database.url, {"slot": "tailrace_named"}).administer()
    assert administration.status().capture is None
    administration.set_up()
    administration.set_up()
    status = administration.status()
    assert (status.capture, status.tables) == ("tailrace", ("t",))
    (reader,) = status.readers
    assert (structs.asdict(reader)["name"], reader.reading, reader.alive) == ("tailrace_named", False, True)
    assert findings(database.url)["slot"].severity is Severity.WARNING
    administration.remove_reader("named", force=False)
    assert administration.status().readers == ()
    assert administration.remove(force=False)
    assert not administration.remove(force=False)
    assert database.rows("SELECT FROM pg_publication") == []


async def test_capture_is_not_removed_under_a_reader_unless_forced(database):
    administration = resolve(database.url).administer()
    async with captured(database.url) as capture:
        following = asyncio.create_task(capture.changes(1))
        await until(lambda: administration.status().readers[0].reading)
        with pytest.raises(SourceStateError, match="stop it first"):
            administration.remove(force=False)
        assert await asyncio.to_thread(administration.remove, force=True)
        with pytest.raises((SourceUnavailableError, SourceStateError)):
            await following


def test_publications_of_others_are_not_removed(database):
    database.run("CREATE PUBLICATION tailrace FOR ALL TABLES")
    assert not resolve(database.url).administer().remove(force=True)
    assert database.rows("SELECT pubname FROM pg_publication") == [("tailrace",)]


async def test_what_the_server_keeps_is_measured_and_a_slot_that_stands_still_beyond_its_budget_is_dropped(
    database, monkeypatch
):
    monkeypatch.setattr(slot_watch, "WATCH_INTERVAL_S", 0.05)
    metrics = Metrics()
    options = {"slot": "tailrace_bounded", "wal_keep_max": "1MB", "wal_keep_action": "drop_slot"}
    tools = SourceTools(SystemClock(), metrics)
    source = resolve(database.url, options).open("app", Reader("log"), tools).capture
    await source.open(MemoryRegistry())

    def gauge(name):
        return metrics.registry.get_sample_value(f"tailrace_postgresql_{name}", {"source": "app"})

    async def never_confirmed():
        async with aclosing(source.commits(None)) as commits:
            async for _ in commits:
                pass

    following = asyncio.create_task(never_confirmed())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while gauge("wal_room_bytes") is None:
                await asyncio.sleep(0.02)
            assert 0 <= gauge("slot_lag_bytes") <= gauge("wal_kept_bytes")
            database.run("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 8000) n")
            with pytest.raises(SourceError):
                await following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    slots = "SELECT FROM pg_replication_slots WHERE slot_name = 'tailrace_bounded'"
    await asyncio.to_thread(wait_until, lambda: database.rows(slots) == [], "the slot to be gone")
    with pytest.raises(SourceStateError, match="wal_keep_max"):
        await source.open(MemoryRegistry())
    assert database.rows(slots) == []
    await source.close()


async def test_slots_are_failover_slots_where_the_server_has_them(database):
    if database.version < 17:
        async with captured(database.url, slot="tailrace_kept"):
            assert database.rows("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'tailrace_kept'") == [
                (1,)
            ]
        return
    for name, asked in (("tailrace_kept", "true"), ("tailrace_plain", "false")):
        async with captured(database.url, slot=name, failover=asked):
            found = database.rows(f"SELECT failover FROM pg_replication_slots WHERE slot_name = '{name}'")
            assert found == [(asked == "true",)]
