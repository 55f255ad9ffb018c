"""A pipeline whose server speaks TLS and asks for a token: the driver and Spark's Python processes read from it."""

import json
import sqlite3

import apsw
import pytest

from certificates import Authority
from running import Running
from serving import run, wait_until
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.client.bulk import BulkClient
from tailrace.delivery.tls import TlsConfig

pytest.importorskip("pyspark")

TOKEN = "lake-key-7f3a"
RUN_S = 240.0


@pytest.fixture
def shop(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    database = apsw.Connection(str(tmp_path / "shop.db"))
    database.set_busy_timeout(60_000)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, qty INTEGER)")
    database.execute("INSERT INTO orders VALUES (1, 10), (2, 20)")
    cert, key = map(str, authority.sign("server"))
    auth = AuthConfig(enabled=True, principals={"lake": PrincipalConfig(tokens=(TOKEN,), tables=("shop.orders",))})
    server = Running(tmp_path / "data", auth, TlsConfig(cert, key), shop=f"sqlite:///{tmp_path / 'shop.db'}")
    server.database = database
    client = BulkClient(server.url, TOKEN)
    wait_until(lambda: client.info("shop").tables, "the table known")
    client.close()
    yield server
    server.stop()
    database.close()


@pytest.mark.timeout(400)
def test_a_pipeline_reads_over_tls_with_its_token_and_never_shows_it(shop, tmp_path):
    def pipeline(verb, *options, token=TOKEN):
        place = ["--json", "--data-dir", tmp_path / "work"]
        ran = run("pipeline", verb, "p", *options, *place, env={"TAILRACE_TOKEN": token}, timeout=RUN_S)
        assert TOKEN not in ran.stdout + ran.stderr
        return ran

    assert shop.url.startswith("https://")
    sink = ["--sink", f"sqlite:///{tmp_path / 'copy.db'}"]
    made = pipeline("create", "--source", "shop", "--table", "orders", *sink, "--server", shop.url)
    assert made.returncode == 0, made.stderr
    refused = pipeline("run", "--once", token="wrong")
    assert (refused.returncode, "token" in refused.stderr.lower()) == (1, True), refused.stderr
    assert pipeline("run", "--once").returncode == 0
    for statement in ("BEGIN IMMEDIATE", "UPDATE orders SET qty = 21 WHERE id = 2", "COMMIT"):
        shop.database.execute(statement)
    followed = pipeline("run", "--once", "--master", "local[2]")
    assert followed.returncode == 0, followed.stderr
    last = json.loads(followed.stdout.splitlines()[-1])
    assert (last["event"], last["lag"], last["problem"]) == ("ended", 0, "")
    copy = sqlite3.connect(tmp_path / "copy.db")
    assert copy.execute("SELECT id, qty FROM orders ORDER BY id").fetchall() == [(1, 10), (2, 21)]
    copy.close()
