"""Facts about a server that is called with what its own OpenAPI document allows, and with what it does not.

The document comes from the server. Streams have no end: of one that begins only the head is looked at, here; what they
carry is held against the document in tests/integration/test_openapi_records.py.
"""

import copy
import json
import os

import apsw
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serving import DEADLINE_S, Server, wait_until
from tailrace.clock import SystemClock
from tailrace.interface.openapi.document import describe
from tailrace.interface.openapi.rpc import answer_name, ref_of, request_name
from tailrace.interface.skeindb.methods import signatures
from tailrace.meta.pipeline import Definition
from tailrace.meta.pipeline_catalog import PipelineCatalog

LONG = bool(os.environ.get("LONG_TESTS"))
EXAMPLES = 100 if LONG else 7
pytestmark = pytest.mark.timeout(1800 if LONG else 120)  # many examples wait for as long as they ask to
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
REFUSED = ("params of", "skeinql version", "method ")
"""How messages begin that are about the request itself, not about what it names."""

STREAM = "text/event-stream"
RPC = "/api/v1/rpc"
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT, score REAL, data BLOB);
CREATE TABLE pairs(a INTEGER, b TEXT, note, PRIMARY KEY(a, b));
"""
ROWS = """
INSERT INTO users VALUES(1, 'ann', 1.5, x'00ff'), (2, NULL, NULL, NULL);
UPDATE users SET name = 'bob' WHERE id = 2;
DELETE FROM users WHERE id = 1;
INSERT INTO pairs VALUES(1, 'x', 9e999), (2, 'y', 1.0);
"""
MODES = {"allowed": GenerationMode.POSITIVE, "forbidden": GenerationMode.NEGATIVE}
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not LONG,
    database=None,
    phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class World:
    """A server process over a database with rows, its document, and values with which calls come far."""

    def __init__(self, server, database):
        self.server = server
        self.database = database
        self.session = requests.Session()
        self.session.trust_env = False
        self.document = self.session.get(f"{server.url}/api/v1/openapi.json", timeout=DEADLINE_S).json()
        self.sub_id = server.subscribe("users", db="app", include={"before": True, "after": True})["sub_id"]
        other = self.subscribe()
        database.execute(ROWS).fetchall()
        self.query_id = self.prepare("SELECT id, name, score FROM users WHERE id > ?")
        plain = self.prepare("SELECT a, b, note FROM pairs")
        watched = server.call("cdc.subscribe_query", {"query_id": plain, "from": "earliest"})["sub_id"]
        places = ["earliest", "latest", 0, {"offset": 0}, {"timestamp": "2026-01-31T12:00:00Z"}, {"timestamp": -1}]
        (server.data_dir / "pipeline").mkdir(exist_ok=True)
        catalog = PipelineCatalog.open(f"sqlite:///{server.data_dir / 'metadata.db'}", SystemClock())
        catalog.create(Definition(name="copy", source="app", tables=("users",), sink="console:"))
        catalog.close()
        self.pools = {
            "args": [[1], [{"t": "i64", "v": 1}], ["x"], []],
            "cel": ["op == 'insert'", "after.id > 0", "1 / 0 > 0"],
            "columns": [["name"], ["a"], []],
            "db": ["app"],
            "name": ["copy"],
            "from": places,
            "from_offset": [0, 3],
            "offset": [0, 3],
            "ops": [["insert"], ["INSERT ", "delete"], []],
            "pk": [[{"t": "i64", "v": 1}], [{"t": "i64", "v": 1}, {"t": "str", "v": "x"}]],
            "pk_range": [{"lower_bound": {"t": "i64", "v": 1}}, {"upper_bound": [{"t": "i64", "v": 1}]}],
            "query": [
                "SELECT 1",
                "SELECT name FROM users WHERE id = ? OR data = x'ff'",
                "DELETE FROM users",
                "SELECT nope FROM users",
            ],
            "query_id": [plain, self.query_id],
            "source": ["app"],
            "sub_id": [self.sub_id, other, watched],
            "table": ["users", "pairs"],
            "to": places,
            "where": ["id > 1", "name LIKE 'a%' OR score IS NULL", "nope = 1", "id >"],
        }

    def subscribe(self, table="pairs", **options):
        return self.server.call("cdc.subscribe_table", {"db": "app", "table": table, **options})["sub_id"]

    def prepare(self, sql):
        return self.server.call("query.prepare", {"query": sql})["query_id"]

    def operation(self, path, verb="get", document=None):
        return schemathesis.openapi.from_dict(copy.deepcopy(document or self.document))[path][verb]

    def of_method(self, method):
        """Return the document with one method only, so that its answers are held against the result of that one."""
        document = copy.deepcopy(self.document)
        call = document["paths"][RPC]["post"]
        call["requestBody"]["content"]["application/json"]["schema"] = ref_of(request_name(method))
        answers = [ref_of(answer_name(method)), ref_of("ErrorAnswer")]
        call["responses"]["200"]["content"]["application/json"]["schema"] = {"anyOf": answers}
        return document

    def validator(self, name):
        return jsonschema_rs.validator_for({**ref_of(name), "components": self.document["components"]})

    def send(self, case):
        """Send a case; hold the answer against the document, and return it. Of a stream only the head is read."""
        with self.session.request(**self.request(case), stream=True, timeout=DEADLINE_S) as answer:
            content = b"" if answer.headers.get("content-type") == STREAM else answer.content
        headers = {name: [value] for name, value in answer.headers.items()}
        elapsed_s = answer.elapsed.total_seconds()
        seen = schemathesis.Response(answer.status_code, headers, content, answer.request, elapsed_s, verify=True)
        case.validate_response(seen, checks=CHECKS)
        return answer

    def head(self, case):
        """Send a case as HEAD; return the answer."""
        request = {**self.request(case), "method": "HEAD"}
        return self.session.request(**request, timeout=DEADLINE_S, allow_redirects=False)

    def request(self, case):
        return case.as_transport_kwargs(base_url=self.server.url)

    def enliven(self, draw, params, method=None):
        """Put values that the server knows into some of the params; what is to be closed is made for it."""
        for name in sorted(params.keys() & self.pools.keys()):
            if draw(st.integers(0, 3)):
                closed = method == "cdc.close" and name == "sub_id"
                params[name] = self.subscribe() if closed else draw(st.sampled_from(self.pools[name]))
        if params.get("wait_ms") in range(60_001):
            params["wait_ms"] %= 5


def allows(validator, sent):
    """Tell whether the bytes that were sent are a JSON document that a schema allows."""
    try:
        return validator.is_valid(json.loads(sent or b""))
    except ValueError:
        return False


def whole(value):
    """Return a JSON value whose whole numbers have no point: 1.0 is an integer to a JSON schema, not to the server."""
    match value:
        case dict():
            return {name: whole(member) for name, member in value.items()}
        case list():
            return [whole(member) for member in value]
        case float() if value.is_integer():
            return int(value)
    return value


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("openapi")
    database = apsw.Connection(str(folder / "app.db"))
    database.set_busy_timeout(30_000)
    database.execute(SCHEMA).fetchall()
    server = Server(folder / "data", "--source", f"app=sqlite:///{folder / 'app.db'}").wait_ready()
    try:
        found = World(server, database)
        yield found
        found.session.close()
        assert server.process.poll() is None
    finally:
        server.kill()
        database.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [None, *signatures()])
def test_a_call_is_answered_as_described_and_taken_just_if_the_document_allows_it(world, method, mode):
    document = world.document if method is None else world.of_method(method)
    allowed = world.validator("RpcRequest" if method is None else request_name(method))

    @BOUNDED
    @given(world.operation(RPC, "post", document).as_strategy(MODES[mode]), st.data())
    def call(case, data):
        body = case.body = whole(case.body)
        if isinstance(body, dict):
            body["id"] = 1 if body.get("id") is None else body["id"]
            if isinstance(body.get("params"), dict):
                world.enliven(data.draw, body["params"], body.get("method"))
        answer = world.send(case)
        problem = answer.json().get("error", {"code": "", "message": ""}) if answer.content else None
        assert problem is None or problem["code"] != "internal", (answer.request.body, problem)
        if answer.status_code != 415:
            decoded = answer.status_code == 200 and not problem["message"].startswith(REFUSED)
            assert decoded == allows(allowed, answer.request.body), (answer.request.body, answer.text)

    call()


@pytest.mark.parametrize("method", signatures())
def test_a_call_that_names_what_is_there_goes_well(world, method):
    schemas = world.document["components"]["schemas"]
    required = schemas[signatures()[method].params.__name__]["required"]
    params = {name: world.pools[name][0] for name in required}
    if method == "cdc.close":
        params["sub_id"] = world.subscribe()
    body = {"skeinql": "1.0", "id": "a", "method": method, "params": params}
    answer = world.send(
        world.operation(RPC, "post", world.of_method(method)).Case(body=body, media_type="application/json")
    )
    assert (answer.json()["id"], answer.json()["ok"]) == ("a", True)


GETS = [path for path, item in describe()["paths"].items() if "get" in item]
TAKE_NOTHING = {"/api/v1/openapi.json", "/api/v1/pipelines", "/health", "/ready", "/metrics"}
"""Paths without parameters, to which nothing wrong can be said."""


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, mode) for path in GETS for mode in MODES if not (path in TAKE_NOTHING and mode == "forbidden")],
)
def test_a_request_is_answered_as_described(world, path, mode):
    @BOUNDED
    @given(world.operation(path).as_strategy(MODES[mode]), st.data())
    def get(case, data):
        world.enliven(data.draw, case.path_parameters)
        enliven_query(world, data.draw, case)
        answer = world.send(case)
        head = world.head(case)
        assert (head.status_code, head.content) == (answer.status_code, b"")
        assert head.headers.get("content-type") == answer.headers.get("content-type")

    get()


@pytest.mark.parametrize("path", GETS)
def test_a_request_for_what_is_there_is_answered_well(world, path):
    named = {name: world.pools[name][0] for name in ("sub_id", "query_id", "source", "name") if f"{{{name}}}" in path}
    operation = world.operation(path)
    params = {"sub": world.pools["sub_id"], "after": 0, "table": "users"}
    wanted = {
        entry["name"] for entry in world.document["paths"][path]["get"].get("parameters", []) if entry.get("required")
    }
    case = operation.Case(path_parameters=named, query={name: params[name] for name in params.keys() & wanted})
    assert world.send(case).status_code == (426 if "/ws" in path else 200)


def enliven_query(world, draw, case):
    """Put values that the server knows into some of the parameters of the URL and the headers."""
    case.query = case.query or {}
    if case.query.keys() & {"beyond", "wait_ms"} and case.query.get("wait_ms", 0) in range(60_001):
        case.query["wait_ms"] = 5
    if "sub" in case.query and draw(st.booleans()):
        case.query["sub"] = draw(st.lists(st.sampled_from(world.pools["sub_id"]), min_size=1, unique=True))
    if "{query_id}" in case.path and draw(st.booleans()):
        case.query["args"] = json.dumps(draw(st.sampled_from(world.pools["args"])))
    for place in (case.query, case.headers):
        for name in sorted({"from_offset", "Last-Event-ID"} & place.keys()):
            if draw(st.booleans()):
                place[name] = "3"


def test_a_client_that_has_the_result_is_told_so_as_described(world):
    case = world.operation("/api/v1/q/{query_id}").Case(
        path_parameters={"query_id": world.query_id}, query={"args": "[1]"}
    )
    etag = world.send(case).headers["etag"]
    case.headers["If-None-Match"] = etag
    answer = wait_until(lambda: (found := world.send(case)).status_code == 304 and found, "the client has the result")
    assert (answer.headers["etag"], answer.content) == (etag, b"")
