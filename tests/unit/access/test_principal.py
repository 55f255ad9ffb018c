"""Facts about principals."""

import pytest

from tailrace.access.principal import ANONYMOUS, Capability, Principal
from tailrace.model.errors import PermissionDeniedError
from tailrace.model.table import TableName

ORDERS = TableName("shop", "orders")


@pytest.mark.parametrize("capability", list(Capability))
def test_admin_has_every_capability_and_nobody_else_what_was_not_given(capability):
    assert Principal("p", capabilities=frozenset({"admin"})).may(capability)
    assert Principal("p", capabilities=frozenset({capability})).may(capability)
    assert not Principal("p").may(capability)
    assert ANONYMOUS.may(capability)


@pytest.mark.parametrize(
    ("capability", "shown"), [(Capability.WRITE, "Write"), (Capability.MANAGE_COLLECTIONS, "ManageCollections")]
)
def test_a_missing_capability_is_named_as_the_contract_does(capability, shown):
    with pytest.raises(PermissionDeniedError) as caught:
        Principal("bob").require(capability)
    assert str(caught.value) == f"Insufficient permissions. Required: {shown}, principal: bob"


def test_a_foreign_namespace_is_refused_in_the_words_of_the_contract():
    principal = Principal("bob", tenant="acme", namespaces=frozenset({"acme"}))
    principal.require_namespace("acme")
    with pytest.raises(PermissionDeniedError) as caught:
        principal.require_namespace("shop")
    assert str(caught.value) == "Access denied to namespace 'shop' for tenant 'acme'"


@pytest.mark.parametrize(
    ("namespaces", "tables", "sees"),
    [
        (None, None, True),
        ({"shop"}, None, True),
        ({"app"}, None, False),
        (None, {"shop.orders"}, True),
        (None, {"shop.items"}, False),
        ({"app"}, {"shop.orders"}, False),
    ],
)
def test_a_table_is_seen_if_its_source_is_reached_and_it_is_among_the_tables(namespaces, tables, sees):
    principal = Principal("p", namespaces=namespaces and frozenset(namespaces), tables=tables and frozenset(tables))
    assert principal.sees(ORDERS) is sees
    if not sees:
        with pytest.raises(PermissionDeniedError, match="Access denied to"):
            principal.require_table(ORDERS)


@pytest.mark.parametrize(
    ("tenant", "id_", "name"),
    [
        ("default", "bob", "bob"),
        ("acme", "bob", "acme/bob"),
        ("default", "acme/bob", "default/acme/bob"),
        ("acme/x", "bob", "acme%2Fx/bob"),
        ("acme", "x/bob", "acme/x/bob"),
        ("acme%2Fx", "bob", "acme%252Fx/bob"),
    ],
)
def test_no_two_principals_have_one_name(tenant, id_, name):
    assert Principal(id_, tenant=tenant).name == Principal(id_, tenant=tenant).owner == name


def test_nobody_owns_what_the_anonymous_make():
    assert (ANONYMOUS.owner, ANONYMOUS.name) == (None, "anonymous")


def test_a_table_of_another_schema_is_named_with_it():
    principal = Principal("p", tables=frozenset({"shop.sales.orders"}))
    assert principal.sees(TableName("shop", "orders", "sales"))
    assert not principal.sees(ORDERS)
