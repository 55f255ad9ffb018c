"""What URLs of sinks say, and what they never show."""

import pytest

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName
from tailrace.sink_url import parse, spelled


def test_a_url_is_taken_apart():
    url = parse("postgresql://an%40n:p%40ss:w%2Frd@db.example:5433/shop?schema=copy&table={table}")
    assert (url.scheme, url.user, url.password, url.host, url.port) == (
        "postgresql",
        "an@n",
        "p@ss:w/rd",
        "db.example",
        5433,
    )
    assert (url.path, url.options) == ("/shop", {"schema": "copy", "table": "{table}"})


@pytest.mark.parametrize("show", [str, repr, lambda url: f"{url}"], ids=["str", "repr", "format"])
def test_a_url_is_shown_without_what_is_secret(show):
    url = parse("mysql://ann:s3cret@db:3306/shop?table=x&note=s3cret")
    assert show(url) == "mysql://ann:***@db:3306/shop"


def test_names_are_put_in_place():
    assert spelled("{source}/{table}", TableName("shop", "orders")) == "shop/orders"
    assert spelled("{table}", TableName("shop", "orders", "sales")) == "sales_orders"
    assert spelled("fixed", TableName("shop", "orders")) == "fixed"
    assert spelled("{table}", TableName("shop", "a/b"), lambda name: name.replace("/", "_")) == "a_b"


@pytest.mark.parametrize("template", ["{tabel}", "{table", "{}", "{table.name}", "{0}"])
def test_a_template_with_other_places_is_wrong(template):
    with pytest.raises(ConfigError, match=r"only \{table\} and \{source\} are replaced"):
        spelled(template, TableName("shop", "orders"))
