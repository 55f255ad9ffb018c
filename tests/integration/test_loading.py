"""Facts about which libraries a server loads, and when: memory and the time to start are mostly that."""

import json
import sqlite3
import subprocess
import sys

import pytest

LATE = ("cel.cel", "sqlglot", "jwt", "cryptography", "httpx", "numpy", "pandas", "duckdb", "pyspark")
"""What a server loads when somebody asks for it, or never. Each of the first five is 3 to 30 MB."""

SCRIPT = """
import asyncio, json, sys, threading, urllib.request
from tailrace.cli.process import keep_small

data_dir, url, late, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
loaders = {}

def hook(event, arguments):
    if event == "import" and arguments[0] in late:
        loaders.setdefault(arguments[0], threading.current_thread() is threading.main_thread())

sys.addaudithook(hook)
keep_small()
import tailrace.cli.serve
from tailrace.app import Application
from tailrace.config import Config, SourceConfig

def post(address, call):
    body = json.dumps({"skeinql": "1.0", "id": 1, **call}).encode()
    request = urllib.request.Request(address + "/api/v1/rpc", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["ok"]

async def main():
    config = Config(data_dir=data_dir, http_port=0, grpc_port=0, sources={"app": SourceConfig(url)})
    async with Application(config) as application:
        stop = asyncio.Event()
        running = asyncio.create_task(application.run(stop))
        while (await asyncio.to_thread(ready, application.addresses.http)) != 200:
            pass
        started = [name for name in late if name in sys.modules]
        loaders.clear()  # what Arrow looked for and did without
        for call in calls:
            await asyncio.to_thread(post, application.addresses.http, call)
        stop.set()
        await running
    loaded = {name: on_loop for name, on_loop in loaders.items() if name in sys.modules}
    print(json.dumps([started, loaded]))

def ready(address):
    try:
        return urllib.request.urlopen(address + "/ready", timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code

asyncio.run(main())
"""


def loaded_by(directory, *calls):
    """Return what a server has loaded when it is ready, and what calls make it load: whether on the event loop."""
    database = sqlite3.connect(directory / "app.db")
    with database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    database.close()
    arguments = [str(directory / "data"), f"sqlite:///{directory}/app.db", json.dumps(LATE), json.dumps(calls)]
    command = [sys.executable, "-c", SCRIPT, *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=120)
    return json.loads(ran.stdout)


def test_a_server_that_is_ready_has_loaded_nothing_that_only_some_calls_need(tmp_path):
    assert loaded_by(tmp_path) == [[], {}]


TREE = {"body": {"select": {"projection": [{"expr": {"col": "*"}}], "from": [{"table": "users"}]}}}


@pytest.mark.parametrize(
    ("method", "params", "library"),
    [
        ("cdc.subscribe_table", {"db": "app", "table": "users", "cel": "row.id == 1"}, "cel.cel"),
        ("query.prepare", {"query": "SELECT name FROM users"}, "sqlglot"),
        ("query.prepare", {"query": TREE}, "sqlglot"),
    ],
    ids=["cel", "query", "tree"],
)
def test_what_a_call_needs_is_loaded_by_a_thread_and_not_on_the_event_loop(tmp_path, method, params, library):
    assert loaded_by(tmp_path, {"method": method, "params": params}) == [[], {library: False}]
