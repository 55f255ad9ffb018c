"""Facts about the OpenAPI document: it is one, and nothing that the server has is missing in it."""

import copy
import json
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import jsonschema_rs
import pytest
import schemathesis
from click.testing import CliRunner

from feeding import feeding
from tailrace.access.options import AuthConfig
from tailrace.access.principal import ANONYMOUS
from tailrace.cli.group import tailrace
from tailrace.clock import SystemClock
from tailrace.delivery.http import HttpOptions
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.problem import TABLE
from tailrace.interface.assemble import create_app
from tailrace.interface.openapi.document import OPENAPI_PATH, describe
from tailrace.interface.openapi.rpc import answer_name, error_codes, ref_of, request_name
from tailrace.interface.skeindb.methods import Methods, signatures
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes
from tailrace.subscription.pipelines import Pipelines
from tailrace.subscription.query.service import QueryService
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from web import access_of

DOCUMENT = describe()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [(path, verb, operation) for path, item in DOCUMENT["paths"].items() for verb, operation in item.items()]
VERBS = {"GET", "PUT", "POST", "DELETE", "PATCH"}


@asynccontextmanager
async def whole_service():
    """A service that has queries, and no source."""
    store = await MetaStore.open("sqlite://", SystemClock())
    try:
        queries = await QueryService.open({}, store, SystemClock())
        yield await SubscriptionService.open({}, store, ServiceOptions(), queries)
    finally:
        await store.close()


@asynccontextmanager
async def client_of(service, auth=None):
    clock = SystemClock()
    store = await MetaStore.open("sqlite://", clock)
    async with access_of(auth or AuthConfig(), clock) as access, AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        scopes = Scopes(service)
        pipelines = Pipelines(store, scopes, clock)
        app = create_app(scopes, list, Metrics(), clock, HttpOptions(), gate=access.gate, pipelines=pipelines)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield app, client


def nodes(tree):
    """Yield every object of a JSON document."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(child)


def url_of(path):
    return path.format(sub_id="sub_0000000000000001", query_id="q_none", source="none", name="none")


def test_the_document_is_valid_openapi():
    schemathesis.openapi.from_dict(json.loads(json.dumps(DOCUMENT))).validate()


def test_a_document_that_is_not_openapi_would_be_noticed():
    broken = copy.deepcopy(DOCUMENT)
    del broken["paths"]["/health"]["get"]["responses"]["200"]["description"]
    with pytest.raises(Exception, match="description"):
        schemathesis.openapi.from_dict(broken).validate()


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_a_valid_json_schema(name):
    jsonschema_rs.validator_for({**SCHEMAS[name], "components": DOCUMENT["components"]})


def test_each_reference_leads_to_a_schema_and_each_schema_is_referred_to():
    references = {node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node}
    assert references == {ref_of(name)["$ref"] for name in SCHEMAS}


def test_each_operation_has_a_name_of_its_own():
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)


async def test_each_route_is_described_with_its_verbs():
    async with whole_service() as service, client_of(service) as (app, _):
        routes = {route.path: getattr(route, "methods", {"GET"}) for route in app.routes}
    assert {path: {verb.upper() for verb in item} for path, item in DOCUMENT["paths"].items()} == {
        path: verbs - {"HEAD"} for path, verbs in routes.items()
    }


async def test_each_method_is_described_with_the_types_that_it_takes_and_gives():
    async with whole_service() as service:
        methods = Methods(
            Scopes(service).of(ANONYMOUS),
            Presenter(0, Metrics().encoded_changes),
            Metrics(),
            SystemClock(),
            HttpOptions(),
        )
        table = methods.table
    assert table.keys() == signatures().keys()
    mapping = SCHEMAS["RpcRequest"]["discriminator"]["mapping"]
    assert mapping == {name: ref_of(request_name(name))["$ref"] for name in table}
    for name, method in table.items():
        request, answer = SCHEMAS[request_name(name)], SCHEMAS[answer_name(name)]
        assert request["properties"]["method"] == {"const": name}
        assert request["properties"]["params"] == ref_of(method.params.__name__)
        assert answer["properties"]["result"] == ref_of(method.result.__name__)
        assert ref_of(answer_name(name)) in SCHEMAS["RpcAnswer"]["anyOf"]


def test_each_code_of_an_error_is_described():
    assert set(TABLE.values()) <= set(error_codes())
    assert SCHEMAS["Problem"]["properties"]["code"] == {"enum": error_codes()}


async def test_the_server_gives_the_document_that_the_command_prints():
    async with whole_service() as service, client_of(service) as (_, client):
        first, second = await client.get(OPENAPI_PATH), await client.get(OPENAPI_PATH)
    assert first.headers["content-type"] == "application/json"
    assert first.content == second.content
    printed = CliRunner().invoke(tailrace, ["openapi"])
    assert printed.exit_code == 0
    described = json.loads(printed.output)
    assert first.json() == described == json.loads(json.dumps(DOCUMENT))


async def test_a_server_without_queries_does_not_describe_them():
    async with feeding() as world, client_of(world.service) as (_, client):
        document = (await client.get(OPENAPI_PATH)).json()
    schemathesis.openapi.from_dict(document).validate()
    assert "/api/v1/q/{query_id}" not in document["paths"]
    assert "query.prepare" not in document["components"]["schemas"]["RpcRequest"]["discriminator"]["mapping"]
    assert "cdc.poll" in document["components"]["schemas"]["RpcRequest"]["discriminator"]["mapping"]


@pytest.mark.parametrize(("path", "verb", "operation"), OPERATIONS, ids=[path for path, _, _ in OPERATIONS])
async def test_without_a_token_a_route_is_refused_as_described(path, verb, operation):
    async with (
        whole_service() as service,
        client_of(service, AuthConfig(enabled=True, tokens=("secret",))) as (_, client),
    ):
        answer = await client.request(verb, url_of(path))
    if operation.get("security") == []:
        assert answer.status_code == 200
        return
    assert answer.status_code == 401
    refusal = operation["responses"]["401"]
    assert answer.headers["www-authenticate"] == refusal["headers"]["WWW-Authenticate"]["schema"]["const"]
    schema = {**refusal["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema_rs.validator_for(schema).validate(answer.json())


@pytest.mark.parametrize("path", DOCUMENT["paths"])
async def test_what_is_not_described_is_not_there(path):
    async with whole_service() as service, client_of(service) as (_, client):
        for verb in VERBS - {verb.upper() for verb in DOCUMENT["paths"][path]}:
            answer = await client.request(verb, url_of(path))
            assert (answer.status_code, answer.json()["error"]["code"]) == (405, "invalid_request")
        answer = await client.get(url_of(path) + "/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
