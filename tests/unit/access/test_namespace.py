"""Facts about which source a request is for."""

import pytest

from tailrace.access.namespace import source_by_db, source_for, source_of
from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.model.errors import InvalidRequestError, PermissionDeniedError, UnknownSourceError


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


def test_an_error_names_the_sources_that_the_caller_may_see_and_no_others() -> None:
    with pytest.raises(UnknownSourceError, match=r"source 'x' not found; there is archive, shop$"):
        source_by_db(ANONYMOUS, "x", {"shop", "archive"})
    principal = Principal("p", namespaces=frozenset({"shop", "gone"}))
    with pytest.raises(UnknownSourceError, match=r"there is shop$"):
        source_by_db(principal, "gone", {"shop", "hidden"})


def test_a_db_may_be_left_out_where_one_source_is_reached_or_is_the_default() -> None:
    assert source_by_db(ANONYMOUS, None, {"shop"}) == "shop"
    assert source_by_db(ANONYMOUS, None, {"shop", "default"}) == "default"
    assert source_by_db(Principal("p", namespaces=frozenset({"shop"})), None, {"shop", "hidden"}) == "shop"
    with pytest.raises(InvalidRequestError, match="`db` is one of archive, shop"):
        source_by_db(ANONYMOUS, None, {"shop", "archive"})
