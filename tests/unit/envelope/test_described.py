"""What the reference says of envelopes is what they are."""

import json
import re
from pathlib import Path

import pytest

from tailrace.envelope.envelopes import ENVELOPES, envelope_of
from tailrace.model.chunk import Change
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema

TEXT = (Path(__file__).parents[3] / "docs/reference/sinks.md").read_text()
EXAMPLES = dict(re.findall(r"```(?:json|text) (\S+)\n(.*?)```", TEXT, re.DOTALL))
ORDERS = TableSchema(
    TableName("shop", "orders"), 3, (Column("id", Kind.I64, nullable=False), Column("total", Kind.F64)), ("id",)
)
CHANGE = Change(
    42,
    17,
    1_700_000_000_123_456,
    0,
    Op.UPDATE,
    ORDERS,
    b"[7]",
    b'{"id":7,"total":9.5}',
    b'{"id":7,"total":12.25}',
)


def test_each_envelope_has_an_example():
    assert set(EXAMPLES) == set(ENVELOPES)


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_example_is_what_the_envelope_makes_of_its_change(name):
    made = envelope_of(name).wrap(CHANGE, "shop/42", now_us=1_700_000_000_456_789)
    value = json.loads(made.value)
    if name == "debezium":
        value["source"]["version"] = "…"
    if name == "debezium-schema":
        value = value["schema"]["fields"][1]
    if name == "cloudevents-binary":
        assert EXAMPLES[name].splitlines() == [f"{header}: {text}" for header, text in made.headers]
    else:
        assert json.loads(EXAMPLES[name]) == value
