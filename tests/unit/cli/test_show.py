"""Facts about changes as people see them."""

import click
import pytest

from tailrace.cli.show import show_event

BASE = {"seq": 7, "db": "app", "table": "users", "pk": [1], "commit_ts_ms": 1_700_000_000_123, "lsn": 7}

CASES = [
    ({"op": "insert", "after": {"id": 1, "name": "Ada"}}, "insert users 1  id=1  name=Ada"),
    ({"op": "delete", "before": {"id": 1, "name": None}}, "delete users 1  id=1  name=null"),
    (
        {"op": "update", "before": {"id": 1, "name": "Ada"}, "after": {"id": 1, "name": "Bela"}},
        "update users 1  name: Ada → Bela",
    ),
    ({"op": "schema", "pk": [], "after": {"ddl": "CREATE TABLE users (id)"}}, "schema users   CREATE TABLE users (id)"),
    ({"op": "insert", "after": {"note": "a\nb" + "x" * 80}}, "insert users 1  note=a⏎b" + "x" * 56 + "…"),
]


@pytest.mark.parametrize(("event", "line"), CASES)
def test_an_event_is_one_line(event, line):
    shown = click.unstyle(show_event({**BASE, **event}))
    assert shown.split(" ", 1)[1].strip() == f"7 {line}"
    assert ".123" in shown.split(" ", 1)[0]
