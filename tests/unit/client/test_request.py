"""Facts about the params of subscriptions."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tailrace.client.request import format_of, literals, subscribe_params
from tailrace.model.subscription import Format

TABLE = {"db": "app", "table": "t"}
BOTH = {"before": True, "after": True}

CASES = {
    "both images and values without loss by default": ({}, {"include": BOTH, "format": "objects_json"}),
    "no images": ({"include": ()}, {"include": {}}),
    "one image": ({"include": ["after"]}, {"include": {"after": True}}),
    "plain values": ({"format": "plain_json"}, {"format": "plain_json"}),
    "ops and columns as lists": (
        {"ops": ("insert",), "columns": ("a", "b")},
        {"ops": ["insert"], "columns": ["a", "b"]},
    ),
    "a key of values": ({"pk": (1, "x")}, {"pk": [{"t": "i64", "v": 1}, {"t": "str", "v": "x"}]}),
    "a key of literals": ({"pk": [{"t": "u64", "v": 1}]}, {"pk": [{"t": "u64", "v": 1}]}),
    "a range": (
        {"pk_range": (1, Decimal(9))},
        {"pk_range": {"lower_bound": {"t": "i64", "v": 1}, "upper_bound": {"t": "dec", "v": "9"}}},
    ),
    "a range open above": ({"pk_range": (1, None)}, {"pk_range": {"lower_bound": {"t": "i64", "v": 1}}}),
    "a range of composite keys": (
        {"pk_range": (None, (1, "x"))},
        {"pk_range": {"upper_bound": [{"t": "i64", "v": 1}, {"t": "str", "v": "x"}]}},
    ),
    "predicates": ({"where": "a > 1", "cel": "after.a > 1"}, {"where": "a > 1", "cel": "after.a > 1"}),
    "a snapshot": ({"snapshot": True}, {"snapshot": True}),
    "acknowledged when sent": ({"auto_ack": True}, {"auto_ack": True}),
    "a query's result": ({"deliver": "result"}, {"deliver": "result"}),
    "a precise query": ({"precise": True}, {"precise": True}),
    "from a word": ({"from_": "earliest"}, {"from": "earliest"}),
    "from an offset": ({"from_": 7}, {"from": 7}),
    "from a time": ({"from_": datetime(2026, 1, 31, tzinfo=UTC)}, {"from": "2026-01-31T00:00:00+00:00"}),
}


@pytest.mark.parametrize(("options", "wanted"), CASES.values(), ids=CASES)
def test_options_become_params(options, wanted):
    expected = {**TABLE, "include": BOTH, "format": "objects_json"} | wanted
    assert subscribe_params(TABLE, options) == expected


def test_a_range_has_two_sides():
    with pytest.raises(ValueError, match="zip"):
        subscribe_params(TABLE, {"pk_range": (1,)})


def test_the_format_is_known():
    assert format_of({}) is Format.OBJECTS_JSON
    assert format_of({"format": "plain_json"}) is Format.PLAIN_JSON
    with pytest.raises(ValueError, match="xml"):
        format_of({"format": "xml"})


def test_arguments_become_literals():
    assert literals([None, True, b"x"]) == [{"t": "null"}, {"t": "bool", "v": True}, {"t": "bytes", "b64": "eA=="}]
