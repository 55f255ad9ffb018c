"""Facts about how a server tells of pipelines."""

import json

import apsw
import httpx
import pytest
from click.testing import CliRunner

from changing import insert
from running import Running
from serving import wait_until
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.cli.pipeline import pipeline
from tailrace.clock import SystemClock
from tailrace.meta.dead_letter import LetterDraft, LetterState
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.pipeline import Copying, Definition, Figures, SinkState
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline.store import PipelineStore

AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "ann": PrincipalConfig(tokens=("ann-key",), namespaces=("shop",), role="viewer"),
        "tim": PrincipalConfig(tokens=("tim-key",), tables=("shop.orders",)),
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"shop.orders": "id = 1"}),
        "far": PrincipalConfig(tokens=("far-key",), namespaces=("acme",)),
        "nil": PrincipalConfig(tokens=("nil-key",), capabilities=("nothing",)),
    },
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A shop with a pipeline that is under way, one of two tables, and one of another server's source."""
    folder = tmp_path_factory.mktemp("pipelines")
    database = apsw.Connection(str(folder / "shop.db"))
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE TABLE lines (id INTEGER PRIMARY KEY)")
    server = Running(folder / "data", AUTH, shop=f"sqlite:///{folder / 'shop.db'}")
    assert get(server, "").json() == {"pipelines": []}
    assert not (folder / "data" / "pipeline").exists()
    (folder / "data" / "pipeline").mkdir()
    store = PipelineStore.open(f"sqlite:///{folder / 'data' / 'metadata.db'}", SystemClock())
    sink = "mysql://me:s3cret@db/copy"
    for name, source, tables in (
        ("copy", "shop", ("orders",)),
        ("pair", "shop", ("orders", "lines")),
        ("elsewhere", "acme", ("orders",)),
    ):
        store.create(Definition(name=name, source=source, tables=tables, sink=sink))
    lease = store.acquire("copy", "worker-1", 1000)
    plan = {"orders": [KeyInterval(None, "[9]"), KeyInterval("[9]", None)]}
    store.register(lease, plan, source="shop", version=0, sink_state=SinkState.EMPTY, figures=Figures(rows=20))
    store.subscribed(lease, None)
    copying = Copying(0, "orders", {1: KeyInterval(None, "[9]")}, (1,))
    store.begin_copy(lease, copying)
    store.finish_copy(lease, copying, version=0, rows={1: 9})
    seen = Figures(rows=20, problem="the sink is away", rows_per_s=4.5, batches=2, batch_changes=7, batch_s=0.5)
    store.note(lease, seen)
    letters = DeadLetterStore.open(store.url, SystemClock())
    for sink in ("pipeline/copy", "copy"):
        letters.park(sink, [LetterDraft(f"shop/{sink}", insert({"id": 1}), False, LetterState.REFUSED, "no")], 10)
    letters.close()
    database.execute("INSERT INTO orders VALUES (1), (2), (3)")
    wait_until(lambda: get(server, "/copy").json()["lag"] == 3, "changes captured")
    yield server
    store.close()
    server.stop()
    database.close()


def get(server, path, token="master"):
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.url}/api/v1/pipelines{path}", headers=headers, timeout=20)


def test_a_pipeline_is_told_of_with_its_lag_and_without_its_password(world):
    answer = get(world, "/copy")
    assert "s3cret" not in answer.text
    told = answer.json()
    assert (told["state"], told["stage"], told["owner"]) == ("running", "snapshot", "worker-1")
    assert (told["rows"], told["rows_copied"], told["offset"], told["head"], told["lag"]) == (20, 9, 0, 3, 3)
    assert 0 < told["lag_s"] < 1000
    assert (told["rows_per_s"], told["batches"], told["batch_changes"], told["batch_s"]) == (4.5, 2, 7, 0.5)
    assert (told["problem"], told["letters"]) == ("the sink is away", 1)
    assert told["sink"] == "mysql://me:***@db/copy"
    assert [one["last_key"] for one in told["ranges"]] == ["[9]", None]


def test_pipelines_of_the_servers_own_sources_are_listed(world):
    assert [one["name"] for one in get(world, "").json()["pipelines"]] == ["copy", "pair"]
    assert get(world, "/pair").json()["state"] == "new"
    answer = get(world, "/elsewhere")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("token", "seen"),
    [
        ("master", ["copy", "pair"]),
        ("ann-key", ["copy", "pair"]),
        ("tim-key", ["copy"]),
        ("mia-key", []),
        ("far-key", []),
    ],
)
def test_a_pipeline_is_seen_by_who_sees_its_tables_whole(world, token, seen):
    assert [one["name"] for one in get(world, "", token).json()["pipelines"]] == seen
    for name in ("copy", "pair"):
        assert get(world, f"/{name}", token).status_code == (200 if name in seen else 404)


def test_who_may_not_read_is_refused(world):
    assert get(world, "", "nil-key").status_code == 403
    assert get(world, "/copy", "nil-key").status_code == 403
    assert httpx.get(f"{world.url}/api/v1/pipelines", timeout=20).status_code == 401


def test_the_metrics_show_them(world):
    headers = {"Authorization": "Bearer master"}
    lines = httpx.get(f"{world.url}/metrics", headers=headers, timeout=20).text.splitlines()
    shown = dict(line.rsplit(" ", 1) for line in lines if line.startswith("tailrace_pipeline_"))
    expected = {"stage": 1, "offset": 0, "lag_changes": 3, "rows_copied": 9, "rows_planned": 20, "problem": 1}
    expected |= {"rows_per_second": 4.5, "batches": 2, "batch_changes": 7, "batch_seconds": 0.5}
    for word, value in {**expected, "changes_per_second": 0, "owned": 1, "paused": 0}.items():
        assert float(shown[f'tailrace_pipeline_{word}{{pipeline="copy"}}']) == value, word
    assert float(shown['tailrace_pipeline_lag_seconds{pipeline="copy"}']) > 0
    assert float(shown['tailrace_pipeline_owned{pipeline="pair"}']) == 0
    assert not any("elsewhere" in name for name in shown)


def test_metadata_that_cannot_be_read_now_are_told_so(world):
    store = PipelineStore.open(f"sqlite:///{world.config.data_dir}/metadata.db", SystemClock())
    rename(store, "subscribe", "elsewhere")
    answer = get(world, "")
    rename(store, "elsewhere", "subscribe")
    store.close()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "internal")
    assert get(world, "").status_code == 200


def rename(store, old, new):
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")


@pytest.mark.parametrize(
    ("source", "table", "missing"),
    [("shop", "orders", None), ("shop", "ordrs", "table shop.ordrs not found"), ("shp", "orders", "shp")],
)
def test_who_makes_a_pipeline_of_what_is_not_there_is_warned(world, tmp_path, source, table, missing):
    words = ["create", "new", "--source", source, "--table", table, "--sink", "console:", "--server", world.url]
    made = CliRunner().invoke(pipeline, [*words, "--token", "master", "--data-dir", str(tmp_path), "--json"])
    assert (made.exit_code, json.loads(made.stdout)["name"]) == (0, "new")
    if missing is None:
        assert made.stderr == ""
    else:
        assert made.stderr.startswith("warning: ")
        assert missing in made.stderr
