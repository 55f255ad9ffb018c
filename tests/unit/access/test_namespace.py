"""Namespaces of seed A name sources."""

import pytest

from tailrace.access.namespace import source_for, source_of
from tailrace.model.errors import PermissionDeniedError, UnknownSourceError
from tailrace.model.principal import Principal


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


def test_a_principal_learns_nothing_of_namespaces_that_are_not_its_own() -> None:
    principal = Principal("p", namespaces=frozenset({"shop", "gone"}))
    assert source_for(principal, "shop", {"shop", "other"}) == "shop"
    for foreign in ("other", "none"):
        with pytest.raises(PermissionDeniedError, match=f"'{foreign}'"):
            source_for(principal, foreign, {"shop", "other"})
    with pytest.raises(UnknownSourceError):
        source_for(principal, "gone", {"shop", "other"})
    assert source_for(principal, "", {"shop", "other"}) == "shop"
    with pytest.raises(PermissionDeniedError, match="'default'"):
        source_for(principal, "", {"shop", "default"})
