"""Sinks of JimDB's messages as URLs, and back without their passwords."""

import pytest

from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.interface.jimdb.sink import shown_sink, url_of
from tailrace.model.errors import InvalidRequestError
from tailrace.sink_url import parse

MYSQL = {
    "mysql_host": "db.example:3307",
    "mysql_user": "us/er",
    "mysql_password": "p@ss:w/rd?#",
    "mysql_db": "shop",
    "mysql_table": "copy of orders",
}


def test_a_mysql_sink_is_made_of_its_members():
    url = url_of(proto.CDCSink(type="mysql", config=MYSQL))
    parts = parse(url)
    assert (parts.scheme, parts.host, parts.port, parts.path) == ("mysql", "db.example", 3307, "/shop")
    assert (parts.user, parts.password, parts.options) == ("us/er", "p@ss:w/rd?#", {"table": "copy of orders"})
    shown = shown_sink(url)
    assert (shown.type, dict(shown.config)) == ("mysql", {k: v for k, v in MYSQL.items() if k != "mysql_password"})


def test_port_password_and_table_may_be_left_out():
    config = {"mysql_host": "db", "mysql_user": "u", "mysql_db": "d"}
    assert url_of(proto.CDCSink(type="mysql", config=config)) == "mysql://u@db/d"


@pytest.mark.parametrize(
    ("type_", "url", "shown"),
    [
        ("delta", "delta:///lake/{table}", "delta:///lake/{table}"),
        ("postgresql", "postgresql://u:secret@h:5/d?table=t", "postgresql://u:***@h:5/d"),
        ("kafka", "kafka://broker/topic?password=secret", "kafka://broker/topic"),
        ("console", "console:", "console:"),
    ],
)
def test_all_others_are_urls(type_, url, shown):
    assert url_of(proto.CDCSink(type=type_, config={"url": url})) == url
    assert shown_sink(url) == proto.CDCSink(type=type_, config={"url": shown})


@pytest.mark.parametrize(
    ("type_", "config"),
    [
        ("", {}),
        ("delta", {}),
        ("delta", {"url": "parquet:///x"}),
        ("delta", {"url": "secret"}),
        ("delta", {"url": "delta:///x", "mode": "secret"}),
        ("mysql", {}),
        ("mysql", MYSQL | {"mysql_host": ""}),
        ("mysql", MYSQL | {"mysql_host": "h/other"}),
        ("mysql", MYSQL | {"mysql_host": "secret@h"}),
        ("mysql", MYSQL | {"mysql_host": "h:port"}),
        ("mysql", MYSQL | {"mysql_charset": "x"}),
        ("mysql", MYSQL | {"mysql_db": "a/b"}),
    ],
)
def test_what_is_no_sink_is_refused_and_not_shown(type_, config):
    with pytest.raises(InvalidRequestError) as refused:
        url_of(proto.CDCSink(type=type_, config=config))
    assert "secret" not in str(refused.value)
    assert "p@ss" not in str(refused.value)
