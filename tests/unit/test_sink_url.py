"""What URLs of sinks say, and what they never show."""

import pytest

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName
from tailrace.sink_url import Secrets, Spelling, parse, revealed, spelled


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


def test_a_spelling_asks_once_for_each_name_and_refuses_a_wrong_template_at_once():
    asked = []
    spelling = Spelling("{source}/{table}", lambda text: asked.append(text) or text.upper())
    asked.clear()
    assert [spelling(TableName("shop", name)) for name in ("a", "b", "a")] == ["SHOP/A", "SHOP/B", "SHOP/A"]
    assert asked == ["shop", "a", "shop", "b"]
    with pytest.raises(ConfigError):
        Spelling("{tabel}")


def test_names_are_put_in_place():
    assert spelled("{source}/{table}", TableName("shop", "orders")) == "shop/orders"
    assert spelled("{table}", TableName("shop", "orders", "sales")) == "sales_orders"
    assert spelled("fixed", TableName("shop", "orders")) == "fixed"
    assert spelled("{table}", TableName("shop", "a/b"), lambda name: name.replace("/", "_")) == "a_b"


@pytest.mark.parametrize("template", ["{tabel}", "{table", "{}", "{table.name}", "{0}"])
def test_a_template_with_other_places_is_wrong(template):
    with pytest.raises(ConfigError, match=r"only \{table\} and \{source\} are replaced") as caught:
        spelled(f"s3cret/{template}", TableName("shop", "orders"))
    assert "s3cret" not in str(caught.value)


SECRET_URL = "kafka://${USER_NAME}:${PASS}@broker:9092/{table}?token=${TOKEN}&plain=a"
SECRETS = {"USER_NAME": "ann", "PASS": "p@ss:/?#", "TOKEN": "t0ken"}


def test_secrets_are_filled_in_as_they_are_and_never_shown():
    made = revealed(parse(SECRET_URL), SECRETS)
    assert (made.user, made.password, made.options) == ("ann", "p@ss:/?#", {"token": "t0ken", "plain": "a"})
    assert made.path == "/{table}"
    assert "p@ss" not in f"{made} {made!r}"
    assert "ann" not in str(made)
    assert "${USER_NAME}" in str(made)


def test_a_secret_that_is_missing_is_named():
    with pytest.raises(ConfigError, match="TOKEN") as missing:
        revealed(parse(SECRET_URL), {"USER_NAME": "ann", "PASS": "p"})
    assert "ann" not in str(missing.value)


def test_without_secrets_a_url_can_be_looked_at_all_the_same():
    assert revealed(parse(SECRET_URL), None).password == "secret"


@pytest.mark.parametrize(
    "text",
    ["PASS=p@ss\n# a comment\n\nexport TOKEN='t 0'\n", 'PASS = "p@ss"\nTOKEN = "t 0"\n'],
    ids=["lines", "TOML"],
)
def test_a_file_of_secrets_is_lines_or_toml_and_outranks_the_environment(tmp_path, monkeypatch, text):
    monkeypatch.setenv("PASS", "other")
    monkeypatch.setenv("ONLY_HERE", "yes")
    (tmp_path / "secrets").write_text(text)
    found = Secrets(str(tmp_path / "secrets")).values()
    assert (found["PASS"], found["TOKEN"], found["ONLY_HERE"]) == ("p@ss", "t 0", "yes")


@pytest.mark.parametrize("text", ["s3cret without a name\n", None])
def test_a_file_that_has_no_secrets_is_refused_without_showing_it(tmp_path, text):
    if text is not None:
        (tmp_path / "secrets").write_text(text)
    with pytest.raises(ConfigError) as refused:
        Secrets(str(tmp_path / "secrets")).values()
    assert "s3cret" not in str(refused.value)


def test_several_hosts_stay_together_with_their_ports():
    url = parse("kafka://ann:p%40,ss@a:1,b:2/{table}")
    assert (url.host, url.port, url.user, url.password, url.path) == ("a:1,b:2", None, "ann", "p@,ss", "/{table}")
    assert str(url) == "kafka://ann:***@a:1,b:2/{table}"


@pytest.mark.parametrize("text", ["1_000", "true", "1e5", "0x1F", "it's'", '"', '"a"b', "007"])
def test_a_secret_is_what_was_written_whatever_else_it_could_mean(tmp_path, text):
    (tmp_path / "secrets").write_text(f"PASS={text}\n")
    assert Secrets(str(tmp_path / "secrets")).values()["PASS"] == text


def test_an_address_of_ipv6_is_shown_as_it_is_written():
    assert str(parse("redis://[::1]:6379/0")) == "redis://[::1]:6379/0"
