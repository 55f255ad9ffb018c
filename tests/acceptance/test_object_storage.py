"""The page about object storage does what it says: its commands and programs are run, against an S3 server."""

import sqlite3

import pytest

from object_server import KEY, ObjectServer
from pages import Page
from serving import Server, run, wait_until

pytest.importorskip("pyspark")

ROWS = 300


@pytest.fixture
def place(tmp_path):
    """A captured table, an S3 server with the bucket of the page, and the environment that it asks for."""
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    database.executemany("INSERT INTO orders VALUES (?, ?)", [(number, f"item {number}") for number in range(ROWS)])
    database.commit()
    database.close()
    server = Server(tmp_path / "data", "--source", f"shop=sqlite:///{tmp_path / 'shop.db'}").wait_ready()
    wait_until(lambda: server.subscribe("orders", "shop"), "the table known")
    objects = ObjectServer().start()
    objects.client().create_bucket(Bucket="my-lake")
    yield {
        "AWS_ACCESS_KEY_ID": KEY["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": KEY["secret_access_key"],
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": objects.endpoint,
        "LAKE_HOST": objects.endpoint.removeprefix("http://"),
        "LAKE_KEY": KEY["access_key_id"],
        "LAKE_SECRET": KEY["secret_access_key"],
        "TAILRACE_SERVER": server.url,
        "TAILRACE_DATA_DIR": str(tmp_path / "work"),
    }
    objects.stop()
    server.stop()


@pytest.mark.timeout(900)
def test_the_page_about_object_storage_does_what_it_says(place, tmp_path):
    page = Page("how-to/object-storage.md", tmp_path, place)
    commands = page.commands()
    assert len(commands) == 10
    for command in [*commands, "tailrace pipeline run other --once", "tailrace pipeline verify other"]:
        assert KEY["secret_access_key"] not in page.run(command)
    printed = list(map(page.run_program, page.blocks("python")))
    assert printed[0] == f"{ROWS}\n"
    assert printed[1].startswith("orders ['batch=00000000000000000000/table=orders/part-00000-")


def test_a_checkpoint_in_object_storage_is_refused():
    ran = run("pipeline", "ls", "--data-dir", "s3://my-lake/work")
    assert ran.returncode == 2, ran.stderr
    assert "is a directory of this machine, not a URL" in ran.stderr
