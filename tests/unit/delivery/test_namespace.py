"""Namespaces of seed A name sources."""

import pytest

from tailrace.delivery.namespace import source_of
from tailrace.model.errors import UnknownSourceError


@pytest.mark.parametrize(
    ("namespace", "sources", "source"),
    [
        ("shop", {"shop", "default"}, "shop"),
        ("", {"shop", "default"}, "default"),
        ("default", {"shop", "default"}, "default"),
        ("", {"shop"}, "shop"),
        ("default", {"shop"}, "shop"),
    ],
)
def test_a_namespace_names_a_source(namespace: str, sources: set[str], source: str) -> None:
    assert source_of(namespace, sources) == source


@pytest.mark.parametrize(
    ("namespace", "sources"),
    [("other", {"shop"}), ("", {"shop", "archive"}), ("default", {"shop", "archive"}), ("", set()), ("Shop", {"shop"})],
)
def test_a_namespace_that_names_none_or_one_of_several_is_not_found(namespace: str, sources: set[str]) -> None:
    with pytest.raises(UnknownSourceError):
        source_of(namespace, sources)
