"""Facts about grants."""

import pytest

from tailrace.access.grant import ROLES, Grant, capabilities_of, check_grant, principal_of
from tailrace.access.principal import Capability
from tailrace.model.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("role", "named", "expected"),
    [
        (None, (), {"read"}),
        (None, ("write",), {"write"}),
        (None, ("fly",), {"fly"}),
        ("viewer", (), {"read", "view_metrics"}),
        ("Viewer", ("write",), {"read", "view_metrics", "write"}),
        ("EDITOR", (), {"read", "write", "manage_collections", "manage_indexes"}),
        ("owner", (), set(Capability)),
        ("authenticated", (), set()),
        ("authenticated", ("read",), {"read"}),
    ],
)
def test_capabilities_are_those_of_the_role_and_those_named(role, named, expected):
    assert capabilities_of(role, named) == expected


def test_the_roles_are_those_of_the_contract():
    assert set(ROLES) == {"owner", "editor", "viewer"}


@pytest.mark.parametrize(
    ("grant", "tenanted", "tenant", "namespaces"),
    [
        (Grant(), False, "default", None),
        (Grant(), True, "default", {"default"}),
        (Grant(tenant="acme"), False, "acme", {"acme", "default"}),
        (Grant(tenant="acme"), True, "acme", {"acme", "default"}),
        (Grant(tenant="acme", role="owner"), True, "acme", None),
        (Grant(tenant="acme", capabilities=("admin",)), True, "acme", None),
        (Grant(tenant="acme", namespaces=("shop",)), True, "acme", {"shop"}),
        (Grant(role="owner", namespaces=("shop",)), True, "default", {"shop"}),
        (Grant(tenant="acme", tables=("shop.orders", "app.t")), True, "acme", {"shop", "app"}),
        (Grant(namespaces=()), False, "default", set()),
    ],
)
def test_a_grant_reaches_what_it_names_and_else_what_its_tenant_may(grant, tenanted, tenant, namespaces):
    principal = principal_of("p", grant, tenanted=tenanted)
    assert principal.tenant == tenant
    assert principal.namespaces == namespaces


@pytest.mark.parametrize(
    ("grant", "named"),
    [
        (Grant(role="king"), "king"),
        (Grant(tables=("orders",)), "SOURCE.TABLE"),
        (Grant(tables=(".orders",)), "SOURCE.TABLE"),
        (Grant(rows={"orders": "1"}), "SOURCE.TABLE"),
        (Grant(tables=("shop.a",), rows={"shop.b": "1"}), "not among"),
        (Grant(capabilities=("",)), "1 to 255"),
        (Grant(tenant="x" * 81), "tenant"),
        (Grant(tenant=""), "tenant"),
        (Grant(capabilities=("x",) * 1001), "1000"),
    ],
)
def test_a_mistyped_grant_is_refused(grant, named):
    with pytest.raises(InvalidRequestError, match=named):
        check_grant(grant)


def test_a_grant_with_everything_is_taken():
    check_grant(
        Grant(
            tenant="acme",
            role="Viewer",
            capabilities=("custom",),
            namespaces=("shop",),
            tables=("shop.orders",),
            rows={"shop.orders": "customer_id = 7"},
        )
    )
