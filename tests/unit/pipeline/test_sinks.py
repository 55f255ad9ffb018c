"""Which URL is which sink, and what is wrong with the others."""

import sys

import pytest

from tailrace.message.targets import TARGETS
from tailrace.model.errors import ConfigError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import MODES, SINKS, check_sink, keeps_rows, sink_of

GOOD = [
    "delta:///lake/{table}",
    "delta:lake/orders",
    "iceberg:///warehouse?namespace=shop&table={source}_{table}",
    "catalog:lake.shop.{table}?using=iceberg",
    "delta:s3://lake/{table}",
    "delta:s3://lake/shop/{source}/{table}?endpoint=http://127.0.0.1:9000&region=eu-1&access_key_id=a&secret_access_key=b",
    "delta:gs://lake/{table}",
    "delta:az://lake/{table}?account=shop&account_key=a2V5",
    "iceberg:s3://lake/warehouse?catalog=sqlite:////var/catalog.db&namespace=shop",
    "parquet:///backup",
    "parquet:s3://lake/backup",
    "jsonl:///backup",
    "jsonl:gs://lake",
    "sqlite:///shop.db",
    "sqlite:////var/shop.db?table=copy_of_{table}",
    "postgresql://ann:p%40ss@db.example:5433/shop?schema=copy&sslmode=require",
    "mysql://ann:p%40ss@db.example/shop?table={table}",
    "console:",
]


@pytest.mark.parametrize("url", GOOD)
def test_a_sink_has_a_usual_mode(url):
    assert sink_of(url, None, pipeline="copy") is not None


def test_the_examples_are_of_all_sinks():
    assert {url.partition(":")[0] for url in GOOD} == set(SINKS)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "the sink is not a URL"),
        ("/lake/orders", "the sink is not a URL"),
        ("delta:///lake#part", "the sink is not a URL"),
        ("mysql://ann:s3cret@db:port/shop", "the sink is not a URL"),
        ("gopher://cache:s3cret@host/0", "no sink supports gopher URLs"),
        ("delta://", "a delta sink is a directory"),
        ("delta://lake/orders", "a delta sink is a directory"),
        ("delta:///lake?mode=fast", "a delta sink has no option 'mode': it takes none"),
        ("iceberg:///lake?table=a&table=b", "names an option twice"),
        ("delta:///100%2525/{table}", "a delta sink cannot be in a directory with '%' in its path"),
        ("delta:///a%5B1%5D/{table}", "a delta sink cannot be in a directory with '[ ]' in its path"),
        ("iceberg:///c%23/lake", "an iceberg sink cannot be in a directory with '#' in its path"),
        ("delta:s3://", "write a place in object storage as s3://BUCKET/PATH"),
        ("delta:s3://key:s3cret@lake/{table}", "write a place in object storage as s3://BUCKET/PATH"),
        ("delta:s3://{table}/lake", "write a place in object storage as s3://BUCKET/PATH"),
        ("delta:s3://lake/100%25/{table}", "a sink in object storage cannot have '%' in its path"),
        ("delta:s3://lake/{table}?account=s3cret", "a delta sink has no option 'account': it takes access_key_id"),
        ("parquet:s3://lake/x?secret_access_key=s3cret", "has two parts: name access_key_id and secret_access_key"),
        ("parquet:s3://lake/x?endpoint=minio:9000", "endpoint of a sink is a URL: begin it with https"),
        ("iceberg:s3://lake/warehouse", "write an Iceberg sink in object storage as iceberg:s3://BUCKET/PATH"),
        ("iceberg:az://lake/w?catalog=sqlite:///x.db", "write an Iceberg sink in object storage as"),
        ("delta:ftp://lake/{table}", "a delta sink is in s3://, gs:// or az://"),
        ("catalog:///lake/shop", "write a catalog sink as catalog:CATALOG.NAMESPACE.{table}"),
        ("catalog:lake..orders", "write a catalog sink as"),
        ("catalog:lake.{table}.orders", "write a catalog sink as"),
        ("catalog:lake.orders?format=delta", "a catalog sink has no option 'format': it takes using"),
        ("parquet://user:s3cret@host/dir", "a parquet sink is a directory"),
        ("sqlite://", "an SQLite sink is a file"),
        ("sqlite:///:memory:", "an SQLite sink is a file"),
        ("postgresql://ann:s3cret@db", "write a postgresql sink as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("postgresql:///shop", "write a postgresql sink as"),
        ("mysql://ann:s3cret@db/shop/orders", "write a mysql sink as"),
        ("mysql://ann:s3cret@db/shop?charset=latin1", "a mysql sink has no option 'charset': it takes table"),
        ("console://host", "a console sink is written console:"),
        *(
            (url, "only {table} and {source} are replaced")
            for url in (
                "delta:///lake/{tble}",
                "iceberg:///lake?table={tble}",
                "catalog:lake.{tble}",
                "sqlite:///shop.db?table={tble}",
                "postgresql://ann:s3cret@db/shop?table={tble}",
                "mysql://ann:s3cret@db/shop?table={tble}",
            )
        ),
    ],
)
def test_a_url_that_is_none_says_what_to_write_and_shows_no_password(url, reason):
    with pytest.raises(ConfigError) as wrong:
        sink_of(url, None, pipeline="copy")
    assert reason in str(wrong.value)
    assert "s3cret" not in str(wrong.value)


@pytest.mark.parametrize("scheme", ["parquet", "jsonl"])
@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
def test_files_are_appended_to_alone(scheme, mode):
    with pytest.raises(ConfigError, match=f"a {scheme} sink has no mode {mode}: it has append"):
        sink_of(f"{scheme}:///backup", mode, pipeline="copy")


@pytest.mark.parametrize(
    ("url", "module", "needed"),
    [
        (
            "mysql://ann:s3cret@db/shop",
            "pymysql",
            "mysql sinks need pymysql: pip install '.[spark,mysql]'",
        ),
        (
            "postgresql://ann:s3cret@db/shop",
            "psycopg",
            "postgresql sinks need psycopg: pip install '.[spark,postgresql]'",
        ),
        (
            "delta:///lake",
            "deltalake",
            "delta sinks need deltalake: pip install '.[spark]'",
        ),
        (
            "iceberg:///lake",
            "pyiceberg.catalog.sql",
            "iceberg sinks need pyiceberg.catalog.sql: pip install '.[spark,iceberg]'",
        ),
        (
            "iceberg:///lake",
            "numpy",
            "iceberg sinks need numpy: pip install '.[spark]'",
        ),
    ],
)
def test_a_driver_that_is_not_installed_is_named(monkeypatch, url, module, needed):
    kind = {"mysql": "mysql", "postgresql": "postgres", "delta": "delta", "iceberg": "iceberg"}[url.partition(":")[0]]
    monkeypatch.delitem(sys.modules, f"tailrace.pipeline.sink.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as wrong:
        sink_of(url, None, pipeline="copy")
    assert str(wrong.value) == f"{needed} in the source directory of Tailrace"


def test_messages_can_go_wherever_there_is_a_target():
    assert set(MODES) == {*SINKS, *TARGETS}
    assert MODES["redis"] == (Mode.APPEND,)
    assert MODES["opensearch+http"] == (Mode.CURRENT,)
    assert sink_of("redis://127.0.0.1:1/0", None, pipeline="copy").applied() is None
    with pytest.raises(ConfigError, match="a redis sink has no mode current: it has append"):
        sink_of("redis://127.0.0.1:1/0", Mode.CURRENT, pipeline="copy")


@pytest.mark.parametrize(("url", "kept"), [("delta:///lake", True), ("console:", False), ("redis://h/{table}", False)])
def test_messages_and_the_console_keep_no_rows(url, kept):
    assert keeps_rows(url) is kept


def test_a_sink_is_checked_without_its_secrets_and_opened_with_them(monkeypatch):
    url = "postgresql://ann:${SHOP_PASSWORD}@db.example/shop"
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    check_sink(url, None)
    with pytest.raises(ConfigError, match="SHOP_PASSWORD"):
        sink_of(url, None, pipeline="copy")
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    assert sink_of(url, None, pipeline="copy") is not None


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("delta:///lake/orders", "path"),
        ("catalog:lake.shop.orders?using=iceberg", "path"),
        ("opensearch+http://h:9200/orders", "path"),
        ("iceberg:///lake?table=orders", "option `table`"),
        ("sqlite:///copy.db?table=orders", "option `table`"),
        ("mysql://ann:pw@h/shop?table=orders", "option `table`"),
        ("postgresql://ann:pw@h/shop?table={source}", "option `table`"),
    ],
)
def test_a_sink_with_one_place_has_no_room_for_two_tables(url, where):
    check_sink(url, None, ["orders"])
    with pytest.raises(ConfigError, match=rf"several tables would go into one: put \{{table\}} into the .*{where}"):
        check_sink(url, None, ["orders", "items"])


@pytest.mark.parametrize(
    "url",
    [
        "delta:///lake/{table}",
        "sqlite:///copy.db",
        "iceberg:///lake",
        "parquet:///files",
        "kafka://h:9092/all",
        "console:",
    ],
)
def test_other_sinks_have_room_for_several_tables(url):
    check_sink(url, None, ["orders", "items"])
