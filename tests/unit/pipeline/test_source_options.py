"""What the options of the Spark source take."""

import re
from pathlib import Path

import pytest

from tailrace.model.errors import ConfigError
from tailrace.pipeline.source_options import OPTIONS, Layout, parse_options

SERVER = {"server": "http://127.0.0.1:8080"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("TAILRACE_SERVER", raising=False)
    monkeypatch.delenv("TAILRACE_TOKEN", raising=False)


def test_names_of_options_are_read_in_any_case():
    options = parse_options({**SERVER, "MAXCHANGESPERTRIGGER": "7", "tables": "orders"})
    assert (options.changes_max, options.layout, options.source) == (7, Layout.TYPED, "default")


@pytest.mark.parametrize(
    ("tables", "names"),
    [("", ()), ("orders", ("orders",)), ("a, b", ("a", "b")), ('["a,b","c"]', ("a,b", "c"))],
)
def test_tables_are_a_list_with_commas_or_a_json_list(tables, names):
    assert parse_options({**SERVER, "tables": tables}).tables == names


@pytest.mark.parametrize(("tables", "layout"), [("", Layout.JSON), ("a", Layout.TYPED), ("a,b", Layout.JSON)])
def test_the_layout_is_typed_for_one_table_and_json_for_several(tables, layout):
    assert parse_options({**SERVER, "tables": tables}).layout is layout


def test_server_and_token_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TAILRACE_SERVER", "http://there:1")
    monkeypatch.setenv("TAILRACE_TOKEN", "secret")
    options = parse_options({})
    assert (options.server, options.token, options.log_dir) == ("http://there:1", "secret", None)
    assert parse_options({"log_dir": "/log"}).server is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option server"),
        ({**SERVER, "log_dir": "/log"}, "either"),
        ({**SERVER, "tabels": "orders"}, "unknown option 'tabels'"),
        ({**SERVER, "maxChangesPerTrigger": "0"}, "maxChangesPerTrigger"),
        ({**SERVER, "maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({**SERVER, "layout": "wide"}, "typed, json, envelope"),
        ({**SERVER, "layout": "typed"}, "of one table"),
        ({**SERVER, "columns": "a"}, "option columns is for the layout typed"),
        ({**SERVER, "preimages": "moved"}, "option preimages is for the layout typed"),
        ({**SERVER, "tables": "a", "preimages": "none"}, "option preimages takes all, moved"),
        ({**SERVER, "tables": "[1]"}, "option tables"),
        ({**SERVER, "compression": "gzip"}, "none, lz4, zstd"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(options, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse_options(options)


@pytest.mark.parametrize(
    ("options", "streaming", "says"),
    [
        ({**SERVER, "end": "5"}, True, "option end is for batches"),
        ({**SERVER, "maxChangesPerTrigger": "5"}, False, "option maxChangesPerTrigger is for streams"),
        ({**SERVER, "maxBytesPerTrigger": "5"}, False, "option maxBytesPerTrigger is for streams"),
        ({**SERVER, "subscription": "sub_1"}, False, "option subscription is for streams"),
        ({"log_dir": "/log", "token": "secret"}, None, "option token is for servers"),
        ({"log_dir": "/log", "compression": "lz4"}, True, "option compression is for servers"),
        ({"log_dir": "/log", "subscription": "sub_1"}, True, "option subscription is for servers"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options, streaming, says):
    with pytest.raises(ConfigError, match=says) as refused:
        parse_options(options, streaming=streaming)
    assert "secret" not in str(refused.value)


def test_streams_batches_and_files_take_the_options_that_are_theirs(monkeypatch):
    monkeypatch.setenv("TAILRACE_TOKEN", "secret")
    assert parse_options({**SERVER, "end": "5"}, streaming=False).end == "5"
    assert parse_options({**SERVER, "maxBytesPerTrigger": "5"}, streaming=True).bytes_max == 5
    assert parse_options({"log_dir": "/log"}, streaming=True).log_dir == "/log"


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_documented(name):
    page = Path(__file__).parents[3] / "docs" / "reference" / "spark.md"
    assert f"| `{name}` |" in page.read_text()


@pytest.mark.parametrize("text", ["total decimal(12,2), paid boolean", '{"total": "decimal(12,2)", "paid": "boolean"}'])
def test_types_are_names_with_types_or_a_json_object(text):
    options = parse_options({"server": "http://h", "tables": "orders", "types": text})
    assert options.types == {"total": "decimal(12,2)", "paid": "boolean"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"types": "total"}, "names with types"),
        ({"types": "total number"}, "unknown type"),
        ({"types": "{"}, "no JSON object"),
        ({"types": "total int", "stringColumns": "total"}, "both options"),
        ({"types": "total int", "layout": "json"}, "for the layout typed"),
    ],
)
def test_types_that_make_no_sense_are_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        parse_options({"server": "http://h", "tables": "orders", **given})
