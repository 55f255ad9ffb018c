"""The client's reference page tells everything that the client has."""

import re
from pathlib import Path

import pytest

import tailrace.client
from tailrace.client import ClientOptions, Event, SubscribeOptions

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "client.md").read_text()
METHODS = [name for name in dir(tailrace.client.AsyncClient) if not name.startswith("_")]
INNER = {"create_for_table", "create_for_query", "poll_for", "url"}
NAMES = [
    *tailrace.client.__all__,
    *ClientOptions.__struct_fields__,
    *SubscribeOptions.__annotations__,
    *(set(Event.__struct_fields__) - {"acknowledge"}),
    *(set(METHODS) - INNER),
]


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_it_is_on_the_page(name):
    assert re.search(rf"\b{name}\b", PAGE)
