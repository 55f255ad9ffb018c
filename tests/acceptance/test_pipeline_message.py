"""A pipeline into a broker: the rows of a table, then its changes, with what is refused parked."""

import json
import sqlite3

import pytest
import redis

from brokers import PASSWORD, Redis
from serving import run

pytest.importorskip("pyspark")

START_S = 200.0
"""Spark takes long to start on a busy machine."""


@pytest.fixture(scope="module")
def broker(brokers):
    return brokers.get(Redis)


def rows_of(connection, stream):
    return [json.loads(fields[b"value"]) for _, fields in connection.xrange(stream)]


@pytest.mark.timeout(600)
def test_rows_and_changes_arrive_what_fails_is_parked_and_sent_when_it_is_mended(tmp_path, serve, broker):
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, qty INTEGER, note TEXT)")
    database.executemany("INSERT INTO orders VALUES (?, ?, '')", [(key, key) for key in range(1, 21)])
    server = serve("--source", f"shop=sqlite:///{tmp_path / 'shop.db'}")
    server.subscribe("orders", "shop")
    secrets = tmp_path / "secrets"
    secrets.write_text(f"BROKER_PASSWORD={PASSWORD}\n")
    place = ("--data-dir", tmp_path / "work", "--json")

    def pipeline(*arguments, timeout=START_S):
        done = run("pipeline", *arguments, *place, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    pipeline(
        *("create", "out", "--source", "shop", "--table", "orders", "--server", server.url),
        *("--sink", f"redis://:${{BROKER_PASSWORD}}@127.0.0.1:{broker.port}/0?stream=pipeline.{{table}}"),
        *("--project", "*", "--project", "share = 100 / row.qty", "--envelope", "row"),
    )
    stream = redis.Redis(port=broker.port, password=PASSWORD)
    stream.delete("pipeline.orders")
    refused = run("pipeline", "run", "out", "--once", *place, env={"BROKER_PASSWORD": "wrong"}, timeout=START_S)
    assert refused.returncode == 1
    assert "wrong" not in refused.stderr + refused.stdout
    run_once = ("run", "out", "--once", "--secrets", secrets)
    pipeline(*run_once)
    assert [row["id"] for row in rows_of(stream, "pipeline.orders")] == list(range(1, 21))

    database.execute("UPDATE orders SET qty = 30, note = ? WHERE id = 3", ("x" * 3_000_000,))
    database.execute("UPDATE orders SET qty = 50, note = '' WHERE id = 3")
    database.execute("UPDATE orders SET qty = 40 WHERE id = 4")
    *_, ended = pipeline(*run_once)
    assert ended["letters"] == 2
    assert [(row["id"], row["share"]) for row in rows_of(stream, "pipeline.orders")[20:]] == [(4, 2)]
    (letters,) = pipeline("dlq", "ls", "out")
    assert [(one["key"], one["state"]) for one in letters] == [("[3]", "refused"), ("[3]", "behind")]
    assert "longer" in letters[0]["reason"]
    (shown,) = pipeline("dlq", "show", "out", letters[1]["id"])
    assert (shown["op"], shown["after"]) == ("update", {"id": 3, "qty": 50, "note": ""})

    stream.config_set("proto-max-bulk-len", "8mb")
    assert pipeline("dlq", "retry", "out", letters[0]["id"]) == [{"sink": "out", "retried": 2}]
    database.execute("UPDATE orders SET qty = 25 WHERE id = 5")
    database.close()
    *_, ended = pipeline(*run_once)
    stream.config_set("proto-max-bulk-len", "2mb")
    assert ended["letters"] == 0
    assert [(row["id"], row["share"]) for row in rows_of(stream, "pipeline.orders")[21:]] == [(3, 3), (3, 2), (5, 4)], (
        "letters come before what is new"
    )
    verified = run("pipeline", "verify", "out", *place, timeout=START_S)
    assert (verified.returncode, "nothing that can be verified" in verified.stderr) == (1, True)
