"""Facts about changes as people see them."""

import click
import pytest

from tailrace.cli.show import EventLines

BASE = {"seq": 7, "db": "app", "table": "users", "pk": [1], "commit_ts_ms": 1_700_000_000_123, "lsn": 7}

CASES = [
    ({"op": "insert", "after": {"id": 1, "name": "Ada"}}, "insert users 1  id=1  name=Ada"),
    ({"op": "delete", "before": {"id": 1, "name": None}}, "delete users 1  id=1  name=null"),
    (
        {"op": "update", "before": {"id": 1, "name": "Ada"}, "after": {"id": 1, "name": "Bela"}},
        "update users 1  name: Ada → Bela",
    ),
    (
        {"op": "update", "before": {"id": 1}, "after": {"id": 1, "name": "Bela"}},
        "update users 1  name: ? → Bela",
    ),
    ({"op": "schema", "pk": [], "after": {"ddl": "CREATE TABLE users (id)"}}, "schema users   CREATE TABLE users (id)"),
    ({"op": "truncate", "pk": []}, "truncate users   (all rows removed)"),
    ({"op": "update", "before": {"id": 1}, "after": {"id": 1}}, "update users 1  (no column changed)"),
    (
        {"op": "insert", "pk": [{"t": "bytes", "b64": "AP8="}], "after": {"b": {"t": "bytes", "b64": "AA==" * 30}}},
        "insert users x'00ff'  b=" + "AA==" * 30,
    ),
    (
        {"op": "insert", "after": {"b": {"t": "bytes", "b64": "A" * 40}}},
        f"insert users 1  b=x'{'00' * 16}…' (30 bytes)",
    ),
    (
        {"op": "insert", "after": {"d": {"t": "date", "iso": "2026-01-31"}, "n": {"t": "null"}}},
        "insert users 1  d=2026-01-31  n=null",
    ),
    (
        {"op": "insert", "after": {"a": {"t": "array", "v": [[{"t": "i64", "v": 1}, {"t": "null"}]]}}},
        "insert users 1  a=[[1,null]]",
    ),
    (
        {"op": "insert", "after": {"a": {"t": "array", "v": [{"t": "i64", "v": 1}], "lower": [0]}}},
        'insert users 1  a={"t":"array","v":[{"t":"i64","v":1}],"lower":[0]}',
    ),
    (
        {
            "op": "insert",
            "after": {"p": {"t": "foreign", "type": "ltree", "v": "a.b"}, "r": {"t": "range", "v": "[1,2)"}},
        },
        "insert users 1  p=a.b  r=[1,2)",
    ),
    ({"op": "insert", "after": {"g": {"t": "geometry", "b64": "AP8="}}}, "insert users 1  g=x'00ff'"),
    ({"op": "insert", "after": {"note": "a\nb" + "x" * 80}}, "insert users 1  note=a⏎b" + "x" * 56 + "…"),
]


@pytest.mark.parametrize(("event", "line"), CASES)
def test_an_event_is_one_line(event, line):
    shown = click.unstyle(EventLines().line({**BASE, **event}))
    assert shown.split(" ", 1)[1].strip() == f"7 {line}"
    assert ".123" in shown.split(" ", 1)[0]


def test_keys_and_values_stand_below_each_other():
    lines = EventLines()
    events = [
        {**BASE, "op": "insert", "table": "customers", "pk": [100], "after": {"id": 100}},
        {**BASE, "op": "delete", "table": "users", "pk": [1], "before": {"id": 1}},
    ]
    first, second = (click.unstyle(lines.line(event)) for event in events)
    assert first.index("100") == second.index("1 ", second.index("users"))
    assert first.index("id=") == second.index("id=")
