"""The bulk interface in the OpenAPI document."""

import json
import re

from msgspec.json import schema_components

from tailrace.interface.bulk.log import log_routes
from tailrace.interface.openapi.bulk import BULK_PATHS, BULK_TYPES


def test_each_route_is_described_with_its_verb():
    routes = {route.path: route.methods - {"HEAD"} for route in log_routes(None, None, None)}
    described = {path: {verb.upper() for verb in verbs} for path, verbs in BULK_PATHS.items()}
    assert routes == {path: verbs for path, verbs in described.items() if not path.endswith(("/ranges", "/rows"))}


def test_each_schema_that_is_referred_to_is_given():
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(BULK_PATHS)))
    _, schemas = schema_components(BULK_TYPES, ref_template="#/components/schemas/{name}")
    assert names - {"ErrorAnswer"} <= schemas.keys()
