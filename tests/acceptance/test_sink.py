"""Sinks without Spark as users have them: inside a server, or as a process that is killed and goes on."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from urllib.parse import quote

import pytest
import redis

from brokers import PASSWORD, Redis
from databases import free_port
from serving import DEADLINE_S, run, wait_until


@pytest.fixture
def broker(brokers):
    return brokers.get(Redis)


@pytest.fixture
def streams(broker):
    with redis.Redis(port=broker.port, password=PASSWORD) as client:
        client.flushall()
        yield client


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, qty INTEGER)")
        yield database


def told(streams, stream):
    """Return offset and value of each message."""
    return [(int(fields[b"tailrace-offset"]), json.loads(fields[b"value"])) for _, fields in streams.xrange(stream)]


def offsets(streams, stream):
    return [offset for offset, _ in told(streams, stream)]


def sink(*arguments):
    done = run("sink", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_server_feeds_a_sink_parks_what_fails_and_goes_on_after_a_kill(tmp_path, serve, shop, streams, broker):
    config = tmp_path / "tailrace.toml"
    text = (
        f'[sources.shop]\nurl = "sqlite:///{tmp_path / "shop.db"}"\n'
        f'[sinks.out]\nurl = "redis://:${{BROKER}}@127.0.0.1:{broker.port}/0?stream=in.{{table}}"\nsource = "shop"\n'
        'tables = ["orders"]\nenvelope = "row"\nproject = ["*", "share = 100 / row.qty"]\nstart = "earliest"\n'
    )
    config.write_text(text)
    data = tmp_path / "data"
    env = {"BROKER": PASSWORD}
    server = serve(config, env=env)
    server.subscribe("orders", "shop")
    shop.execute("INSERT INTO orders VALUES (1, 10), (2, 0), (3, 5)")
    shop.execute("UPDATE orders SET qty = 50 WHERE id = 2")
    shop.execute("UPDATE orders SET qty = 20 WHERE id = 1")
    wait_until(lambda: [one["share"] for _, one in told(streams, "in.orders")] == [10, 20, 5], "what fits")
    letters = wait_until(lambda: len(found := sink("dlq", "ls", "out", "--data-dir", data)) == 2 and found, "letters")
    assert [(one["key"], one["offset"], one["state"]) for one in letters] == [
        ("[2]", 2, "refused"),
        ("[2]", 4, "behind"),
    ]
    server.kill()
    config.write_text(text.replace("100 / row.qty", "row.qty == 0 ? 0 : 100 / row.qty"))
    server = serve(config, env=env)
    shop.execute("UPDATE orders SET qty = 25 WHERE id = 3")
    wait_until(lambda: offsets(streams, "in.orders") == [1, 3, 5, 6], "the rest, once")
    assert sink("dlq", "retry", "out", letters[1]["id"], "--data-dir", data)["retried"] == 2
    wait_until(lambda: offsets(streams, "in.orders") == [1, 3, 5, 6, 2, 4], "the letters, in order")
    assert [row["share"] for _, row in told(streams, "in.orders")[4:]] == [0, 2]
    wait_until(lambda: sink("status", "out", "--data-dir", data)["letters"] == 0, "no letters")
    shown = sink("status", "out", "--data-dir", data)
    assert (shown["state"], shown["offset"]) == ("running", 6)
    assert PASSWORD not in json.dumps(shown)
    lines = {'tailrace_sink_letters{sink="out"} 0.0', 'tailrace_sink_offset{sink="out"} 6.0'}
    wait_until(lambda: lines <= set(server.get("/metrics").text.splitlines()), "metrics")


def test_a_server_does_not_start_with_a_sink_whose_secret_is_missing(tmp_path, shop):
    config = tmp_path / "tailrace.toml"
    config.write_text('[sinks.out]\nurl = "redis://:${NO_SUCH_SECRET}@127.0.0.1:1/0"\n')
    done = run("serve", config, "--data-dir", tmp_path / "data", "--http-port", 0, "--grpc-port", 0)
    assert done.returncode == 2
    assert "sink out: NO_SUCH_SECRET is missing" in done.stderr
    assert "secrets_file" in done.stderr


def test_a_sink_that_waits_is_told_by_metrics_and_by_status_with_where_it_goes_now(tmp_path, serve, shop):
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[sources.shop]\nurl = "sqlite:///{tmp_path / "shop.db"}"\n'
        '[sinks.out]\nurl = "redis://127.0.0.1:1/0"\nsource = "shop"\n'
    )
    server = serve(config)
    wait_until(lambda: 'tailrace_sink_waiting{sink="out"} 1.0' in server.get("/metrics").text, "waiting")
    status = lambda: sink("status", "out", "--data-dir", tmp_path / "data")  # noqa: E731
    shown = wait_until(lambda: (found := status())["state"] == "waiting" and found, "its status")
    assert shown["url"] == "redis://127.0.0.1:1/0"
    assert "Redis at 127.0.0.1:1/0 cannot be reached" in shown["problem"]
    said = (tmp_path / "data.err").read_text().splitlines()
    assert '"sink":"out"' in next(line for line in said if "sink waits" in line)


def test_a_server_does_not_start_with_a_sink_of_a_source_that_is_not_there(tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text('[sinks.out]\nurl = "redis://127.0.0.1:1/0"\nsource = "nope"\n')
    done = run("serve", config, "--data-dir", tmp_path / "data", "--http-port", 0, "--grpc-port", 0)
    assert done.returncode == 2
    assert "sink out: source 'nope' not found; there is default" in done.stderr


@contextlib.contextmanager
def running_sink(tmp_path, server, broker, *options, told=("--json",)):
    """`tailrace sink run` as a process, killed when the block ends."""
    url = f"redis://:${{BROKER}}@127.0.0.1:{broker.port}/0?stream=out.{{table}}"
    command = [sys.executable, "-m", "tailrace", "sink", "run", "out", "--url", url, "--source", "shop", *told]
    command += ["--server", server.url, "--data-dir", str(tmp_path / "work"), *options]
    with (tmp_path / "sink.err").open("ab") as errors:
        env = {**os.environ, "BROKER": PASSWORD}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


def test_a_process_feeds_a_sink_and_goes_on_after_kills_of_either_side(tmp_path, serve, shop, streams, broker):
    listening = ("--source", f"shop=sqlite:///{tmp_path / 'shop.db'}", "--http-port", free_port())
    server = serve(*listening)
    server.subscribe("orders", "shop")
    count = 0

    def write(rows):
        nonlocal count
        for _ in range(rows):
            count += 1
            shop.execute("INSERT INTO orders VALUES (?, 1)", (count,))

    def arrive():
        wait_until(lambda: set(offsets(streams, "out.orders")) == set(range(1, count + 1)), "all arrived")

    write(5)
    for _ in range(3):
        with running_sink(tmp_path, server, broker, "--table", "orders", "--start", "earliest"):
            arrive()
            write(20)
    write(5)
    with running_sink(tmp_path, server, broker, "--table", "orders") as process:
        arrive()
        server.kill()
        serve(*listening)
        write(5)
        arrive()
        process.send_signal(signal.SIGTERM)
        last = json.loads(process.stdout.read())
        assert process.wait(DEADLINE_S) == 0
    found = offsets(streams, "out.orders")
    assert found == sorted(found)
    assert len(set(found)) == len(found), "a target that keeps marks has each message once"
    assert (last["state"], last["offset"]) == ("stopped", count)
    (listed,) = sink("ls", "--data-dir", tmp_path / "work")
    assert (listed["name"], listed["state"], listed["offset"]) == ("out", "stopped", count)


def test_a_sink_rests_while_it_is_paused_and_may_move_into_the_server_with_more_tables(
    tmp_path, serve, shop, streams, broker
):
    shop.execute("CREATE TABLE payments (id INTEGER PRIMARY KEY)")
    data, config = tmp_path / "data", tmp_path / "tailrace.toml"
    config.write_text(f'[sources.shop]\nurl = "sqlite:///{tmp_path / "shop.db"}"\n')
    server = serve(config)
    server.subscribe("payments", "shop")
    shop.execute("INSERT INTO orders VALUES (1, 1)")
    options = ("--table", "orders", "--start", "earliest", "--data-dir", str(data))

    def state():
        return sink("status", "out", "--data-dir", data)["state"]

    with running_sink(tmp_path, server, broker, *options) as process:
        wait_until(lambda: offsets(streams, "out.orders") == [1], "the first")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    subscription = {"sub_id": sink("status", "out", "--data-dir", data)["subscription"]}
    server.call("cdc.pause", subscription)
    shop.execute("INSERT INTO orders VALUES (2, 1)")
    assert state() == "stopped"
    with running_sink(tmp_path, server, broker, *options) as process:
        wait_until(lambda: state() == "running", "running")
        assert offsets(streams, "out.orders") == [1]
        server.call("cdc.resume", subscription)
        wait_until(lambda: offsets(streams, "out.orders") == [1, 2], "the second")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    server.stop()
    url = f"redis://:${{BROKER}}@127.0.0.1:{broker.port}/0?stream=out.{{table}}"
    with config.open("a") as more:
        more.write(f'[sinks.out]\nurl = "{url}"\nsource = "shop"\ntables = ["orders", "payments"]\n')
    serve(config, env={"BROKER": PASSWORD})
    shop.execute("INSERT INTO payments VALUES (1)")
    shop.execute("INSERT INTO orders VALUES (3, 1)")
    wait_until(lambda: offsets(streams, "out.payments") == [3], "the table that is new")
    wait_until(lambda: offsets(streams, "out.orders") == [1, 2, 4], "the table that was there")


def test_a_first_run_that_fails_leaves_nothing_and_a_later_one_says_where_it_goes_on(
    tmp_path, serve, shop, streams, broker
):
    server = serve("--source", f"shop=sqlite:///{tmp_path / 'shop.db'}")
    server.subscribe("orders", "shop")
    shop.execute("INSERT INTO orders VALUES (1, 1), (2, 1)")
    url = f"redis://:{{}}@127.0.0.1:{broker.port}/0?stream=out.{{{{table}}}}"
    work = ("--source", "shop", "--server", server.url, "--data-dir", tmp_path / "work")
    refused = run("sink", "run", "out", "--url", url.format("wrong"), *work)
    assert (refused.returncode, "does not accept" in refused.stderr) == (1, True)
    beyond = run("sink", "run", "out", "--url", url.format(quote(PASSWORD, safe="")).replace("/0?", "/999?"), *work)
    assert (beyond.returncode, "no database 999: DB index" in beyond.stderr) == (1, True)
    nowhere = run("sink", "run", "out", "--url", url.format("wrong"), "--source", "nope", *work[2:])
    assert (nowhere.returncode, "there is no source 'nope'" in nowhere.stderr) == (1, True)
    unfit = run("sink", "run", "out", "--url", url.format(quote(PASSWORD, safe="")), "--filter", "nosuch > 1", *work)
    assert (unfit.returncode, "nosuch" in unfit.stderr) == (2, True)
    assert sink("ls", "--data-dir", tmp_path / "work") == []
    shop.execute("INSERT INTO orders VALUES (3, 1)")
    for count in (3, 4):
        with running_sink(tmp_path, server, broker, "--start", "earliest"):
            wait_until(lambda count=count: len(offsets(streams, "out.orders")) == count, "all")
            shop.execute("INSERT INTO orders (qty) VALUES (1)")
    assert (tmp_path / "sink.err").read_text().count("continues from its cursor") == 1
    streams.delete("out.orders")
    early = run("sink", "rm", "out", "--server", server.url, "--data-dir", tmp_path / "work")
    assert (early.returncode, "stop it first" in early.stderr) == (1, True)
    with running_sink(tmp_path, server, broker, told=()) as process:
        wait_until(lambda: "connected, shop to redis://" in (tmp_path / "sink.err").read_text(), "connected")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert PASSWORD not in (tmp_path / "sink.err").read_text()
    streams.delete("out.orders")
    assert sink("rm", "out", "--server", server.url, "--data-dir", tmp_path / "work")["closed"]
    with running_sink(tmp_path, server, broker, "--start", "earliest"):
        wait_until(lambda: offsets(streams, "out.orders") == [1, 2, 3, 4, 5], "all of them anew")


def test_a_sink_that_is_not_there_and_one_without_a_url_are_told_apart(tmp_path):
    unknown = run("sink", "status", "out", "--data-dir", tmp_path / "work")
    assert (unknown.returncode, "there is no sink 'out'" in unknown.stderr) == (1, True)
    letters = run("sink", "dlq", "ls", "out", "--data-dir", tmp_path / "work")
    assert (letters.returncode, "there is no sink 'out'" in letters.stderr) == (1, True)
    nowhere = run("sink", "run", "out", "--data-dir", tmp_path / "work")
    assert (nowhere.returncode, "--url" in nowhere.stderr) == (2, True)
    config = tmp_path / "tailrace.toml"
    config.write_text('[sinks.out]\nurl = "redis://127.0.0.1:1/0"\n')
    mixed = run("sink", "run", "out", "--config", config, "--data-dir", tmp_path / "work", "--filter", "id > 1")
    assert (mixed.returncode, "leave out filter" in mixed.stderr) == (2, True)


def test_what_comes_while_the_target_is_away_before_the_first_run_is_not_missed(tmp_path, serve, shop, streams, broker):
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[sources.shop]\nurl = "sqlite:///{tmp_path / "shop.db"}"\n'
        f'[sinks.out]\nurl = "redis://:${{BROKER}}@127.0.0.1:{broker.port}/0?stream=in.{{table}}"\nsource = "shop"\n'
    )
    broker.kill()
    serve(config, env={"BROKER": PASSWORD})
    state = lambda: [one["state"] for one in sink("ls", "--data-dir", tmp_path / "data")]  # noqa: E731
    wait_until(lambda: state() == ["waiting"], "it waits for its target")
    shop.execute("INSERT INTO orders VALUES (1, 10), (2, 20)")
    broker.start()
    wait_until(lambda: offsets(streams, "in.orders") == [1, 2], "all since it first looked")


def test_what_comes_before_the_target_was_ever_reached_is_not_missed_though_the_server_was_killed(
    tmp_path, serve, shop, streams, broker
):
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[sources.shop]\nurl = "sqlite:///{tmp_path / "shop.db"}"\n'
        f'[sinks.out]\nurl = "redis://:${{BROKER}}@127.0.0.1:{broker.port}/0?stream=in.{{table}}"\nsource = "shop"\n'
    )
    broker.kill()
    server = serve(config, env={"BROKER": PASSWORD})
    sub = server.subscribe("orders", "shop")["sub_id"]
    state = lambda: [one["state"] for one in sink("ls", "--data-dir", tmp_path / "data")]  # noqa: E731
    wait_until(lambda: state() == ["waiting"], "it waits for its target")
    shop.execute("INSERT INTO orders VALUES (1, 10), (2, 20)")
    wait_until(lambda: server.call("cdc.poll", {"sub_id": sub, "from_offset": 0, "limit": 9})["events"], "captured")
    server.kill()
    serve(config, env={"BROKER": PASSWORD})
    shop.execute("INSERT INTO orders VALUES (3, 30)")
    broker.start()
    wait_until(lambda: offsets(streams, "in.orders") == [1, 2, 3], "all since it first looked")


def test_of_two_processes_that_send_for_one_sink_the_older_ends(tmp_path, serve, shop, streams, broker):
    server = serve("--source", f"shop=sqlite:///{tmp_path / 'shop.db'}")
    server.subscribe("orders", "shop")
    state = lambda: [one["state"] for one in sink("ls", "--data-dir", tmp_path / "work")]  # noqa: E731
    with running_sink(tmp_path, server, broker) as older:
        wait_until(lambda: state() == ["running"], "running")
        with running_sink(tmp_path, server, broker):
            assert older.wait(2 * DEADLINE_S) == 1
            assert "another process has taken over the sink 'out'" in (tmp_path / "sink.err").read_text()
            shop.execute("INSERT INTO orders VALUES (1, 10)")
            wait_until(lambda: offsets(streams, "out.orders") == [1], "sent by the other")
            assert state() == ["running"]


def test_a_sink_whose_subscription_was_closed_says_so_and_one_of_another_source_leaves_none_behind(
    tmp_path, serve, shop, streams, broker
):
    shutil.copy(tmp_path / "shop.db", tmp_path / "mill.db")
    sources = [("--source", f"{name}=sqlite:///{tmp_path / name}.db") for name in ("shop", "mill")]
    server = serve(*(part for source in sources for part in source))
    subscriptions = lambda: {one["sub_id"] for one in server.call("cdc.list", {})["subscriptions"]}  # noqa: E731
    state = lambda: [one["state"] for one in sink("ls", "--data-dir", tmp_path / "work")]  # noqa: E731
    kept = []
    for source in ("shop", "mill"):
        with running_sink(tmp_path, server, broker, "--source", source) as process:
            wait_until(lambda: state() == ["running"], "running")
            kept.append(sink("status", "out", "--data-dir", tmp_path / "work")["subscription"])
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    assert subscriptions() == {kept[1]}
    server.call("cdc.close", {"sub_id": kept[1]})
    with running_sink(tmp_path, server, broker, "--source", "mill") as process:
        assert process.wait(DEADLINE_S) == 1
    assert "the subscription of the sink 'out' was closed: remove the sink" in (tmp_path / "sink.err").read_text()
